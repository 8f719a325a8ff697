package tracking

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/chash"
)

// pool is the servers of the event simulation and the hash over them. The
// horizon holds the servers that are about to come back and warm up, beyond
// its size if need be, then those that failed and are expected back, the
// latest where they are too many, and is filled up with standby servers that
// nobody is about to add.
type pool struct {
	horizon int
	names   []string
	working []int32
	failed  []int32 // in the horizon, by the time of their failure
	warming []int32 // in the horizon
	standby []int32 // spare servers, in the order in which they fill up
	filled  int     // so many of standby are in the horizon

	all chash.Hash // over the working ones, with the whole horizon
	// near has the same working ones and only failed in its horizon; nil
	// without JET.
	near  chash.Hash
	owner []int32 // by Node of all: server
}

// poolOptions say how large it is.
type poolOptions struct {
	hash    chash.Kind
	servers int  // that work at first
	jet     bool // there is a horizon
	horizon int  // its size; 0 without jet
}

func newPool(o poolOptions, seed uint64) (*pool, error) {
	p := &pool{horizon: o.horizon}
	var servers []chash.Server
	for i := range int32(o.servers + o.horizon) {
		p.names = append(p.names, fmt.Sprintf("server %d of seed %d", i, seed))
		if int(i) < o.servers {
			p.working = append(p.working, i)
			servers = append(servers, chash.Server{Name: p.names[i], Weight: 1})
		} else {
			p.standby = append(p.standby, i)
		}
	}
	total := len(p.names)
	options := chash.Options{Capacity: total, Rows: tableRows(o.hash, total)}
	var err error
	if p.all, err = chash.New(o.hash, options, servers...); err != nil {
		return nil, err
	}
	if o.jet {
		if p.near, err = chash.New(o.hash, options, servers...); err != nil {
			return nil, err
		}
	}
	return p, p.fill()
}

// place is where a new connection goes, and its rank.
func (p *pool) place(key uint64) (server int32, r rank) {
	if p.near == nil {
		return p.owner[p.all.Lookup(key)], rankPlaced
	}
	n, track := p.all.Track(key)
	server = p.owner[n]
	if !track {
		return server, rankPlaced
	}
	return server, p.tracked(key)
}

// rank of a connection whose first packet went to a server.
func (p *pool) rank(key uint64, server int32) rank {
	if p.near == nil {
		if p.owner[p.all.Lookup(key)] != server {
			return rankMoved
		}
		return rankPlaced
	}
	n, track := p.all.Track(key)
	switch {
	case p.owner[n] != server:
		return rankMoved
	case !track:
		return rankPlaced
	}
	return p.tracked(key)
}

// tracked is the rank of a connection that a server of the horizon would take.
func (p *pool) tracked(key uint64) rank {
	if _, track := p.near.Track(key); track {
		return rankReturning
	}
	return rankStandby
}

// horizonShare is the share of keys that the horizon would take: |H| / (|W| + |H|).
func (p *pool) horizonShare() float64 {
	if p.near == nil {
		return 0
	}
	working, horizon := p.all.Len()
	return float64(horizon) / float64(working+horizon)
}

// fail takes a working server out, which is expected back.
func (p *pool) fail(server int32) error {
	p.working = without(p.working, server)
	if !p.tracks() {
		return p.settle(p.both(func(h chash.Hash) error { return h.Remove(p.names[server]) }))
	}
	p.failed = append(p.failed, server)
	return p.park(server)
}

// tracks tells whether there is a horizon.
func (p *pool) tracks() bool { return p.near != nil && p.horizon > 0 }

// warm puts a server into the horizon that had fallen out of it.
func (p *pool) warm(server int32) error {
	p.warming = append(p.warming, server)
	return p.park(server)
}

// park puts a server into the horizon. Where there is no room, the one that
// failed first leaves it.
func (p *pool) park(server int32) error {
	err := p.both(func(h chash.Hash) error { return h.Park(p.names[server], 1) })
	for err == nil && len(p.failed) > 0 && len(p.failed)+len(p.warming) > p.horizon {
		oldest := p.failed[0]
		p.failed = p.failed[1:]
		err = p.both(func(h chash.Hash) error { return h.Remove(p.names[oldest]) })
	}
	return p.settle(err)
}

// foreseen tells whether a server's return is no surprise to the horizon.
func (p *pool) foreseen(server int32) bool {
	return !p.tracks() || slices.Contains(p.failed, server) || slices.Contains(p.warming, server)
}

// add has a server work again.
func (p *pool) add(server int32) error {
	p.failed, p.warming = without(p.failed, server), without(p.warming, server)
	p.working = append(p.working, server)
	slices.Sort(p.working) // their order is no history
	return p.settle(p.both(func(h chash.Hash) error { return h.Add(p.names[server], 1) }))
}

func without(servers []int32, server int32) []int32 {
	return slices.DeleteFunc(servers, func(s int32) bool { return s == server })
}

// settle ends a change that went well: the horizon is filled, and it is noted
// whose nodes are whose.
func (p *pool) settle(err error) error {
	if err != nil {
		return err
	}
	return p.fill()
}

// fill has as many standby servers in the horizon as it has room for, and
// notes whose nodes are whose.
func (p *pool) fill() error {
	want := 0
	if p.near != nil {
		want = min(max(0, p.horizon-len(p.failed)-len(p.warming)), len(p.standby))
	}
	for ; p.filled > want; p.filled-- {
		if err := p.all.Remove(p.names[p.standby[p.filled-1]]); err != nil {
			return err
		}
	}
	for ; p.filled < want; p.filled++ {
		if err := p.all.Park(p.names[p.standby[p.filled]], 1); err != nil {
			return err
		}
	}
	byName := make(map[string]int32, len(p.working))
	for _, s := range p.working {
		byName[p.names[s]] = s
	}
	p.owner = p.owner[:0]
	for n, known := chash.Node(0), 0; known < len(p.working); n++ {
		s, ok := byName[p.all.Name(n)]
		if !ok {
			s = none
		} else {
			known++
		}
		p.owner = append(p.owner, s)
	}
	return nil
}

func (p *pool) both(change func(chash.Hash) error) error {
	if err := change(p.all); err != nil {
		return err
	}
	if p.near == nil {
		return nil
	}
	return change(p.near)
}
