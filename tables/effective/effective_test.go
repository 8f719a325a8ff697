package effective

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/controller/buckets"
)

// world is a table under random changes, daemons that see it each with its own
// history, and connections that they opened.
type world struct {
	t       *rapid.T
	now     uint32
	table   *buckets.Table
	servers []buckets.Server
	down    map[uint16]bool
	off     map[uint16]bool // disabled
	muxes   []*Table
	conns   []*conn
	fewest  bool
}

// conn is one that server owns. moves counts how often its bucket changed
// hands, at any daemon.
type conn struct {
	bucket int
	server uint16
	moves  int
}

const chainTime = 240

// owns is what agents report: the servers that are up, as of now.
func (w *world) owns(number uint16, bucket int) (bool, uint32) {
	if w.down[number] {
		return false, 0
	}
	return slices.ContainsFunc(w.conns, func(c *conn) bool { return c.server == number && c.bucket == bucket }), w.now
}

func (w *world) view(owns buckets.Owns) View {
	return View{Now: w.now, ChainTime: chainTime, Servers: w.servers, Owns: owns, Fewest: w.fewest,
		Down:     func(n uint16) bool { return w.down[n] },
		Disabled: func(n uint16) bool { return w.off[n] },
	}
}

// check holds e against what must be true of every row.
func check(t *rapid.T, e *Table, u *buckets.Table, v View) {
	taken := map[uint16]int{}
	for _, s := range v.Servers {
		taken[s.Number] = s.Weight
	}
	out := func(n uint16) bool { return v.Down(n) || v.Disabled(n) }
	anyUp := slices.ContainsFunc(v.Servers, func(s buckets.Server) bool { return s.Weight > 0 && !out(s.Number) })
	rows := buckets.Table{Current: e.Current, Since: slices.Clone(e.Since), Previous: e.Previous}
	for b, since := range rows.Since {
		rows.Since[b] = max(since, 1)
	}
	if err := rows.Validate(); err != nil {
		t.Fatal(err)
	}
	for b := range u.Current {
		r := e.At(b)
		switch want := u.Current[b]; {
		case !out(want) && r.Current != want:
			t.Fatalf("bucket %d is at %d, the table's server %d is up", b, r.Current, want)
		case out(want) && anyUp && (out(r.Current) || taken[r.Current] == 0):
			t.Fatalf("bucket %d is at %d, which is out or takes none; the table's %d is out", b, r.Current, want)
		}
		up := false
		for _, s := range slices.Backward(r.Previous[:]) {
			if s == buckets.None {
				continue
			}
			if _, ok := taken[s]; !ok {
				t.Fatalf("bucket %d: unknown server %d in its chain %v", b, s, r.Previous)
			}
			if up && v.Down(s) {
				t.Fatalf("bucket %d: server %d is down and stands before one that is not: %v", b, s, r.Previous)
			}
			up = up || !v.Down(s)
		}
	}
}

