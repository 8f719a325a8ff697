package datacentre

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/tables"
	vips "github.com/fairlead/fairlead/vip"
)

// vip is one VIP's day.
//
//	a change of its servers makes a version of the pool, and is pending;
//	each balancer hears of it at a time of its own: its connections look
//	themselves up (hear);
//	balancers come and go: connections come to other ones (reshuffle).
type vip struct {
	*site
	number  int
	before  int // servers of earlier VIPs
	changes []*change
	pop     *population
	pool    *pcc.Pool
	schemes []pcc.Scheme
	tracks  []*tracking // of schemes: those that track, else nil

	jet     controller.VIP // the servers as scheme jet knows them
	down    []bool
	view    []int // by balancer: the version that it holds
	pending []pending
	next    []sim.Time // scratch: frontiers
	hears   []uint16   // scratch: balancers

	tally tally
}

// pending is a version that some balancers do not know of.
type pending struct {
	version int
	at      sim.Time
	change  *change
}

// schemeNames are the schemes that are played, in the order of results.
var schemeNames = []string{pcc.Hash, "maglev", "table-hrw", pcc.AnchorTable, pcc.Beamer1, pcc.Beamer3, pcc.JET, pcc.FullCTECMP, pcc.FullCT, pcc.Cheetah}

func newVIP(s *site, number int) (*vip, error) {
	n := s.size[number]
	stream := func(what string) string { return fmt.Sprint(what, " ", number) }
	v := &vip{
		site: s, number: number, changes: s.changes(number), pool: pcc.NewPool(n, 0),
		down: make([]bool, n),
		view: make([]int, s.Balancers), next: make([]sim.Time, s.Balancers),
		tally: newTally(s),
	}
	v.jet.Settings = vips.Settings{Scheme: vips.JET, Protocol: vips.TCP, Hash: vips.Hash(chash.KindAnchor), Capacity: s.capacity(n), Horizon: s.spare(n)}
	for i := range n {
		v.jet.Slots = append(v.jet.Slots, controller.Slot{Number: uint16(i), Weight: 1, State: controller.Active})
	}
	for _, m := range s.size[:number] {
		v.before += m
	}
	keys := sim.SplitMix(sim.SplitMix(s.seed+0x632be59bd9b4e019) + uint64(number))
	v.pop = newPopulation(s, number, len(schemeNames),
		sim.Stream(s.seed, stream("lifetimes")), sim.Stream(s.seed, stream("arrivals")), keys)
	if err := v.makeSchemes(n); err != nil {
		return nil, err
	}
	return v, v.update(&change{})
}

func (v *vip) makeSchemes(n int) error {
	setup := pcc.Setup{
		Working: n, Seed: sim.SplitMix(v.seed) + uint64(v.number), Buckets: v.Buckets,
		ChainTime: pcc.DefaultChainTime,
	}
	names := serverNames(v.number, n, v.seed)
	own := map[string]pcc.Scheme{
		pcc.Beamer1:     nil, // of beamer-3's tables, below
		pcc.AnchorTable: &anchor{capacity: v.capacity(n)},
	}
	for _, name := range []string{"maglev", "table-hrw"} {
		own[name] = &compiled{spec: chash.Spec{Kind: chash.Kind(name), Rows: chash.Rows(2 * n)}, names: names}
	}
	for name, t := range tracks {
		own[name] = &tracking{all: t.all, one: t.one}
	}
	for _, name := range schemeNames {
		s, ok := own[name]
		if !ok {
			var err error
			if s, err = pcc.New(name, setup); err != nil {
				return err
			}
		}
		t, _ := s.(*tracking)
		v.schemes, v.tracks = append(v.schemes, s), append(v.tracks, t)
	}
	v.schemes[schemeIndex(pcc.Beamer1)] = pcc.Shorter(v.schemes[schemeIndex(pcc.Beamer3)], 1)
	return nil
}

// play is the VIP's day.
func (v *vip) play(ctx context.Context) error {
	changes, eras := v.changes, v.eras[1:]
	for len(changes)+len(eras) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(eras) == 0 || len(changes) > 0 && changes[0].at <= eras[0].at {
			sim.Done(ctx, float64(changes[0].at)/float64(v.end))
			v.flush(changes[0].at)
			if err := v.happen(changes[0]); err != nil {
				return err
			}
			changes = changes[1:]
			continue
		}
		v.flush(eras[0].at)
		v.reshuffle(&eras[0])
		eras = eras[1:]
	}
	v.flush(v.end)
	for _, p := range v.pending {
		v.hear(p, v.end)
	}
	v.bring(v.end)
	v.close()
	return nil
}

// happen: servers change, and there is a new version.
func (v *vip) happen(c *change) error {
	v.apply(c)
	if err := v.update(c); err != nil {
		return err
	}
	v.pending = append(v.pending, pending{v.pool.Version, c.at, c})
	if len(c.failed) > 0 {
		v.bury(0)
	}
	return nil
}

// apply notes what becomes of the servers.
func (v *vip) apply(c *change) {
	var list []pcc.Change
	for _, n := range slices.Concat(c.out, c.failed) {
		list = append(list, pcc.Change{At: c.at, Server: n})
		v.jet.Slots[n].State = controller.Draining
	}
	for _, n := range c.failed {
		v.down[n] = true
	}
	for _, n := range c.over {
		v.jet.Slots[n].State = controller.Standby
	}
	for _, n := range c.in {
		list = append(list, pcc.Change{At: c.at, Server: n, Add: true})
		v.jet.Slots[n].State, v.down[n] = controller.Active, false
	}
	v.pool.Apply(list...)
}

