package controller

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
	"github.com/fairlead/fairlead/vip"
)

// owned is a connection of a VIP of scheme beamer: its server alone knows it.
type owned struct {
	bucket int
	slot   uint16
	server string
}

// mux is a balancer: a version, and what its packets go by.
type mux struct {
	a *Assignment
	e *effective.Table
	// away: its daemon gets no versions, and no clients come its way.
	away bool
}

// chainedFleet is a deployment of scheme beamer that changes, two balancers, and
// servers that own connections and pass on what they do not own.
type chainedFleet struct {
	t     *rapid.T
	cur   *Assignment // what all have, but for those who got the next
	now   time.Time
	muxes [2]mux
	// newest is the newest generation that servers know.
	newest uint32
	conns  []*owned
	// crowded are buckets that had more owners at some time than there is room
	// for, current servers that are about to have some included.
	crowded map[int]bool
	// failing servers are down to the balancers' checks, but live on.
	failing map[uint16]bool
	// together is when all balancers had one version, zero while they do not.
	together time.Time
}

func (f *chainedFleet) owns(v *VIP) buckets.Owns { return f.live().Owns(v) }

// live is what agents say now.
func (f *chainedFleet) live() LiveCounts {
	l := LiveCounts{Connections: map[LiveKey]map[uint32]uint64{}, Owned: map[LiveKey]Owned{}}
	v := &f.cur.VIPs[0]
	n := v.Buckets.Len()
	for _, s := range v.Slots {
		o := Owned{Buckets: n, Bitmap: make([]byte, (n+7)/8), At: f.now}
		for _, c := range f.conns {
			if c.server == s.Server {
				o.Connections++
				o.Bitmap[c.bucket/8] |= 1 << (c.bucket % 8)
			}
		}
		l.Owned[LiveKey{v.ID, s.Server}] = o
	}
	return l
}

func (f *chainedFleet) update() {
	f.crowd()
	defer f.crowd()
	for i := range f.muxes {
		m := &f.muxes[i]
		v := &m.a.VIPs[0]
		view := effective.View{Now: uint32(f.now.Unix()), ChainTime: v.ChainSeconds(), Servers: v.BucketServers(), Owns: f.owns(v),
			EndAfter: math.MaxUint32, Down: func(n uint16) bool { return f.failing[n] }}
		if !f.together.IsZero() {
			view.EndAfter = uint32(f.together.Unix()) + buckets.ReportAfter
		}
		if m.e.Missed(v.Buckets) {
			// It asks all agents, and a peer, before it is ready.
			view.Owners = f.live().Owners(v)
			m.e.Update(v.Buckets, view)
			f.tell(i)
		}
		m.e.Update(v.Buckets, view)
	}
}

func (f *chainedFleet) crowd() {
	for _, c := range f.conns {
		if f.owners(c.bucket) > 1+buckets.Chain {
			f.crowded[c.bucket] = true
		}
	}
}

// tell lets balancer i know what the other one's rows are.
func (f *chainedFleet) tell(i int) {
	for first := 0; ; {
		rows, next := f.muxes[1-i].e.Rows(first, 5)
		f.muxes[i].e.Learn(rows)
		if first = next; next == 0 {
			return
		}
	}
}

// owners is how many slots have connections of bucket b, and its current
// servers. A server that was removed and came again has two, of which its agent's
// report does not tell the one from the other.
func (f *chainedFleet) owners(b int) int {
	seen := map[uint16]bool{}
	for _, m := range f.muxes {
		if m.e.Len() > 0 {
			seen[m.e.Current[b]] = true
		}
	}
	for _, c := range f.conns {
		if c.bucket != b {
			continue
		}
		seen[c.slot] = true
		for _, m := range f.muxes {
			for _, s := range m.a.VIPs[0].Slots {
				if s.Server == c.server {
					seen[s.Number] = true
				}
			}
		}
	}
	return len(seen)
}

