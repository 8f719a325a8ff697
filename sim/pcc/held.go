package pcc

import (
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/sim"
)

// Buckets is the newest table of buckets of a scheme that has one (beamer),
// else nil: for who wants to know what it takes to hand it out.
func Buckets(s Scheme) *buckets.Table {
	if b, ok := s.(interface{ held() *buckets.Table }); ok {
		return b.held()
	}
	return nil
}

func (b *bucketed) held() *buckets.Table { return b.tables.Newest() }

// Shorter is beamer by the tables of another beamer, of which packets carry no
// more than chain previous servers. It assigns nothing itself, which takes most
// of an update's time, and must be updated after the other one; nil if that is
// no beamer.
func Shorter(of Scheme, chain int) Scheme {
	b, ok := of.(*bucketed)
	if !ok {
		return nil
	}
	return &shorter{bucketed{chain: chain, buckets: b.buckets, chainTime: b.chainTime}, b}
}

type shorter struct {
	bucketed
	of *bucketed
}

// Update implements Scheme.
func (s *shorter) Update(p *Pool, _ sim.Time) error {
	if p.Version > 0 && len(p.Last) == 0 {
		s.tables.Put(s.tables.Newest())
		return nil
	}
	t := *s.of.held()
	t.Previous = slices.Clone(t.Previous)
	for i := range t.Previous {
		copy(t.Previous[i][s.chain:], buckets.NoPrevious[:])
	}
	s.tables.Put(&t)
	return nil
}