// update has all schemes have the new version.
func (v *vip) update(c *change) error {
	var before newest
	if v.pool.Version > 0 {
		before = v.tables()
	}
	hash, err := tables.HashOf(&v.jet, time.Time{})
	if err != nil {
		return err
	}
	for i := len(v.schemes) - 1; i >= 0; i-- { // beamer-3 before beamer-1
		if t := v.tracks[i]; t != nil {
			t.tables.Put(hash.Anchor())
			continue
		}
		if err := v.schemes[i].Update(v.pool, c.at); err != nil {
			return err
		}
	}
	if v.pool.Version > 0 {
		return v.tally.control.change(before, v.tables(), c, v.records(c))
	}
	return nil
}

// flush has everybody hear of the versions that all know of before a time.
func (v *vip) flush(until sim.Time) {
	for len(v.pending) > 0 && v.pending[0].at <= until-sim.Time(v.Stale) {
		v.hear(v.pending[0], math.MaxInt64)
		v.pending = v.pending[1:]
		v.forget()
	}
}

func (v *vip) forget() {
	oldest := slices.Min(v.view)
	for _, s := range v.schemes {
		s.Forget(oldest)
	}
}

// hear: the balancers that hear of a version before a time go by it, each from
// its own time on, and their connections look themselves up.
func (v *vip) hear(p pending, until sim.Time) {
	v.hears = v.hears[:0]
	now := p.at
	for b, view := range v.view {
		v.next[b] = v.pop.frontier[b]
		if at := v.heard(v.number, p.version, b, p.at); view < p.version && at <= until && !v.skipped(p.version, b, at) {
			v.next[b] = at
			v.hears = append(v.hears, uint16(b))
			now = max(now, at)
		}
	}
	if len(v.hears) == 0 {
		return
	}
	v.open(v.pop.advance(v.next), now)
	for _, b := range v.hears {
		v.view[b] = p.version
	}
	v.tally.through += int64(v.pop.len())
	v.serve(now, nil)
}

// skipped: a balancer that would hear of a version then has heard of a later
// one before, and goes by that.
func (v *vip) skipped(version, balancer int, at sim.Time) bool {
	for i, c := range v.changes[version:] { // v.changes[i] makes version i+1
		if c.at > at {
			return false
		}
		if v.heard(v.number, version+1+i, balancer, c.at) <= at {
			return true
		}
	}
	return false
}

// bring has all that lives at a time be there.
func (v *vip) bring(at sim.Time) {
	for b := range v.next {
		v.next[b] = at
	}
	v.open(v.pop.advance(v.next), at)
}

// open sends the first packets of the connections from an index on. One that
// comes to a server that is down has never been a connection.
func (v *vip) open(from int, now sim.Time) {
	if from == v.pop.len() {
		return
	}
	for k, s := range v.schemes {
		c := v.pop.conns(k, from, now, v.view)
		s.Open(&c)
	}
	v.bury(from)
}

// bury takes the connections from an index on out of each scheme's count whose
// server is down: no scheme could have saved them.
func (v *vip) bury(from int) {
	if !slices.Contains(v.down, true) {
		return
	}
	for k := range v.pop.sides {
		first := v.pop.sides[k].first
		for i := from; i < len(first); i++ {
			if n := first[i]; n != pcc.Broken && v.down[n] {
				first[i] = pcc.Broken
				v.tally.died[k]++
			}
		}
	}
}

// reshuffle: ECMP has other balancers. Where all hold the same version, and no
// new connection is placed otherwise than an old one, those that came since
// the last change need not be drawn: whatever balancer they come to sends them
// where they are.
func (v *vip) reshuffle(e *era) {
	disagree := len(v.pending) > 0
	if disagree {
		// Reshuffles since the last version have moved frontiers' connections.
		if v.pop.drawn != v.pop.now {
			v.bring(v.pending[0].at)
		}
		for _, p := range v.pending {
			v.hear(p, e.at)
		}
	}
	if disagree || slices.ContainsFunc(v.jet.Slots, func(s controller.Slot) bool { return s.State == controller.Draining }) {
		v.bring(e.at)
	} else {
		v.pop.expire(func(uint16) sim.Time { return e.at })
	}
	v.pop.reshuffle()
	for _, b := range e.came {
		// One that joins reads the newest version before it joins.
		v.view[b] = v.pool.Version
	}
	for k, t := range v.tracks {
		if t != nil {
			t.leave(v.pop.sides[k].note, e.left)
		}
	}
	if disagree {
		v.serve(e.at, nil)
	} else {
		v.serve(e.at, v.tracks)
	}
}

// serve has all connections look themselves up, under all schemes or only under
// those that track.
func (v *vip) serve(now sim.Time, tracks []*tracking) {
	hour := min(int(now/sim.Time(time.Hour)), len(v.tally.broken[0])-1)
	for k, s := range v.schemes {
		if tracks != nil && tracks[k] == nil {
			continue
		}
		c := v.pop.conns(k, 0, now, v.view)
		s.Serve(&c)
		v.tally.lookups += int64(c.Len())
		broken, _ := pcc.Judge(&c)
		v.tally.broken[k][hour] += broken
		if t := v.tracks[k]; t != nil && !t.all && c.Len() > 0 {
			v.tally.tracked = max(v.tally.tracked, float64(t.live)/float64(c.Len()))
		}
	}
}

// poisson is the number of connections that came and went unseen.
func (v *vip) poisson() int64 {
	return int64(workload.PoissonNumber(sim.Stream(v.seed, fmt.Sprint("unseen ", v.number)), v.pop.unseen))
}
