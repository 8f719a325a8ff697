package pcc

import (
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// modulo is what plain ECMP does: key modulo the number of working servers.
type modulo struct {
	working Versions[[]uint16]
}

func (m *modulo) Update(p *Pool, _ sim.Time) error {
	m.working.Put(p.Working)
	return nil
}

func (m *modulo) Forget(oldest int) { m.working.Forget(oldest) }

func (m *modulo) Open(c *Conns) { m.look(c, c.First) }

func (m *modulo) Serve(c *Conns) { m.look(c, c.At) }

func (m *modulo) look(c *Conns, at []uint16) {
	if c.Version == Mixed {
		for i, key := range c.Key {
			working := m.working.At(c.Held(i))
			at[i] = working[uint32(key>>32)%uint32(len(working))]
		}
		return
	}
	working := m.working.At(c.Version)
	n := uint32(len(working))
	at = at[:len(c.Key)]
	for i, key := range c.Key {
		at[i] = working[uint32(key>>32)%n]
	}
}

// stateless goes by a consistent hash over the working servers, and by nothing
// else. Balancers bring their hash up to date change by change: so it does for
// each version that is held, with one hash for as many balancers as hold it.
type stateless struct {
	setup Setup
	kind  chash.Kind
	first []uint16   // that worked at the start
	log   [][]Change // log[v] leads to version v+1
	// oldest version that a balancer holds: replicas of older ones are free.
	oldest   int
	replicas []*replica
}

// replica is a hash as it stands at some version.
type replica struct {
	version int
	hash    chash.Hash
	byName  map[string]uint16
	owner   []uint16 // by Node
}

// ringPoints of a server: shares vary by a tenth, and the ring stays in the
// cache. How many there are has no bearing on what a change moves.
const ringPoints = 100

func newStateless(s Setup, k chash.Kind) *stateless { return &stateless{setup: s, kind: k} }

func (s *stateless) Update(p *Pool, _ sim.Time) error {
	if p.Version > 0 {
		s.log = append(s.log, p.Last)
		return nil
	}
	s.first = p.Working
	_, err := s.at(0)
	return err
}

func (s *stateless) Forget(oldest int) { s.oldest = oldest }

func (s *stateless) Open(c *Conns) { s.look(c, c.First) }

func (s *stateless) Serve(c *Conns) { s.look(c, c.At) }

func (s *stateless) look(c *Conns, at []uint16) {
	at = at[:len(c.Key)]
	if c.Version == Mixed {
		var r *replica
		for i, key := range c.Key {
			if held := c.Held(i); r == nil || r.version != held {
				r = s.must(held)
			}
			at[i] = r.owner[r.hash.Lookup(key)]
		}
		return
	}
	r := s.must(c.Version)
	hash, owner := r.hash, r.owner
	for i, key := range c.Key {
		at[i] = owner[hash.Lookup(key)]
	}
}

// must is at, which cannot fail once version 0 is there: capacities are those
// of the whole pool.
func (s *stateless) must(version int) *replica {
	r, err := s.at(version)
	if err != nil {
		panic(err)
	}
	return r
}

// at is the hash at a version: one that is there, one that is free and
// brought up to date, or a new one.
func (s *stateless) at(version int) (*replica, error) {
	var free *replica
	for _, r := range s.replicas {
		if r.version == version {
			return r, nil
		}
		if r.version < s.oldest && (free == nil || r.version > free.version) {
			free = r
		}
	}
	if free == nil {
		free = &replica{version: -1}
		s.replicas = append(s.replicas, free)
	}
	// Maglev builds its whole table for each change.
	if free.version < 0 || s.kind == chash.KindMaglev && version-free.version > 1 {
		fresh, err := s.replica(version)
		if err != nil {
			return nil, err
		}
		*free = *fresh
	}
	return free, s.bring(free, version)
}

// replica is a hash for a version: as it is then, or where the places of
// servers follow from their history (anchor, dx), as it was at the start, to be
// brought up to date by all changes since.
func (s *stateless) replica(version int) (*replica, error) {
	r := &replica{version: version, byName: map[string]uint16{}}
	working := map[uint16]bool{}
	for _, n := range s.first {
		working[n] = true
	}
	if s.kind.Buckets() {
		r.version = 0
	}
	for _, changes := range s.log[:r.version] {
		for _, c := range changes {
			working[c.Server] = c.Add
		}
	}
	var servers []chash.Server
	for n, works := range working {
		if works {
			name := s.setup.serverName(int(n))
			r.byName[name] = n
			servers = append(servers, chash.Server{Name: name, Weight: 1}) // in any order
		}
	}
	total := s.setup.Working + s.setup.Standby
	o := chash.Options{Capacity: total, Replicas: ringPoints}
	if s.kind == chash.KindTableHRW {
		o.Rows = chash.Rows(total)
	}
	var err error
	if r.hash, err = chash.New(s.kind, o, servers...); err != nil {
		return nil, err
	}
	r.owner = owners(r.hash, r.byName, r.owner)
	return r, nil
}

func (s *stateless) bring(r *replica, version int) error {
	if r.version == version {
		return nil
	}
	for _, c := range slices.Concat(s.log[r.version:version]...) {
		name := s.setup.serverName(int(c.Server))
		if c.Add {
			if err := r.hash.Add(name, 1); err != nil {
				return err
			}
			r.byName[name] = c.Server
		} else {
			if err := r.hash.Remove(name); err != nil {
				return err
			}
			delete(r.byName, name)
		}
	}
	r.version = version
	r.owner = owners(r.hash, r.byName, r.owner)
	return nil
}