// TestNobodyIsForgotten: whatever tables, health, reports and time do, a
// connection's packets find their server through every daemon that has a table
// of its time, as long as that server lives and its bucket changed hands at
// most Chain times.
func TestNobodyIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: 10_000, down: map[uint16]bool{}, off: map[uint16]bool{}, fewest: rapid.Bool().Draw(t, "fewest")}
		w.servers = []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}, {Number: 2, Weight: 2}, {Number: 3, Weight: 1}, {Number: 4, Weight: 0}, {Number: 5, Weight: 0}}
		w.table = buckets.New(12, w.servers)
		for range 2 {
			e := new(Table)
			e.Update(w.table, w.view(nil))
			w.muxes = append(w.muxes, e)
		}
		// Reports are on hand at every daemon, or at none.
		var owns buckets.Owns
		if rapid.Bool().Draw(t, "reports") {
			owns = w.owns
		}
		update := func() {
			for i, e := range w.muxes {
				before := slices.Clone(e.Current)
				due, _ := e.Update(w.table, w.view(owns))
				check(t, e, w.table, w.view(owns))
				if due != 0 && due <= w.now {
					t.Fatalf("due at %d, now %d", due, w.now)
				}
				was := slices.Clone(e.Previous)
				if again, changed := e.Update(w.table, w.view(owns)); changed || again != due {
					t.Fatalf("the same update changes rows, %v to %v, or is due at %d, not %d", was, e.Previous, again, due)
				}
				if i > 0 {
					continue
				}
				for _, c := range w.conns {
					if before[c.bucket] != e.Current[c.bucket] {
						c.moves++
					}
				}
			}
			if !slices.Equal(w.muxes[0].Current, w.muxes[1].Current) {
				t.Fatalf("two daemons that see the same differ: %v, %v", w.muxes[0].Current, w.muxes[1].Current)
			}
			w.conns = slices.DeleteFunc(w.conns, func(c *conn) bool {
				if w.down[c.server] {
					return true // dies with its server
				}
				for _, e := range w.muxes {
					r := e.At(c.bucket)
					if r.Current == c.server || slices.Contains(r.Previous[:], c.server) {
						continue
					}
					if c.moves <= buckets.Chain {
						t.Fatalf("at %d: a connection of server %d in bucket %d, which moved %d times, is lost: %+v", w.now, c.server, c.bucket, c.moves, r)
					}
					return true
				}
				return false
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"open": func(t *rapid.T) {
				b := rapid.IntRange(0, w.table.Len()-1).Draw(t, "bucket")
				e := w.muxes[rapid.IntRange(0, 1).Draw(t, "mux")]
				if s := e.Current[b]; !w.down[s] {
					w.conns = append(w.conns, &conn{b, s, 0})
				}
			},
			"close": func(t *rapid.T) {
				if n := len(w.conns); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					w.conns = slices.Delete(w.conns, i, i+1)
				}
			},
			"health": func(t *rapid.T) {
				m := w.down
				if rapid.Bool().Draw(t, "disabled") {
					m = w.off
				}
				n := uint16(rapid.IntRange(0, 5).Draw(t, "server"))
				m[n] = !m[n]
				update()
			},
			"weights": func(t *rapid.T) {
				w.servers = slices.Clone(w.servers)
				w.servers[rapid.IntRange(0, 5).Draw(t, "server")].Weight = rapid.IntRange(0, 2).Draw(t, "weight")
				o := buckets.Options{Now: w.now, ChainTime: chainTime, Owns: owns}
				if moves := w.table.Assign(w.servers, o); len(moves) > 0 {
					w.table, _ = w.table.Apply(moves, o)
				}
				update()
			},
			"time": func(t *rapid.T) {
				// Without reports chains end by time, and with them whoever
				// still has connections then.
				most := uint32(10)
				if owns != nil {
					most = chainTime / 3
				}
				w.now += rapid.Uint32Range(1, most).Draw(t, "seconds")
				if owns == nil && w.now > 10_000+chainTime-10 {
					t.Skip("chains would end")
				}
				update()
			},
		})
	})
}

// TestIncremental: a Table that was brought along step by step has the
// same rows as one that looks at all of them each time.
func TestIncremental(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: 10_000, down: map[uint16]bool{}, off: map[uint16]bool{}}
		w.servers = []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}, {Number: 2, Weight: 2}, {Number: 7, Weight: 1}, {Number: 9, Weight: 0}}
		w.table = buckets.New(16, w.servers)
		one, all := new(Table), new(Table)
		reports := map[[2]int]uint32{}
		owns := func(n uint16, b int) (bool, uint32) {
			at := reports[[2]int{int(n), b}]
			return at&1 == 0, at
		}
		for range rapid.IntRange(1, 20).Draw(t, "updates") {
			w.now += rapid.Uint32Range(0, 90).Draw(t, "seconds")
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 0:
				w.servers = slices.Clone(w.servers)
				w.servers[rapid.IntRange(0, len(w.servers)-1).Draw(t, "server")].Weight = rapid.IntRange(0, 2).Draw(t, "weight")
				if rapid.IntRange(0, 3).Draw(t, "alone") == 0 {
					break // buckets move later
				}
				o := buckets.Options{Now: w.now, ChainTime: chainTime}
				w.table, _ = w.table.Apply(w.table.Assign(w.servers, o), o)
			case 1:
				n := rapid.SampledFrom([]uint16{0, 1, 2, 7, 9}).Draw(t, "server")
				w.down[n] = !w.down[n]
			case 2:
				key := [2]int{rapid.SampledFrom([]int{0, 1, 2, 7, 9}).Draw(t, "server"), rapid.IntRange(0, 15).Draw(t, "bucket")}
				reports[key] = w.now - rapid.Uint32Range(0, 5).Draw(t, "age")
			case 3: // a server comes, or goes again, and no bucket moves
				w.servers = slices.Clone(w.servers)
				if n := len(w.servers); n > 5 {
					w.servers = w.servers[:n-1]
				} else {
					w.servers = append(w.servers, buckets.Server{Number: 12, Weight: rapid.IntRange(0, 1).Draw(t, "weight")})
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "cloned") == 0 {
				// What becomes of the original is nothing to the clone.
				original := one
				one = one.Clone()
				later := w.view(owns)
				later.Now += chainTime
				original.Update(w.table, later)
			}
			_, changed := one.Update(w.table, w.view(owns))
			was := slices.Clone(all.Previous)
			wasCurrent := slices.Clone(all.Current)
			all.table = nil // as if the table were another
			all.Update(w.table, w.view(owns))
			if !slices.Equal(one.Current, all.Current) || !slices.Equal(one.Previous, all.Previous) || !slices.Equal(one.Since, all.Since) {
				t.Fatalf("at %d:\n%v %v %v\n%v %v %v", w.now, one.Current, one.Previous, one.Since, all.Current, all.Previous, all.Since)
			}
			if !changed && (!slices.Equal(was, one.Previous) || !slices.Equal(wasCurrent, one.Current)) {
				t.Fatal("rows changed unsaid")
			}
		}
	})
}

