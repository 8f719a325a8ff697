package tracking

import (
	"context"
	"math"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// outcome is one point's under one seed.
type outcome struct {
	laneSum
	*siteSum
}

// outcomes are by point, then in the order of seeds.
type outcomes map[point][]outcome

// Run implements sim.Scenario. A job is all points of one number of active
// connections under one seed: they share its population.
func (j *Jet) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	if err := j.Check(); err != nil {
		return nil, err
	}
	seeds := c.SeedList()
	found := outcomes{}
	byActive := map[int][]point{}
	for _, p := range j.points() {
		found[p] = make([]outcome, len(seeds))
		byActive[p.active] = append(byActive[p.active], p)
	}
	actives := slices.Compact(slices.Sorted(slices.Values(j.Actives)))
	slices.Reverse(actives) // the longest first, so that the cores end together
	err := c.Each(ctx, len(actives)*len(seeds), func(ctx context.Context, i int) error {
		points, seed := byActive[actives[i/len(seeds)]], i%len(seeds)
		if len(points) == 0 {
			return nil
		}
		sums, err := j.play(ctx, points, seeds[seed])
		for n, p := range points {
			found[p][seed] = sums[n]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return j.result(found, seeds)
}

// siteKey is what points must share to share a site.
type siteKey struct {
	pool  poolOptions
	kills float64
}

// batch is how many events are drawn before each site plays them: what a site
// has of its connections then stays in the caches meanwhile.
const batch = 8192

// play runs points of one number of active connections, side by side over the
// same connections.
func (j *Jet) play(ctx context.Context, points []point, seed uint64) ([]outcome, error) {
	sums := make([]outcome, len(points))
	end := sim.Time(j.Seconds) * sim.Second
	var sites []*site
	byKey := map[siteKey]*site{}
	lanes := make([]*lane, len(points))
	for i, p := range points {
		key := siteKey{poolOptions{p.hash, j.Servers, p.row().Foresees(), p.horizon}, p.kills}
		s, ok := byKey[key]
		if !ok {
			var err error
			if s, err = newSite(j.siteOptions(key, seed)); err != nil {
				return sums, err
			}
			byKey[key] = s
			sites = append(sites, s)
		}
		lanes[i] = newLane(s, p, int(math.Round(p.ratio*float64(p.active))))
		s.lanes = append(s.lanes, lanes[i])
		sums[i].siteSum = &s.sum
	}
	people := newPopulation(points[0].active, j.Lifetimes.Distribution, end, seed)
	for events := people.next(make([]event, 0, batch)); len(events) > 0; events = people.next(events) {
		for _, s := range sites {
			if err := s.play(events); err != nil {
				return sums, err
			}
		}
		if err := ctx.Err(); err != nil {
			return sums, err
		}
	}
	for i, l := range lanes {
		if err := l.site.changeUntil(end); err != nil {
			return sums, err
		}
		sums[i].laneSum = l.sum
	}
	return sums, nil
}

func (j *Jet) siteOptions(key siteKey, seed uint64) siteOptions {
	return siteOptions{
		pool: key.pool, kills: key.kills, away: j.Downtimes.Distribution,
		warmUp: sim.Time(j.WarmUp) * sim.Second, random: j.Speak == SpeakRandom, seed: seed,
	}
}
