package pcc

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/faild"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// updated brings a scheme through random updates, one a second, and returns
// the pool.
func updated(t *testing.T, s Scheme, working, standby, updates int) *Pool {
	t.Helper()
	p := NewPool(working, standby)
	if err := s.Update(p, 0); err != nil {
		t.Fatal(err)
	}
	drawn := workload.Updates{PerMinute: 60, Even: true}.Draw(sim.Stream(3, "updates"), sim.Time(updates+1)*sim.Second)
	for _, c := range Changes(3, working, standby, drawn) {
		p.Apply(c)
		if err := s.Update(p, c.At); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// one is a connection's packet.
func one(now sim.Time, key uint64, first uint16, held, newest int) *Conns {
	return &Conns{
		Now: now, Start: []sim.Time{0}, Key: []uint64{key}, Via: []uint16{0}, First: []uint16{first},
		Note: []uint32{0}, At: []uint16{0}, Version: Mixed, View: []int{held}, Newest: newest,
	}
}

// rows is a table of the controller's as a mux has it.
type rows struct{ *buckets.Table }

func (r rows) Row(b int) beamer.Row {
	return beamer.Row{Current: r.Current[b], Previous: r.Previous[b], Time: (r.Since[b]) * 1000}
}

// walk sends a packet from a mux from server to server, as each decides, and
// returns where it ends, Dropped if it was dropped. Only owner has the
// connection; all servers know generation newest.
func walk(way func() (int, beamer.Packet), pass func(beamer.Answer) (int, beamer.Packet), owner uint16, newest, nowMS, chainTime uint32) uint16 {
	at, p := way()
	for {
		s := beamer.Server{Slot: uint16(at), Generation: newest, ChainTime: chainTime, Peers: func(uint16) beamer.Peer { return beamer.Reachable }}
		a := s.Decide(&p, nowMS, func() (k beamer.Socket) {
			if uint16(at) == owner {
				k.State = beamer.Established
			}
			return k
		}, func() bool { return false })
		switch a.Verdict {
		case beamer.Take:
			return uint16(at)
		case beamer.PassOn:
			at, p = pass(a)
		default:
			return Dropped
		}
	}
}

// The batch form of beamer is Way at the mux and Decide at each server.
func TestBeamerDecides(t *testing.T) {
	r := soak.Rand(t)
	const chainTime = 20 * sim.Second
	for _, chain := range []int{1, 3} {
		b := newBeamer(Setup{Working: 12, Standby: 4, Buckets: 10, ChainTime: chainTime}, chain)
		p := updated(t, b, 12, 4, 60)
		kinds := map[string]int{}
		for range 50_000 {
			held := r.IntN(p.Version + 1)
			newest := held + r.IntN(min(2, p.Version-held)+1)
			now := sim.Time(held)*sim.Second + sim.Time(r.Int64N(int64(40*sim.Second)))
			key, owner := r.Uint64(), uint16(r.IntN(16))
			table := b.tables.At(held)
			if bucket := beamer.Bucket(key, table.Len()); r.IntN(2) == 0 && table.Previous[bucket][0] != buckets.None {
				owner = table.Previous[bucket][0]
			}
			c := one(now, key, owner, held, newest)
			b.Serve(c)
			nowMS := uint32(epoch%(1<<32)*1000 + uint64(now/sim.Millisecond))
			want := walk(func() (int, beamer.Packet) {
				slot, hops, _ := beamer.Way(rows{table}, key, table.Generation)
				return slot, beamer.Packet{Flags: wire.ACK, From: beamer.Balancer, Carried: true, Hops: hops}
			}, func(a beamer.Answer) (int, beamer.Packet) {
				return int(a.Next), beamer.Packet{Flags: wire.ACK, From: beamer.Passed, Carried: true, Hops: a.Hops}
			}, owner, b.tables.At(newest).Generation, nowMS, uint32(chainTime/sim.Millisecond))
			// Of a broken one it does not matter who resets it.
			if c.At[0] != want && (c.At[0] == owner || c.At[0] == Dropped || want == owner || want == Dropped) {
				t.Fatalf("chain %d: owner %d, now %v, version %d of %d: ends at %d, want %d", chain, owner, now, held, newest, c.At[0], want)
			}
			switch {
			case want == Dropped:
				kinds["dropped"]++
			case want != owner:
				kinds["broken"]++
			case owner != table.Current[beamer.Bucket(key, table.Len())]:
				kinds["passed on"]++
			default:
				kinds["at once"]++
			}
		}
		for _, kind := range []string{"dropped", "broken", "passed on", "at once"} {
			if kinds[kind] < 100 {
				t.Errorf("chain %d: only %d packets %s: %v", chain, kinds[kind], kind, kinds)
			}
		}
	}
}

// The batch form of faild is the switch's MAC, and what each server reads of
// it and decides.
func TestFaildDecides(t *testing.T) {
	r := soak.Rand(t)
	f, err := newFaild(Setup{Working: 12, Standby: 4, Buckets: 10})
	if err != nil {
		t.Fatal(err)
	}
	p := updated(t, f, 12, 4, 60)
	for range 50_000 {
		held, key, owner := r.IntN(p.Version+1), r.Uint64(), uint16(r.IntN(16))
		rows := f.tables.At(held)
		b := beamer.Bucket(key, f.n)
		if r.IntN(2) == 0 && rows.previous[b] != wire.NoServer {
			owner = rows.previous[b]
		}
		c := one(0, key, owner, held, p.Version)
		f.Serve(c)
		row := beamer.Settled(rows.current[b])
		row.Previous[0] = rows.previous[b]
		mac, err := faild.MAC(row)
		if err != nil {
			t.Fatal(err)
		}
		at := func() (int, beamer.Packet) {
			to, _, _ := wire.DecodeFaild(mac)
			p := beamer.Packet{Flags: wire.ACK}
			faild.Read(mac, to.Current, &p)
			return int(to.Current), p
		}
		want := walk(at, func(a beamer.Answer) (int, beamer.Packet) {
			mac = faild.Next(mac, a)
			return at()
		}, owner, 0, 0, 0)
		if (c.At[0] == owner) != (want == owner) || want == Dropped {
			t.Fatalf("owner %d, version %d: ends at %d, want %d", owner, held, c.At[0], want)
		}
	}
}

// A stateless hash gives for each version what a hash gives that has lived
// through all changes, whatever order versions are asked in.
func TestStatelessVersions(t *testing.T) {
	r := soak.Rand(t)
	for _, kind := range []chash.Kind{chash.KindRing, chash.KindTableHRW, chash.KindMaglev, chash.KindAnchor, chash.KindDx, chash.KindHRW} {
		setup := Setup{Working: 12, Standby: 4}
		s := newStateless(setup, kind)
		p := updated(t, s, 12, 4, 20)
		fresh := newStateless(setup, kind)
		updated(t, fresh, 12, 4, 20)
		keys := make([]uint64, 200)
		for i := range keys {
			keys[i] = r.Uint64()
		}
		look := func(s *stateless, version int) []uint16 {
			c := Conns{Key: keys, At: make([]uint16, len(keys)), Version: version}
			s.Serve(&c)
			return c.At
		}
		want := make([][]uint16, p.Version+1)
		for v := range want {
			fresh.Forget(v) // one hash, brought on from version to version
			want[v] = look(fresh, v)
		}
		for range 100 {
			if v := r.IntN(p.Version + 1); !slices.Equal(look(s, v), want[v]) {
				t.Fatalf("%s: version %d is another", kind, v)
			}
		}
		if len(fresh.replicas) > 2 {
			t.Errorf("%s: %d hashes for one version at a time", kind, len(fresh.replicas))
		}
	}
}

// A connection that a flow table's user does not look for is there.
func TestThere(t *testing.T) {
	for _, name := range []string{JET, FullCT} {
		b := small(name)
		b.Entries = 2 // too few
		setup := b.setup(1)
		setup.Flood = workload.Flood{PerSecond: 500}
		scheme, err := New(name, setup)
		if err != nil {
			t.Fatal(err)
		}
		front, err := NewFront(1, FrontOptions{Balancers: 3, ECMP: Resilient, Stale: sim.Second,
			Churn: workload.Updates{PerMinute: 6}.Draw(sim.Stream(1, "balancer churn"), b.end())})
		if err != nil {
			t.Fatal(err)
		}
		w := &watched{tracking: scheme.(*tracking), t: t}
		r := b.run(1, workload.Updates{PerMinute: 60})
		r.Contenders = []Contender{{name, w, front}}
		if _, err := r.Play(context.Background()); err != nil {
			t.Fatal(err)
		}
		if w.skipped == 0 || w.asked == 0 {
			t.Errorf("%s: %d not looked for, %d looked for", name, w.skipped, w.asked)
		}
	}
}

type watched struct {
	*tracking
	t              *testing.T
	skipped, asked int
}

func (w *watched) Serve(c *Conns) {
	now := units(c.Now)
	for i, key := range c.Key {
		f := &w.flows[c.Via[i]]
		if c.First[i] == Broken || !f.there(c, i, now) {
			w.asked++
			continue
		}
		w.skipped++
		if e := f.Find(key, uint16(now), true); e == nil || e.Slot() != int(c.First[i]) {
			w.t.Fatalf("connection %d of %d is not there", i, len(c.Key))
		}
	}
	w.tracking.Serve(c)
}

// The cookie, and nothing else, leads to the server.
func TestCookies(t *testing.T) {
	r := soak.Rand(t)
	k := newCookies(Setup{Working: 300, Standby: 30, Seed: r.Uint64()})
	updated(t, k, 300, 30, 10)
	taken := map[uint16]bool{}
	for range 3000 {
		c := one(sim.Time(r.Int64N(int64(1e6*sim.Second))), r.Uint64(), 0, 10, 10)
		k.Open(c)
		taken[c.First[0]] = true
		c.Now += sim.Time(r.Int64N(int64(1e6 * sim.Second)))
		c.View[0] = r.IntN(11) // a balancer that knows less
		if k.Serve(c); c.At[0] != c.First[0] {
			t.Fatalf("opened at %d, served at %d", c.First[0], c.At[0])
		}
		c.Note[0] ^= 1 + uint32(r.IntN(cheetah.Layout{Bits: cheetah.MaxBits}.Slots()-1))
		owner, names := k.slots.owner(k.layout.Value(k.hash(c.Key[0]), c.Note[0]))
		k.Serve(c)
		if names && (owner == c.First[0] || c.At[0] != owner) {
			t.Fatalf("another cookie names server %d and leads from %d to %d", owner, c.First[0], c.At[0])
		}
		if !slices.Contains(k.working, c.At[0]) && !names {
			t.Fatalf("a cookie that names nobody leads to server %d, which does not work", c.At[0])
		}
	}
	if len(taken) < 300 {
		t.Errorf("round robin over 300 servers reached %d", len(taken))
	}
	if err := k.Update(NewPool(MaxServers, 1), 0); err == nil {
		t.Error("more servers than a cookie names")
	}
}

// Both ways to reassign give each server its share, and move no more than the
// share of the server that changed.
func TestGreedy(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := NewPool(20, 5)
	current := make([]uint16, 2000)
	for i := range current {
		current[i] = p.Working[i%20]
	}
	for _, c := range Changes(9, 20, 5, workload.Updates{PerMinute: 60, Even: true}.Draw(sim.Stream(9, "updates"), 60*sim.Second)) {
		p.Apply(c)
		moves := greedy(current, p, r)
		if len(moves) > 2000/len(p.Working)+20 {
			t.Fatalf("%d of 2000 moved for %+v", len(moves), c)
		}
		for _, m := range moves {
			current[m.Bucket] = m.To
		}
		counts := make([]int, 25)
		for _, s := range current {
			counts[s]++
		}
		for n, s := range p.State {
			if share := 2000 / len(p.Working); s == Working && (counts[n] < share-1 || counts[n] > share+2) || s != Working && counts[n] > 0 {
				t.Fatalf("server %d (%d) has %d of a share of %d", n, s, counts[n], share)
			}
		}
	}
}
