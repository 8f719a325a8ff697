package datacentre

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/workload"
)

// one is a site of one VIP, in which so much happens that few runs show it.
func one() *Datacentre {
	d := New()
	d.Servers, d.VIPs, d.Balancers, d.Active, d.Hours = 20, 1, 10, 1500, 0.25
	d.Changes, d.Failures, d.Wave, d.BalancerChanges, d.Stale = 50, 0, 5, 20, 10*time.Second
	return d
}

// The lazy population must say what one says that is played event by event, by
// package pcc, with the same changes at the same times: how many connections
// there are, how many live at changes, and how many break under schemes that
// remember nothing, something in servers, and something in balancers.
func TestLazyAgreesWithEventByEvent(t *testing.T) {
	names := []string{pcc.Hash, "table-hrw", pcc.Beamer1, pcc.FullCTECMP, pcc.Cheetah}
	const seeds = 6
	differences := map[string][]float64{} // relative, a seed each
	add := func(what string, lazy, events int64) {
		differences[what] = append(differences[what], float64(lazy-events)/float64(max(1, events)))
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		d := one()
		s, err := newSite(d, seed)
		if err != nil {
			t.Fatal(err)
		}
		v, err := newVIP(s, 0)
		if err == nil {
			err = v.play(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		events := eventByEvent(t, s, v.changes, names)
		add("connections", v.tally.opened, events.Connections)
		for i, name := range names {
			add("broken under "+name, v.tally.brokenOf(schemeIndex(name)), events.Schemes[i].Broken)
		}
	}
	for what, list := range differences {
		s := sim.NewStat(list)
		// Five standard errors, and a thousandth: a bound of chance alone would
		// be 0 where both are 0.
		bound := 5*s.Deviation/math.Sqrt(seeds) + 0.001
		t.Logf("%s: lazy is off by %+.4f ± %.4f a seed", what, s.Mean, s.Deviation)
		if math.Abs(s.Mean) > bound {
			t.Errorf("%s: lazy is off by %+.4f, more than %.4f", what, s.Mean, bound)
		}
		if s.Deviation > 0.5 {
			t.Errorf("%s: differs by %.2f from seed to seed: too few to tell", what, s.Deviation)
		}
	}
}

// eventByEvent plays the VIP's changes by package pcc. Waves are of one server
// there, as here.
func eventByEvent(t *testing.T, s *site, changes []*change, names []string) *pcc.Tally {
	t.Helper()
	r := pcc.Run{
		Arrivals: workload.NewPoisson(s.seed, float64(s.Active), s.Lifetimes.Distribution),
		Working:  s.size[0], End: s.end,
	}
	for _, c := range changes {
		for _, n := range c.out {
			r.Changes = append(r.Changes, pcc.Change{At: c.at, Server: n})
		}
		for _, n := range c.in {
			r.Changes = append(r.Changes, pcc.Change{At: c.at, Server: n, Add: true})
		}
	}
	o := pcc.FrontOptions{Balancers: s.Balancers, ECMP: s.ECMP, Stale: sim.Time(s.Stale)}
	for _, e := range s.eras[1:] {
		for range e.left {
			o.Churn = append(o.Churn, workload.Update{At: e.at})
		}
		for range e.came {
			o.Churn = append(o.Churn, workload.Update{At: e.at, Add: true})
		}
	}
	front, err := pcc.NewFront(s.seed, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		scheme, err := pcc.New(name, pcc.Setup{
			Working: r.Working, Seed: s.seed, Buckets: s.Buckets,
			ChainTime: pcc.DefaultChainTime, Entries: pcc.DefaultEntries,
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Contenders = append(r.Contenders, pcc.Contender{Name: name, Scheme: scheme, Front: front})
	}
	tally, err := r.Play(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// Frontiers that are not alike, and reshuffles between them, must leave the
// steady state what it is: as many connections as the law says, of ages and
// residual lives as it says, none of them twice, each at the balancer that it
// would be at.
func TestPopulationStaysSteady(t *testing.T) {
	d := one()
	d.Active = 3000
	const rounds = 400
	s, err := newSite(d, 7)
	if err != nil {
		t.Fatal(err)
	}
	p := newPopulation(s, 0, 1, sim.Stream(7, "a"), sim.Stream(7, "b"), 1)
	r := sim.Stream(7, "test")
	next := make([]sim.Time, d.Balancers)
	var now sim.Time
	var live, age, young float64
	for range rounds {
		now += sim.Time(r.Int64N(int64(40 * sim.Second)))
		for b := range next {
			next[b] = now + sim.Time(r.Int64N(int64(5*sim.Second)))
		}
		p.advance(next)
		seen := map[uint64]bool{}
		for i, key := range p.key {
			at := next[p.via[i]]
			if seen[key] || p.start[i] > at || p.end[i] <= at || p.via[i] != p.eras[p.now].via(key) {
				t.Fatalf("connection %x from %d to %d at %d, time %d: twice, not there, or at another balancer", key, p.start[i], p.end[i], p.via[i], at)
			}
			seen[key] = true
			a := at - p.start[i]
			age += float64(a)
			if a < 5*sim.Second {
				young++
			}
		}
		live += float64(p.len())
		now += 5 * sim.Second
		if p.now+1 < len(p.eras) && r.IntN(2) == 0 {
			p.expire(func(uint16) sim.Time { return now })
			p.reshuffle()
		}
	}
	law := d.Lifetimes
	// The mean age of the living is the mean of L²/2 over the mean of L.
	second := 0.0
	for i := range law.Len() {
		value, share := law.Step(i)
		second += share * float64(value) * float64(value)
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"live connections", live / rounds, float64(d.Active)},
		{"mean age", age / live, second / 2 / law.Mean()},
		{"share younger than 5 s", young / live, law.AliveFor(5*sim.Second) / law.Mean()},
		{"drawn and unseen", float64(p.opened) + p.unseen, float64(d.Active) * (float64(now)/law.Mean() + 1)},
	} {
		if math.Abs(c.got/c.want-1) > 0.02 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}
