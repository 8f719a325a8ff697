package pcc

import (
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// check holds the counts against the paper's figure and its authors' data.
func (s *scaling) check(r *sim.Result, runs [][]*ScalingTally, others [][][]*ScalingTally) {
	mean := func(name string, of func(*ScalingTally) float64) (float64, bool) {
		k := slices.Index(s.schemes, name)
		if k < 0 {
			return 0, false
		}
		return scalingStat(runs, k, of).Mean, true
	}
	if cheetah, ok := mean(Cheetah, brokenShare); ok {
		r.Checks = append(r.Checks, sim.NewCheck("broken under cheetah", "%", cheetah, 0, 0, "0 of 105,053 requests"))
	}
	// How much more breaks than under the next better one.
	for _, pair := range []struct {
		worse, better, reported string
		low, high               float64
	}{
		{Hash, "table-hrw", "11 % over 3 % at the plot's peaks: 3.7; errors in the data: 1.4", 2.5, 5},
		{"table-hrw", Beamer1, "3 % over 0.5 % at the plot's peaks: 6; errors in the data: 14", 3, 14},
	} {
		worse, ok := mean(pair.worse, brokenShare)
		better, too := mean(pair.better, brokenShare)
		if !ok || !too || better == 0 {
			continue
		}
		c := sim.NewCheck(fmt.Sprintf("broken under %s over %s", pair.worse, pair.better), "×", worse/better, pair.low, pair.high, pair.reported)
		if pair.worse == Hash {
			c.Why = s.whyApart(others)
		}
		r.Checks = append(r.Checks, c)
	}
	if beamer, ok := mean(Beamer1, brokenShare); ok {
		// More than Cheetah; how much is the next check's.
		r.Checks = append(r.Checks, sim.NewCheck("broken under beamer-1", "%", beamer, 0.001, 3, "up to 0.5 % of a second's requests"))
	}
	if hash, ok := mean(Hash, noticedShare); ok {
		c := sim.NewCheck("noticed under hash, of all requests", "%", hash, 0.5, 2, "997 of 105,241 requests: 0.95 %")
		c.Why = s.whyFewer(others)
		r.Checks = append(r.Checks, c)
	}
}

// whyApart tells what the experiment with lifetimes says about the ratio in
// the authors' counts.
func (s *scaling) whyApart(others [][][]*ScalingTally) string {
	hash, consistent := slices.Index(s.schemes, Hash), slices.Index(s.schemes, "table-hrw")
	least := math.Inf(1)
	for l := range s.lifetimes {
		runs := atLifetime(others, l)
		if few := scalingStat(runs, consistent, noticedShare).Mean; few > 0 {
			least = min(least, scalingStat(runs, hash, noticedShare).Mean/few)
		}
	}
	if math.IsInf(least, 1) {
		return "See figure `lifetimes` (--lifetimes-factor)."
	}
	return fmt.Sprintf("The plot's ratio is met, not the data's: figure `lifetimes` has no durations with which hashing loses less than %.1f times as many.", least)
}

// whyFewer tells what the experiment with lifetimes says about the authors'
// counts.
func (s *scaling) whyFewer(others [][][]*ScalingTally) string {
	hash, consistent := slices.Index(s.schemes, Hash), slices.Index(s.schemes, "table-hrw")
	if len(s.lifetimes) == 0 || consistent < 0 {
		return "See figure `lifetimes` (--lifetimes-factor), with scheme table-hrw."
	}
	target := 100 * scalingData[0].errors / scalingData[0].requests
	best, distance := 0, math.Inf(1)
	share := func(l, k int) float64 { return scalingStat(atLifetime(others, l), k, noticedShare).Mean }
	for l := range s.lifetimes {
		if d := math.Abs(math.Log(max(share(l, hash), 1e-9) / target)); d < distance {
			best, distance = l, d
		}
	}
	return fmt.Sprintf("Levels differ, orders do not: the paper tells neither when its clients give up nor what became of answers that outlived its run, one in six by the distribution. "+
		"Figure `lifetimes`: hashing comes nearest to the authors' count if answers last %g of their duration (%.2f %%); but then consistent hashing loses %.2f %%, and theirs 0.67 %%. No factor fits both.",
		s.lifetimes[best], share(best, hash), share(best, consistent))
}