// packets of every connection come through every balancer.
func (f *chainedFleet) packets() {
	f.conns = slices.DeleteFunc(f.conns, func(c *owned) bool {
		for _, m := range f.muxes {
			if v := &m.a.VIPs[0]; slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.Number == c.slot && !v.answers(&s) }) {
				return true // moved away by force, and nobody answers for it
			}
		}
		for i, m := range f.muxes {
			r := m.e.At(c.bucket)
			if m.away || r.Current == c.slot || slices.Contains(r.Previous[:], c.slot) {
				continue // nobody comes; owned there, or passed on until it is
			}
			if buckets.Newer(f.newest, m.e.Generation) {
				continue // stale, and nobody owns it: dropped, sent again
			}
			if f.crowded[c.bucket] {
				return true
			}
			others := ""
			for _, d := range f.conns {
				if d.bucket == c.bucket {
					others += fmt.Sprintf(" %s (slot %d)", d.server, d.slot)
				}
			}
			f.t.Fatalf("at %s through balancer %d (version %d, generation %d): a connection of %s (slot %d) in bucket %d is not found: %+v, beside%s, failing %v\n%s",
				f.now.Format(time.TimeOnly), i, m.a.Version, m.e.Generation, c.server, c.slot, c.bucket, r, others, f.failing, show1(m.a))
		}
		return false
	})
}

func (f *chainedFleet) open() {
	for range rapid.IntRange(0, 6).Draw(f.t, "opened") {
		m := f.muxes[rapid.IntRange(0, 1).Draw(f.t, "through")]
		if m.away {
			continue
		}
		b := rapid.IntRange(0, m.e.Len()-1).Draw(f.t, "bucket")
		v := &m.a.VIPs[0]
		s, ok := v.Slot(m.e.Current[b])
		if !ok {
			continue // no server at all yet
		}
		if s.State != Active && slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.State == Active }) {
			f.t.Fatalf("version %d: a new connection goes to slot %d, which is %s:\n%s", m.a.Version, s.Number, s.State, show1(m.a))
		}
		// The agents have either version: its own slot must be known to both.
		if t, ok := f.cur.VIPs[0].Slot(s.Number); !ok || t.Server != s.Server {
			f.t.Fatalf("version %d: a new connection goes to slot %d (%s), which version %d does not know", m.a.Version, s.Number, s.Server, f.cur.Version)
		}
		f.conns = append(f.conns, &owned{b, s.Number, s.Server})
	}
}

// take hands steps over: to the servers, then to one balancer, then the other.
func (f *chainedFleet) take(steps []*Assignment, forced bool) {
	if n := len(steps); n > 0 && rapid.IntRange(0, 4).Draw(f.t, "interrupt") == 0 {
		steps = steps[:rapid.IntRange(1, n).Draw(f.t, "steps")]
	}
	for _, next := range steps {
		again, err := Decode(next.Encode())
		if err := errors.Join(err, Accept(f.cur, next, f.cur.Version, false)); err != nil {
			f.t.Fatal(err)
		}
		v, w := &f.cur.VIPs[0], &again.VIPs[0]
		if buckets.Newer(v.Buckets.Generation, w.Buckets.Generation) || w.Buckets.Generation-v.Buckets.Generation > 1 {
			f.t.Fatalf("generation %d after %d in one version", w.Buckets.Generation, v.Buckets.Generation)
		}
		f.newest, f.together = w.Buckets.Generation, time.Time{}
		first := rapid.IntRange(0, 1).Draw(f.t, "first")
		for _, i := range []int{first, 1 - first} {
			if !f.muxes[i].away {
				f.muxes[i].a = again
			}
			f.conns = slices.DeleteFunc(f.conns, func(c *owned) bool {
				_, ok := w.Slot(c.slot)
				if !ok && !forced {
					f.t.Fatalf("version %d has no slot %d, and a connection lives there", next.Version, c.slot)
				}
				return !ok
			})
			f.update()
			f.packets()
			f.open()
			// Agents and peers are asked before a client comes another way.
			f.update()
			f.tell(0)
			f.tell(1)
			f.update()
			f.packets()
			f.now = f.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(f.t, "handing over")) * time.Second)
			f.update()
			f.packets()
		}
		if f.cur = again; !f.muxes[0].away && !f.muxes[1].away {
			f.together = f.now
		}
	}
}

func beamerConfig(t *rapid.T) *config.Config {
	c := &config.Config{Secret: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}
	c.Balancers = []config.Balancer{{Name: "lb", Interfaces: []string{"eth0"}, Source: netip.MustParsePrefix("10.200.0.0/16")}}
	v := config.VIP{
		Settings: vip.Settings{Name: "v", Address: netip.MustParseAddr("192.0.2.1"), Scheme: vip.Beamer},
		Port:     80,
		Buckets:  24,
	}
	for i := range 7 {
		s := config.Server{Name: fmt.Sprintf("s%d", i), Address: netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)})}
		c.Servers = append(c.Servers, s)
		if m := (config.Member{Name: s.Name, Weight: rapid.IntRange(1, 3).Draw(t, "weight")}); i == 0 {
			v.Servers = append(v.Servers, m)
		} else if kind := rapid.IntRange(0, 5).Draw(t, "member"); kind > 0 {
			m.Drain, m.Standby = kind == 1, kind == 2
			v.Servers = append(v.Servers, m)
		}
	}
	c.VIPs = []config.VIP{v}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestChainsFindEveryConnection: whatever is applied, changed or interrupted,
