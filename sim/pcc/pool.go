package pcc

import (
	"slices"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// State of a server.
type State uint8

// The states. A server that drains may be added again.
const (
	Standby State = iota
	Working
	Draining
)

// Change of a pool: a server is added (from standby, or while it drains), or
// removed, from when on it drains.
type Change struct {
	At     sim.Time
	Server uint16
	Add    bool
}

// Pool is the servers of one VIP, by numbers from 0 on. The first ones work
// from the beginning, the others stand by.
type Pool struct {
	// Version counts the changes.
	Version int
	// Last are the changes that made the newest version of the one before.
	Last  []Change
	State []State
	// Working are the servers that work, in ascending order. The slice is not
	// changed: each version has its own.
	Working []uint16
}

// NewPool has servers that work and others that stand by, at most MaxServers
// together.
func NewPool(working, standby int) *Pool {
	p := &Pool{State: make([]State, working+standby)}
	for n := range working {
		p.State[n] = Working
		p.Working = append(p.Working, uint16(n))
	}
	return p
}

// Apply makes a new version by changes, which are one to everybody who hears
// of it. Each must change something.
func (p *Pool) Apply(changes ...Change) {
	p.Version++
	p.Last = changes
	p.Working = slices.Clone(p.Working)
	for _, c := range changes {
		at, works := slices.BinarySearch(p.Working, c.Server)
		switch {
		case c.Add && !works:
			p.State[c.Server] = Working
			p.Working = slices.Insert(p.Working, at, c.Server)
		case !c.Add && works:
			p.State[c.Server] = Draining
			p.Working = slices.Delete(p.Working, at, at+1)
		}
	}
}

// Changes says which servers the updates concern: any that works is as likely
// to be removed, any that does not to be added. Where none is left for one, it
// is left out. Stream: "which server".
func Changes(seed uint64, working, standby int, updates []workload.Update) []Change {
	r := sim.Stream(seed, "which server")
	p := NewPool(working, standby)
	changes := make([]Change, 0, len(updates))
	for _, u := range updates {
		from := p.Working
		if u.Add {
			from = p.idle()
		}
		// A pool that never is empty: somebody must be there for connections.
		if len(from) == 0 || !u.Add && len(from) == 1 {
			continue
		}
		c := Change{u.At, from[r.IntN(len(from))], u.Add}
		p.Apply(c)
		changes = append(changes, c)
	}
	return changes
}

// idle are the servers that do not work.
func (p *Pool) idle() (idle []uint16) {
	for n, s := range p.State {
		if s != Working {
			idle = append(idle, uint16(n))
		}
	}
	return idle
}

// Versions keeps one thing a version of a pool, from the oldest that is still
// held on.
type Versions[T any] struct {
	first int
	list  []T
}

// Put is the next version's.
func (v *Versions[T]) Put(x T) { v.list = append(v.list, x) }

// At is a version's, which must not be forgotten.
func (v *Versions[T]) At(version int) T { return v.list[version-v.first] }

// Newest is the last one put.
func (v *Versions[T]) Newest() T { return v.list[len(v.list)-1] }

// Forget drops those of versions before oldest.
func (v *Versions[T]) Forget(oldest int) {
	if n := oldest - v.first; n > 0 {
		clear(v.list[:n])
		v.list = v.list[n:]
		v.first = oldest
	}
}