func up(uint16) bool { return false }

func TestChainEnds(t *testing.T) {
	servers := []buckets.Server{{Number: 0, Weight: 0}, {Number: 1, Weight: 1}}
	u := buckets.New(1, []buckets.Server{{Number: 0, Weight: 1}})
	e := new(Table)
	e.Update(u, View{Now: 90, ChainTime: 100, Servers: servers})
	next, _ := u.Apply([]buckets.Move{{Bucket: 0, To: 1}}, buckets.Options{Now: 100, ChainTime: 100})
	owned, at := false, uint32(0)
	view := func(now uint32) View {
		return View{Now: now, ChainTime: 100, Servers: servers, Down: up, Owns: func(uint16, int) (bool, uint32) { return owned, at }}
	}
	row := func(what string, v View, want buckets.Row, wantDue uint32, wantChanged bool) {
		t.Helper()
		due, changed := e.Update(next, v)
		if got := e.At(0); got != want || due != wantDue || changed != wantChanged {
			t.Fatalf("%s: %+v, due %d, changed %t; want %+v, due %d, changed %t", what, got, due, changed, want, wantDue, wantChanged)
		}
	}
	chain := [buckets.Chain]uint16{0, buckets.None, buckets.None}
	row("moved", view(102), buckets.Row{Current: 1, Previous: chain, Since: 102}, 202, true) // the daemon's own time: it gave 0 new ones until then
	at = 104
	row("a report from too soon", view(104), buckets.Row{Current: 1, Previous: chain, Since: 102}, 202, false)
	owned, at = true, 150
	row("owned", view(150), buckets.Row{Current: 1, Previous: chain, Since: 102}, 152, false)
	row("renewed", view(152), buckets.Row{Current: 1, Previous: chain, Since: 150}, 250, true)
	if e.Renewed() != 1 {
		t.Fatal("nothing renewed")
	}
	at = 201
	row("owned still", view(201), buckets.Row{Current: 1, Previous: chain, Since: 201}, 301, true)
	row("nothing new", view(300), buckets.Row{Current: 1, Previous: chain, Since: 201}, 301, false)
	owned, at = false, 300
	row("owns nothing", view(300), buckets.Row{Current: 1, Previous: buckets.NoPrevious, Since: 201}, 0, true)
	row("settled", view(400), buckets.Row{Current: 1, Previous: buckets.NoPrevious, Since: 201}, 0, false)

	// By time alone.
	e = new(Table)
	e.Update(u, View{Now: 90, ChainTime: 100, Servers: servers})
	v := View{Now: 100, ChainTime: 100, Servers: servers}
	row("moved", v, buckets.Row{Current: 1, Previous: chain, Since: 100}, 200, true)
	v.Now = 199
	row("not yet", v, buckets.Row{Current: 1, Previous: chain, Since: 100}, 200, false)
	v.Now = 200
	row("over", v, buckets.Row{Current: 1, Previous: buckets.NoPrevious, Since: 100}, 0, true)

	// A daemon without a past goes by the table, and asks a while.
	e = new(Table)
	v.Now = 150
	row("late", v, buckets.Row{Current: 1, Previous: chain, Since: 100}, 200, true)
	e = new(Table)
	v.Now = 1000
	row("too late", v, buckets.Row{Current: 1, Previous: chain, Since: 910}, 1010, true)

	// One that is started anew keeps what was in force.
	e = Restore(next.Generation, []uint16{1}, []uint32{140}, [][buckets.Chain]uint16{{7, 0, buckets.None}})
	v.Now, v.Servers = 180, []buckets.Server{{Number: 0, Weight: 0}, {Number: 1, Weight: 1}, {Number: 7, Weight: 0}}
	row("restored", v, buckets.Row{Current: 1, Previous: [buckets.Chain]uint16{7, 0, buckets.None}, Since: 140}, 240, false)
}

