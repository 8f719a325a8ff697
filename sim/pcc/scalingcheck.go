package pcc

import (
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// scalingPeaks is how high the curves of the paper's figure go, in percent of a
// second's requests.
var scalingPeaks = []struct {
	scheme string
	share  float64
}{{Hash, 11}, {"table-hrw", 3}, {Beamer1, 0.5}}

// scalingSame is by what factor a share may differ from the paper's and still
// agree.
const scalingSame = 2

// check holds the counts against the paper's figure and its authors' data, like
// with like: all requests with all, the worst second with the worst. At another
// rate than the paper's only what schemes promise is held.
func (s *scaling) check(r *sim.Result, runs [][]*ScalingTally, others [][][]*ScalingTally) {
	if k := slices.Index(s.schemes, Cheetah); k >= 0 {
		c := sim.NewCheck("broken under cheetah", "%", scalingStat(runs, k, brokenShare).Mean, 0, 0, "0 of 105,053 requests")
		c.Why = cookiesWhy
		r.Checks = append(r.Checks, c)
	}
	if s.factor != 1 {
		return
	}
	for _, d := range scalingData {
		if d.errors > 0 {
			s.hold(r, runs, others, "noticed under "+d.scheme+", of all requests", d.scheme, 100*d.errors/d.requests, noticedShare,
				fmt.Sprintf("%s of %s requests: %.2g %%", sim.Grouped(d.errors, 0), sim.Grouped(d.requests, 0), 100*d.errors/d.requests))
		}
	}
	for _, p := range scalingPeaks {
		s.hold(r, runs, others, "noticed under "+p.scheme+", in the worst second", p.scheme, p.share, worstSecond, fmt.Sprintf("%g %%", p.share))
	}
	for i := range scalingPeaks[1:] {
		a, b := scalingData[i], scalingData[i+1]
		s.ratio(r, runs, "noticed, of all requests", a.scheme, b.scheme, a.errors/a.requests/(b.errors/b.requests), noticedShare)
		p, q := scalingPeaks[i], scalingPeaks[i+1]
		s.ratio(r, runs, "noticed, in the worst second", p.scheme, q.scheme, p.share/q.share, worstSecond)
	}
}

// hold has a statement on a scheme's share, which the paper reports.
func (s *scaling) hold(r *sim.Result, runs [][]*ScalingTally, others [][][]*ScalingTally, what, scheme string, theirs float64, of func(*ScalingTally) float64, reported string) {
	k := slices.Index(s.schemes, scheme)
	if k < 0 {
		return
	}
	c := sim.NewCheck(what, "%", scalingStat(runs, k, of).Mean, theirs/scalingSame, theirs*scalingSame, reported)
	if !c.Holds {
		c.Why = s.whyLevel(others, k, theirs, of)
	}
	r.Checks = append(r.Checks, c)
}

// ratio has a statement on how much worse a scheme is than the next better one.
// Nothing is said where that one loses nothing.
func (s *scaling) ratio(r *sim.Result, runs [][]*ScalingTally, what, worse, better string, theirs float64, of func(*ScalingTally) float64) {
	i, k := slices.Index(s.schemes, worse), slices.Index(s.schemes, better)
	if i < 0 || k < 0 {
		return
	}
	few := scalingStat(runs, k, of).Mean
	if few == 0 {
		return
	}
	c := sim.NewCheck(fmt.Sprintf("%s: %s over %s", what, worse, better), "×", scalingStat(runs, i, of).Mean/few, max(1, theirs/scalingSame), theirs*scalingSame, fmt.Sprintf("%.2g", theirs))
	if !c.Holds {
		c.Why = "a ratio of the levels, see there"
	}
	r.Checks = append(r.Checks, c)
}

// worstSecond is the greatest share of a second's requests that were noticed.
func worstSecond(t *ScalingTally) (most float64) {
	for _, second := range t.PerSecond[scalingFrom:min(scalingTo, len(t.PerSecond))] {
		most = max(most, second.share())
	}
	return most
}

// whyLevel tells what the experiment with lifetimes says about the level of a
// scheme: how near to the paper's any of its factors comes, and what all schemes
// that the paper has lose then.
func (s *scaling) whyLevel(others [][][]*ScalingTally, k int, theirs float64, of func(*ScalingTally) float64) string {
	if len(s.lifetimes) == 0 {
		return "See figure `lifetimes` (--lifetimes-factor)."
	}
	share := func(l, k int) float64 { return scalingStat(atLifetime(others, l), k, of).Mean }
	nearest, distance := 0, math.Inf(1)
	for l := range s.lifetimes {
		if d := math.Abs(math.Log(max(share(l, k), 1e-9) / theirs)); d < distance {
			nearest, distance = l, d
		}
	}
	text := fmt.Sprintf("The paper tells neither when its clients give up nor what became of answers that outlived its run. Of the factors of figure `lifetimes`, answers that last %g of their duration come nearest:", s.lifetimes[nearest])
	for i, p := range scalingPeaks {
		if k := slices.Index(s.schemes, p.scheme); k >= 0 {
			text += fmt.Sprintf("%s %s %.2g %%", map[bool]string{true: ",", false: ""}[i > 0], p.scheme, share(nearest, k))
		}
	}
	return text
}
