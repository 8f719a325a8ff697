package paths

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// otherTries bounds how many paths are tried where the best one has no free
// selector: each may take a search over all ports.
const otherTries = 64

// rated is a path and how good it is for a flow that may come.
type rated struct {
	path     Path
	max, sum float64
}

// rate is what best compares. r's paths are counted.
func (s *Scheduler) rate(p Path) rated {
	q := rated{path: p}
	for _, h := range p.Hops {
		if s.shared(h) {
			continue
		}
		load := s.load(h)
		q.max, q.sum = max(q.max, load), q.sum+load
	}
	return q
}

// next finds fields for the best of the other paths that have some, after the
// best of all had none (failed). With more than otherTries paths, a random
// choice of so many is tried.
func (s *Scheduler) next(routes *Routes, p *Placement, r Request, failed error) error {
	if !ofOnePath(failed) {
		return failed
	}
	others := s.others(routes, &p.Path, r.Random)
	for i := range others {
		flow, err := s.net.Ports(&others[i].path, r)
		if err == nil {
			p.Path, p.Flow = others[i].path, flow
			return nil
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("the least loaded path: %w; none of %d others has one either", failed, len(others))
	}
	return failed
}

// ofOnePath tells whether an error is of one path, so that another may do.
func ofOnePath(err error) bool {
	return errors.Is(err, pathsel.ErrNoSelector) || errors.Is(err, pathsel.ErrCollision) || errors.Is(err, ErrUnsteered)
}

// others are paths beside the one given, the best ones first.
func (s *Scheduler) others(routes *Routes, but *Path, random uint64) (out []rated) {
	source := rand.New(rand.NewPCG(random, 1))
	s.countThrough(routes)
	tries := min(routes.Count(), otherTries+1) // one of them may be but
	for i := range tries {
		if routes.Count() > tries {
			i = source.Uint64N(routes.Count())
		}
		var q Path
		routes.At(i, &q)
		if !slices.Equal(q.Hops, but.Hops) {
			out = append(out, s.rate(q.Clone()))
		}
	}
	source.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	slices.SortStableFunc(out, func(a, b rated) int { return cmp.Or(cmp.Compare(a.max, b.max), cmp.Compare(a.sum, b.sum)) })
	return out[:min(len(out), otherTries)]
}
