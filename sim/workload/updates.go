package workload

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
)

// Update is a change of a pool of servers (SilkRoad's and Cheetah's "DIP
// update").
type Update struct {
	At sim.Time
	// Add: a standby server begins to work. Otherwise a server is removed:
	// it drains.
	Add bool
}

// Updates is when servers are removed and added. Cheetah (§2.1) has 1.5 to 80
// a minute, as 95 % of SilkRoad's clusters do.
type Updates struct {
	// PerMinute is their mean number a minute, 0 to MaxPerMinute.
	PerMinute float64
	// Even: the same time between any two. Otherwise they are a Poisson
	// process.
	Even bool
}

// MaxPerMinute bounds the rate of updates: one a millisecond.
const MaxPerMinute = 60_000

// Check says what is wrong with the rate.
func (u Updates) Check() error {
	if !(u.PerMinute >= 0 && u.PerMinute <= MaxPerMinute) {
		return fmt.Errorf("%v updates a minute: must be 0 to %d", u.PerMinute, MaxPerMinute)
	}
	return nil
}

// Draw is all updates after time 0 and before the end. They come in pairs of
// a removal and an addition in random order, so that half are of either kind
// and the pool stays within one server of its size.
func (u Updates) Draw(r *rand.Rand, end sim.Time) []Update {
	if u.PerMinute == 0 {
		return nil
	}
	end = min(end, Never)
	gap := 60 * float64(sim.Second) / u.PerMinute
	var updates []Update
	var at sim.Time
	for n := 1; ; n++ {
		if u.Even {
			at = atMostNever(math.Round(float64(n) * gap))
		} else {
			at += Exponential(r, gap)
		}
		if at >= end {
			return updates
		}
		add := false
		if n%2 == 0 {
			add = !updates[n-2].Add
		} else {
			add = r.Uint64()>>63 == 1
		}
		updates = append(updates, Update{at, add})
	}
}
