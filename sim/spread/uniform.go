package spread

import (
	"context"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/fairlead/fairlead/sim"
)

// leastExpected flows must be due to each cell, as usual, for χ² to have its
// distribution.
const leastExpected = 5

// uniform counts where flows go: by number of next hops, at the first router,
// and through all of them.
type uniform struct {
	flows uint64
	one   map[int][]uint32 // by hop
	row   map[int][]uint32 // by the way: the hops as digits
}

// spread counts all flows.
func (o *Options) spread(ctx context.Context, way contender, seed uint64) (*uniform, error) {
	u := &uniform{one: map[int][]uint32{}, row: map[int][]uint32{}}
	type cells struct {
		n        int
		one, row []uint32
	}
	var all []cells
	for _, n := range o.Hops {
		c := cells{n, make([]uint32, n), make([]uint32, power(n, routers))}
		u.one[n], u.row[n] = c.one, c.row
		all = append(all, c)
	}
	for f := range o.flows(seed) {
		way.read(&f)
		for _, c := range all {
			at := 0
			for router := range routers {
				at = at*c.n + way.hop(router, c.n)
			}
			c.row[at]++
			c.one[at/power(c.n, routers-1)]++
		}
		if u.flows++; u.flows%(1<<16) == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			sim.Done(ctx, float64(u.flows)/float64(o.Packets))
		}
	}
	return u, nil
}

func power(n, exponent int) int {
	p := 1
	for range exponent {
		p *= n
	}
	return p
}

// chi2 is χ² of counts that ought to be equal, divided by its degrees of
// freedom, and how probable it is that chance alone makes it so large. NaN if
// there are too few flows to tell.
func chi2(counts []uint32) (reduced, p float64) {
	total := 0.0
	for _, n := range counts {
		total += float64(n)
	}
	want := total / float64(len(counts))
	if want < leastExpected {
		return math.NaN(), math.NaN()
	}
	sum := 0.0
	for _, n := range counts {
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	freedom := float64(len(counts) - 1)
	return sum / freedom, distuv.ChiSquared{K: freedom}.Survival(sum)
}
