package datacentre

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/workload"
)

// site is what all VIPs of one seed share: their sizes, and the balancers.
type site struct {
	*Datacentre
	seed uint64
	end  sim.Time
	// size is how many servers each VIP has, the largest first; they sum up to
	// Servers.
	size []int
	// share is each VIP's of all connections: in proportion to its servers.
	share []float64
	eras  []era
}

// era is a time in which the balancers behind ECMP are the same.
type era struct {
	at sim.Time
	// live are the balancers that are there, ascending.
	live []uint16
	// left and came are those by which it differs from the era before.
	left, came []uint16
	// resilient is ECMP that moves only what must move; nil: modulo.
	resilient *chash.AnchorTable
}

func newSite(d *Datacentre, seed uint64) (*site, error) {
	s := &site{Datacentre: d, seed: seed, end: d.end(), size: sizes(d.Servers, d.VIPs, d.Skew)}
	for _, n := range s.size {
		s.share = append(s.share, float64(n)/float64(d.Servers))
	}
	return s, s.draw()
}

// sizes gives two servers to each VIP and the others in proportion to
// 1/rank^skew (Zipf), rounded such that all are given.
func sizes(servers, vips int, skew float64) []int {
	total := 0.0
	for r := range vips {
		total += math.Pow(float64(r+1), -skew)
	}
	size := make([]int, vips)
	upTo, given := 0.0, 0
	for r := range size {
		upTo += math.Pow(float64(r+1), -skew)
		next := int(math.Round(float64(servers-2*vips) * upTo / total))
		size[r] = 2 + next - given
		given = next
	}
	// Rounding may put one server more behind a smaller VIP than before it.
	slices.SortFunc(size, func(a, b int) int { return b - a })
	return size
}

// draw is when balancers leave, one after the other and all as often, at even
// distances, and come back after a downtime. Stream: "balancers".
func (s *site) draw() error {
	r := sim.Stream(s.seed, "balancers")
	order := r.Perm(s.Balancers)
	left, came := map[sim.Time][]uint16{}, map[sim.Time][]uint16{}
	back := make([]sim.Time, s.Balancers)
	for i := range s.BalancerChanges {
		at := sim.Time((float64(i) + r.Float64()) * float64(s.end) / float64(s.BalancerChanges))
		b := uint16(order[i%s.Balancers])
		away := workload.Downtime.Draw(r)
		if back[b] >= at {
			continue // it is away still
		}
		back[b] = at + away
		left[at] = append(left[at], b)
		came[back[b]] = append(came[back[b]], b)
	}
	times := slices.Collect(maps.Keys(left))
	for at := range came {
		if _, twice := left[at]; !twice && at < s.end {
			times = append(times, at)
		}
	}
	slices.Sort(times)
	here := make([]bool, s.Balancers)
	for b := range here {
		here[b] = true
	}
	if err := s.begin(here, era{}); err != nil {
		return err
	}
	for _, at := range times {
		if err := s.begin(here, era{at: at, left: left[at], came: came[at]}); err != nil {
			return err
		}
	}
	return nil
}

// begin adds an era.
func (s *site) begin(here []bool, e era) error {
	for _, b := range e.left {
		here[b] = false
	}
	for _, b := range e.came {
		here[b] = true
	}
	state := make([]chash.BucketState, len(here))
	for b, is := range here {
		state[b] = chash.Horizon
		if is {
			e.live = append(e.live, uint16(b))
			state[b] = chash.Working
		}
	}
	if len(e.live) == 0 {
		return fmt.Errorf("datacentre: at %.0f s none of %d balancers would be there; give more --balancers or fewer --balancer-changes",
			float64(e.at)/float64(sim.Second), s.Balancers)
	}
	if s.ECMP == pcc.Resilient {
		var err error
		if e.resilient, err = chash.NewAnchorTable(len(state), state); err != nil {
			return err
		}
	}
	s.eras = append(s.eras, e)
	return nil
}

// via is the balancer to which ECMP sends a connection. Switches hash with a
// secret of their own.
func (e *era) via(key uint64) uint16 {
	h := sim.SplitMix(key + 0x9e3779b97f4a7c15)
	if e.resilient != nil {
		slot, _, _ := e.resilient.Place(h)
		return uint16(slot)
	}
	return e.live[h%uint64(len(e.live))]
}

// heard is when a balancer goes by a VIP's version of the pool, at the
// earliest: up to Stale after the change.
func (s *site) heard(vip, version, balancer int, at sim.Time) sim.Time {
	h := sim.SplitMix(sim.SplitMix(s.seed) + uint64(vip)<<40 + uint64(version)<<16 + uint64(balancer))
	return at + sim.Time(float64(h>>11)/(1<<53)*float64(s.Stale))
}
