package pcc

import (
	"context"
	"slices"
	"sort"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// How a schedule is played. Between two changes of the pool nothing changes, so
// after each one every connection that lives looks itself up once. When its
// packets come then tells whether its client got to know.

// ScalingTally is what one scheme did to a schedule's requests.
type ScalingTally struct {
	Scheme   string
	Requests int
	// Through connections lived through a change, most of them through several.
	Through int
	// Broken connections belonged to another server after a change in their
	// life: what all scenarios call so.
	Broken int
	// Noticed connections are broken ones of which a packet of the client went
	// to the wrong server while the answer was not complete, so that it got a
	// RST. The others were lucky: nothing more was to come but the answer's
	// last chunk, or their bucket came back in between.
	Noticed int
	// PerSecond counts by seconds: index 0 is the first one.
	PerSecond []ScalingSecond
}

// ScalingSecond is what happened in a second.
type ScalingSecond struct {
	// Completed answers and those of which a client noticed that they will not
	// be.
	Completed, Noticed int
}

// Play plays the schedule's requests against a scheme, which is new.
func (s Schedule) Play(ctx context.Context, seed uint64, requests []Request, name string, scheme Scheme) (*ScalingTally, error) {
	p := &scalingPlay{requests: requests, scheme: scheme, broken: make([]bool, len(requests)), noticed: make([]sim.Time, len(requests)),
		through: make([]bool, len(requests))}
	p.conns.Start, p.conns.Via = make([]sim.Time, len(requests)), make([]uint16, len(requests))
	p.conns.First, p.conns.At, p.conns.Note = make([]uint16, len(requests)), make([]uint16, len(requests)), make([]uint32, len(requests))
	p.conns.Key = scalingKeys(seed, len(requests))
	for i, r := range requests {
		p.conns.Start[i] = r.At
	}
	if stateful, ok := scheme.(Stateful); ok {
		stateful.Join(0, float64(len(requests)))
	}
	pool := NewPool(s.Active, s.Servers-s.Active)
	if err := scheme.Update(pool, 0); err != nil {
		return nil, err
	}
	from := sim.Time(0)
	for changes := s.Changes(seed); len(changes) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at, n := changes[0].At, 1 // what happens at one time is one version
		for n < len(changes) && changes[n].At == at {
			n++
		}
		p.period(from, at, pool.Version)
		pool.Apply(changes[:n]...)
		if err := scheme.Update(pool, at); err != nil {
			return nil, err
		}
		scheme.Forget(pool.Version)
		from, changes = at, changes[n:]
	}
	end := s.End(requests)
	p.period(from, end+1, pool.Version)
	return p.tally(name, end), nil
}

// scalingKeys are the connections' hashes.
func scalingKeys(seed uint64, n int) []uint64 {
	keys := make([]uint64, n)
	mixed := sim.SplitMix(seed + 0x9e3779b97f4a7c15)
	for i := range keys {
		keys[i] = sim.SplitMix(mixed + uint64(i))
	}
	return keys
}

// scalingPlay is one scheme's play. Connections are in the order of their
// start.
type scalingPlay struct {
	requests        []Request
	scheme          Scheme
	conns           Conns // of all requests
	live            []int32
	begun           int
	broken, through []bool
	noticed         []sim.Time // when, 0: it was not
}

// period is the time from a change on, up to the next one.
func (p *scalingPlay) period(from, to sim.Time, version int) {
	p.live = slices.DeleteFunc(p.live, func(i int32) bool { return p.requests[i].At+p.requests[i].Lasts <= from })
	p.serve(from, to, version)
	first := p.begun
	p.begun += sort.Search(len(p.requests)-first, func(k int) bool { return p.requests[first+k].At >= to })
	for i := first; i < p.begun; {
		next := i + 1
		for next < p.begun && p.requests[next].At < p.requests[i].At+sim.Second {
			next++
		}
		c := p.slice(i, next)
		c.Now, c.Version, c.Newest = p.requests[next-1].At, version, version
		p.scheme.Open(&c)
		i = next
	}
	for i := first; i < p.begun; i++ {
		p.live = append(p.live, int32(i))
	}
}

// slice is the connections from an index to another.
func (p *scalingPlay) slice(from, to int) Conns {
	c := &p.conns
	return Conns{Start: c.Start[from:to], Key: c.Key[from:to], Via: c.Via[from:to], First: c.First[from:to], At: c.At[from:to], Note: c.Note[from:to]}
}

// serve looks up who lives after a change.
func (p *scalingPlay) serve(from, to sim.Time, version int) {
	c := &p.conns
	some := Conns{Now: from, Version: version, Newest: version,
		Start: pick(nil, c.Start, p.live), Key: pick(nil, c.Key, p.live), Via: pick(nil, c.Via, p.live),
		First: pick(nil, c.First, p.live), At: pick(nil, c.At, p.live), Note: pick(nil, c.Note, p.live)}
	p.scheme.Serve(&some)
	for k, i := range p.live {
		p.through[i] = true
		c.Note[i] = some.Note[k]
		if some.At[k] == some.First[k] || some.At[k] == Dropped {
			continue
		}
		p.broken[i] = true
		if at, sends := p.requests[i].sends(from); sends && at < to && p.noticed[i] == 0 {
			p.noticed[i] = at
		}
	}
}

// sends is when the client sends its next packet at a time or later that the
// answer's rest depends on: it acknowledges each chunk; the last one needs no
// acknowledgement.
func (r Request) sends(from sim.Time) (sim.Time, bool) {
	if r.Lasts == 0 || r.Chunks < 2 {
		return 0, false
	}
	chunks, gone := sim.Time(r.Chunks), from-r.At
	k := max(1, (gone*chunks+r.Lasts-1)/r.Lasts)
	return r.At + k*r.Lasts/chunks, k < chunks
}

func (p *scalingPlay) tally(name string, end sim.Time) *ScalingTally {
	t := &ScalingTally{Scheme: name, Requests: len(p.requests), PerSecond: make([]ScalingSecond, end/sim.Second+1)}
	for i, r := range p.requests {
		if p.through[i] {
			t.Through++
		}
		if p.broken[i] {
			t.Broken++
		}
		if at := p.noticed[i]; at > 0 {
			t.Noticed++
			t.PerSecond[at/sim.Second].Noticed++
		} else {
			t.PerSecond[(r.At+r.Lasts)/sim.Second].Completed++
		}
	}
	return t
}

// scalingScheme makes a scheme for a schedule: those of New, and the hash
// bucket, which labs have.
func (s Schedule) scalingScheme(name string, seed uint64) (Scheme, error) {
	setup := Setup{Working: s.Active, Standby: s.Servers - s.Active, Seed: seed, Buckets: DefaultBuckets, ChainTime: DefaultChainTime, Entries: DefaultEntries}
	if name == string(chash.KindBucket) {
		return newPlaced(setup, chash.KindBucket), nil
	}
	return New(name, setup)
}

// PlayAll plays a schedule at a share of its rate against schemes by their
// names, one after the other.
func (s Schedule) PlayAll(ctx context.Context, seed uint64, share float64, names []string) ([]*ScalingTally, error) {
	requests := s.Requests(seed, share)
	var tallies []*ScalingTally
	for _, name := range names {
		scheme, err := s.scalingScheme(name, seed)
		if err != nil {
			return nil, err
		}
		t, err := s.Play(ctx, seed, requests, name, scheme)
		if err != nil {
			return nil, err
		}
		tallies = append(tallies, t)
	}
	return tallies, nil
}