// through any balancer of two neighbouring versions and whatever its health
// checks say, every connection is found at its server, or its packet is
// dropped since a newer table is known, as long as there were never more
// servers that own connections of its bucket than a chain and the current one.
func TestChainsFindEveryConnection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, err := First(beamerConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		f := &chainedFleet{t: t, cur: first, now: time.Unix(1_800_000_000, 0), newest: 1, failing: map[uint16]bool{}, crowded: map[int]bool{}}
		f.muxes = [2]mux{{a: first, e: new(effective.Table)}, {a: first, e: new(effective.Table)}}
		f.together = f.now
		f.update()
		server := rapid.SampledFrom([]string{"s0", "s1", "s2", "s3", "s4", "s5", "s6"})
		refused := func(err error) bool {
			var r Refusal
			var n NotFound
			var i Invalid
			if err != nil && !errors.As(err, &r) && !errors.As(err, &n) && !errors.As(err, &i) {
				f.t.Fatal(err)
			}
			return err != nil
		}
		named := func(kind Kind) func(*rapid.T) {
			return func(t *rapid.T) {
				f.t = t
				force := rapid.IntRange(0, 9).Draw(t, "force") == 0
				steps, _, err := Change(f.cur, f.live(), f.now, force, Op{Kind: kind, Server: server.Draw(t, "server"), VIP: "v",
					Address: netip.AddrFrom4([4]byte{10, 0, 1, byte(rapid.IntRange(1, 7).Draw(t, "address"))}), Weight: rapid.IntRange(1, 3).Draw(t, "weight"),
					Standby: kind == Add && rapid.IntRange(0, 2).Draw(t, "standby") == 0})
				if !refused(err) {
					f.take(steps, force)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"":      func(t *rapid.T) { f.t = t },
			"drain": named(Drain), "undrain": named(Undrain), "remove": named(Remove), "weight": named(Weight), "add": named(Add),
			"apply": func(t *rapid.T) {
				f.t = t
				cfg := beamerConfig(t)
				for range 4 {
					steps, _, err := Plan(cfg, f.cur, f.live(), f.now, false)
					if refused(err) || len(steps) == 0 {
						return
					}
					f.take(steps, false)
					if f.cur.Version != steps[len(steps)-1].Version {
						return
					}
				}
				t.Fatal("applied again and again, and never there")
			},
			"connections": func(t *rapid.T) {
				f.t = t
				f.open()
				f.packets()
			},
			"connections end": func(t *rapid.T) {
				f.conns = slices.DeleteFunc(f.conns, func(*owned) bool { return rapid.IntRange(0, 2).Draw(t, "end") > 0 })
			},
			"health": func(t *rapid.T) {
				f.t = t
				n := uint16(rapid.IntRange(0, 7).Draw(t, "slot"))
				f.failing[n] = !f.failing[n]
				f.update()
				f.packets()
			},
			"away and back": func(t *rapid.T) {
				f.t = t
				if m := &f.muxes[1]; !m.away {
					m.away, f.together = true, time.Time{}
				} else {
					m.away, m.a, f.together = false, f.cur, f.now
					f.update()
					f.tell(1) // before clients come again
					f.update()
					f.packets()
				}
			},
			"restart": func(t *rapid.T) {
				f.t = t
				m := &f.muxes[rapid.IntRange(0, 1).Draw(t, "balancer")]
				e := m.e
				if m.e = new(effective.Table); rapid.Bool().Draw(t, "from nothing") {
					f.update()
					f.packets()
					return
				}
				m.e = effective.Restore(e.Generation, slices.Clone(e.Current), slices.Clone(e.Since), slices.Clone(e.Previous))
				f.update()
				f.packets()
			},
			"time passes": func(t *rapid.T) {
				f.t = t
				// Reports are asked for every 2 s in earnest; a chain is
				// renewed as long as one comes within the chain time.
				f.now = f.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "seconds")) * time.Second)
				f.update()
				f.packets()
			},
		})
	})
}
