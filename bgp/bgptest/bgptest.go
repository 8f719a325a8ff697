// Package bgptest has a speaker without a network.
package bgptest

import (
	"slices"
	"sync"

	"github.com/fairlead/fairlead/bgp"
)

// Speaker is a bgp.Speaker that remembers what it was told.
type Speaker struct {
	mu         sync.Mutex
	routes     []bgp.Route
	sets       [][]bgp.Route // what changed, one after the other
	neighbours []bgp.Neighbour
	started    bool
	closed     bool
	changed    chan struct{}
	err        error
}

// New has neighbours, which are as they say.
func New(neighbours ...bgp.Neighbour) *Speaker {
	return &Speaker{neighbours: neighbours, changed: make(chan struct{}, 1)}
}

// Set implements bgp.Speaker.
func (s *Speaker) Set(routes []bgp.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	same := func(a, b bgp.Route) bool {
		return a.Address == b.Address && a.MED == b.MED && slices.Equal(a.Communities, b.Communities)
	}
	if !slices.EqualFunc(routes, s.routes, same) || len(s.sets) == 0 {
		s.sets = append(s.sets, slices.Clone(routes))
	}
	s.routes = slices.Clone(routes)
	return nil
}

// Start implements bgp.Speaker.
func (s *Speaker) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	return nil
}

// Neighbours implements bgp.Speaker.
func (s *Speaker) Neighbours() []bgp.Neighbour {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.neighbours)
}

// Changed implements bgp.Speaker.
func (s *Speaker) Changed() <-chan struct{} { return s.changed }

// Close implements bgp.Speaker.
func (s *Speaker) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Change has the neighbours stand as they say from now on.
func (s *Speaker) Change(neighbours ...bgp.Neighbour) {
	s.mu.Lock()
	s.neighbours = neighbours
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Fail has every Set fail; nil: no longer.
func (s *Speaker) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Told is what neighbours are told now, and whether sessions are open.
func (s *Speaker) Told() (addresses []string, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.routes {
		addresses = append(addresses, r.Address.String())
	}
	return addresses, s.started && !s.closed
}

// Sets is how often what is told changed.
func (s *Speaker) Sets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sets)
}
