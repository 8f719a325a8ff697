package pcc

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// ECMP is how routers spread connections over balancers.
type ECMP string

const (
	// Modulo: the hash modulo the number of balancers. One that comes or goes
	// moves nearly all connections.
	Modulo ECMP = "modulo"
	// Resilient: a consistent hash. One that goes moves its own connections,
	// one that comes its share.
	Resilient ECMP = "resilient"
)

// ECMPs are all.
func ECMPs() []ECMP { return []ECMP{Modulo, Resilient} }

// FrontOptions say what stands between the clients and the servers.
type FrontOptions struct {
	// Balancers at the start, 1 at least.
	Balancers int
	ECMP      ECMP
	// Stale is the longest time by which a balancer hears of a pool's change
	// after the first moment that it could: each one of each change, drawn
	// evenly from 0 to Stale (stream "delays"). A balancer that has heard of a
	// change knows all earlier ones.
	Stale sim.Time
	// Churn is when balancers join and leave. Any is as likely to leave; one
	// that joins is new, and knows the newest version. Routers go by all of
	// them at once. Stream: "which balancer".
	Churn []workload.Update
}

// Front is the balancers of one run. Runs do not share it; the schemes of one
// run may.
type Front struct {
	o             FrontOptions
	alive         []uint16 // numbers, ascending
	view          []int    // by number: version; gone: not looked at
	version       int      // of all, Mixed
	newest        int
	via           []uint16 // by connection
	delays, which *rand.Rand

	resilient chash.Hash
	owner     []uint16 // by Node of resilient
}

// NewFront is a front of its own streams, "delays" and "which balancer".
func NewFront(seed uint64, o FrontOptions) (*Front, error) {
	f := &Front{o: o, delays: sim.Stream(seed, "delays"), which: sim.Stream(seed, "which balancer")}
	if o.ECMP == Resilient {
		var err error
		f.resilient, err = chash.New(chash.KindTableHRW, chash.Options{Rows: chash.MaxRows})
		if err != nil {
			return nil, err
		}
	}
	for range o.Balancers {
		if _, err := f.join(0); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// One is a front of one balancer that knows of each change at once.
func One() *Front {
	f, _ := NewFront(0, FrontOptions{Balancers: 1, ECMP: Modulo}) // which cannot fail
	return f
}

func balancerName(n uint16) string { return fmt.Sprintf("balancer %d", n) }

// join begins a balancer that holds a version.
func (f *Front) join(version int) (number uint16, err error) {
	if len(f.view) > Broken {
		return 0, fmt.Errorf("balancer %d joins: there can be %d at most in a run; make it shorter or the churn slower", len(f.view), Broken+1)
	}
	number = uint16(len(f.view))
	f.view = append(f.view, version)
	f.alive = append(f.alive, number)
	if f.resilient != nil {
		err = f.resilient.Add(balancerName(number), 1)
	}
	return number, err
}

// leave ends any balancer but the last one.
func (f *Front) leave() (number uint16, ok bool, err error) {
	if len(f.alive) == 1 {
		return 0, false, nil
	}
	i := f.which.IntN(len(f.alive))
	number = f.alive[i]
	f.alive = slices.Delete(f.alive, i, i+1)
	if f.resilient != nil {
		err = f.resilient.Remove(balancerName(number))
	}
	return number, true, err
}

// settle notes what versions there are and whose nodes are whose.
func (f *Front) settle() {
	f.version, f.newest = f.view[f.alive[0]], 0
	for _, b := range f.alive {
		if v := f.view[b]; v != f.version {
			f.version = Mixed
		}
		f.newest = max(f.newest, f.view[b])
	}
	if f.resilient == nil {
		return
	}
	byName := make(map[string]uint16, len(f.alive))
	for _, b := range f.alive {
		byName[balancerName(b)] = b
	}
	f.owner = owners(f.resilient, byName, f.owner)
}

// owners lists by Node whom a hash's nodes stand for.
func owners(h chash.Hash, byName map[string]uint16, list []uint16) []uint16 {
	list = list[:0]
	for n, known := chash.Node(0), 0; known < len(byName); n++ {
		number, ok := byName[h.Name(n)]
		if ok {
			known++
		}
		list = append(list, number)
	}
	return list
}

// oldest is the oldest version that a balancer holds.
func (f *Front) oldest() int {
	oldest := f.newest
	for _, b := range f.alive {
		oldest = min(oldest, f.view[b])
	}
	return oldest
}

// route is the balancer of a connection. Its hash is not the balancers'.
func (f *Front) route(key uint64) uint16 {
	if len(f.alive) == 1 {
		return f.alive[0]
	}
	h := sim.SplitMix(key + 0x9e3779b97f4a7c15)
	if f.resilient != nil {
		return f.owner[f.resilient.Lookup(h)]
	}
	return f.alive[h%uint64(len(f.alive))]
}