func TestDeputies(t *testing.T) {
	servers := []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}, {Number: 2, Weight: 2}, {Number: 3, Weight: 1}}
	u := buckets.New(1000, servers)
	for _, fewest := range []bool{false, true} {
		e := new(Table)
		v := View{Now: 100, ChainTime: 100, Servers: servers, Fewest: fewest}
		e.Update(u, v)
		v.Down = func(n uint16) bool { return n == 2 }
		if _, changed := e.Update(u, v); !changed {
			t.Fatal("nothing changed")
		}
		loads := map[uint16]int{}
		for b := range u.Current {
			if r := e.At(b); u.Current[b] != 2 && r.Current != u.Current[b] || u.Current[b] == 2 && r.Previous[0] != 2 {
				t.Fatalf("bucket %d: %+v", b, r)
			}
			loads[e.Current[b]]++
		}
		for _, n := range []uint16{0, 1, 3} {
			if most := 334; fewest && loads[n] > most || loads[n] < 280 {
				t.Errorf("fewest %t: server %d has %d", fewest, n, loads[n])
			}
		}
		// Another that fails moves its own buckets, and of the first one's
		// those that it stood in for; with Fewest some more.
		before := slices.Clone(e.Current)
		v.Now, v.Down = 110, func(n uint16) bool { return n == 2 || n == 1 }
		e.Update(u, v)
		for b, s := range before {
			if s != 1 && e.Current[b] != s && !fewest {
				t.Fatalf("bucket %d moves from %d to %d though neither it nor its deputy failed", b, s, e.Current[b])
			}
		}
		// Up again: the deputies come next in the chain, the dead last.
		v.Now, v.Down = 120, func(n uint16) bool { return n == 1 }
		e.Update(u, v)
		for b, s := range before {
			if r := e.At(b); u.Current[b] == 2 && (r.Current != 2 || s != 1 && !slices.Contains(r.Previous[:], s)) {
				t.Fatalf("bucket %d: %+v, its deputy was %d", b, r, s)
			}
		}
		v.Now, v.Down = 130, func(uint16) bool { return true }
		e.Update(u, v)
		if !slices.Equal(e.Current, u.Current) {
			t.Fatal("all are down, and buckets move")
		}
	}
}

// TestDatagramsPassTheDeadBy: over UDP a packet that nobody owns goes down the
// whole chain, so that a dead server must not stand in it.
func TestDatagramsPassTheDeadBy(t *testing.T) {
	servers := []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}, {Number: 2, Weight: 1}}
	u := buckets.New(12, servers)
	e := new(Table)
	owned, at := true, uint32(99)
	v := View{Now: 100, ChainTime: 100, Servers: servers, Datagrams: true, Owns: func(n uint16, b int) (bool, uint32) { return n == 2 && b == 11 && owned, at }}
	e.Update(u, v)
	v.Now, v.Down = 101, func(n uint16) bool { return n == 2 }
	e.Update(u, v)
	for b := range u.Current {
		if r := e.At(b); r.Current == 2 || r.Previous != buckets.NoPrevious {
			t.Fatalf("bucket %d: %+v", b, r)
		}
	}
	if owned, at = true, 103; true { // it lives, and its flows with it
		v.Now = 103
		e.Update(u, v)
	}
	for b := range u.Current {
		if r := e.At(b); (r.Previous != buckets.NoPrevious) != (b == 11) {
			t.Fatalf("bucket %d: %+v", b, r)
		}
	}
	v.Now, at, v.Down = 104, 104, nil
	e.Update(u, v)
	for b, s := range u.Current {
		if r := e.At(b); r.Current != s || (s == 2) != (r.Previous != buckets.NoPrevious) {
			t.Fatalf("bucket %d: %+v", b, r)
		}
	}
}

// TestDeadStandsLast: a server whose checks fail and that says what it owns
// stands before one that is down and says nothing, though that one had the
// bucket later: it would swallow what is passed on to it.
func TestDeadStandsLast(t *testing.T) {
	servers := []buckets.Server{{Number: 1, Weight: 1}, {Number: 2, Weight: 1}, {Number: 3, Weight: 1}}
	table := buckets.New(30, servers)
	down := map[uint16]bool{}
	spoken := map[uint16]uint32{}
	v := View{Now: 100, ChainTime: 100, Servers: servers, Down: func(n uint16) bool { return down[n] },
		Owns: func(n uint16, _ int) (bool, uint32) { return spoken[n] > 0, spoken[n] }}
	var e Table
	update := func(now uint32) {
		v.Now = now
		e.Update(table, v)
	}
	update(100)
	b := 0
	for table.Current[b] != 1 {
		b++
	}
	down[1] = true
	update(110)
	deputy := e.At(b).Current
	if deputy == 1 || e.At(b).Previous != [buckets.Chain]uint16{1, buckets.None, buckets.None} {
		t.Fatalf("with 1 down: %+v", e.At(b))
	}
	down[deputy], spoken[1] = true, 112
	update(115)
	if got := e.At(b); got.Current == 1 || got.Current == deputy || got.Previous != [buckets.Chain]uint16{1, deputy, buckets.None} {
		t.Errorf("with deputy %d dead: %+v", deputy, got)
	}
}
