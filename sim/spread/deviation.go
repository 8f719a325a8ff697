package spread

import (
	"context"
	"math"

	"github.com/fairlead/fairlead/sim"
)

// The paper's figures 6a, 6b and 7.
const (
	pairHops  = 2 // of figure 6
	quadHops  = 4 // of figure 7
	pairEvery = sim.Second
	rowEvery  = sim.Second / 2
	quadEvery = sim.Second
)

// deviations count packets in time.
type deviations struct {
	packets, flows int64
	pair           [][pairHops]uint32 // each second: by hop of one router of two
	row            [][1 << routers]uint32
	quad           [][quadHops]uint32
}

// deviate goes through the trace. What lies in the last, broken interval is
// left out.
func (o *Options) deviate(ctx context.Context, way contender, seed uint64) (*deviations, error) {
	span := o.span()
	d := &deviations{
		pair: make([][pairHops]uint32, span/pairEvery+1),
		row:  make([][1 << routers]uint32, span/rowEvery+1),
		quad: make([][quadHops]uint32, span/quadEvery+1),
	}
	for b := range o.trace(seed) {
		way.read(&b.flow)
		pair, quad, at := way.hop(0, pairHops), way.hop(0, quadHops), 0
		for router := range routers {
			at = at*pairHops + way.hop(router, pairHops)
		}
		b.each(span, func(now sim.Time) {
			d.pair[now/pairEvery][pair]++
			d.row[now/rowEvery][at]++
			d.quad[now/quadEvery][quad]++
		})
		d.packets += int64(b.packets)
		if d.flows++; d.flows%(1<<12) == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			sim.Done(ctx, float64(d.packets)/float64(o.Packets))
		}
	}
	if n := len(d.pair) - 1; n > 0 {
		d.pair, d.quad = d.pair[:n], d.quad[:n]
	}
	if n := len(d.row) - 1; n > 0 {
		d.row = d.row[:n]
	}
	return d, nil
}

// furthest is how far the share that is furthest from even is from it, in
// percentage points; NaN if there was no packet.
func furthest(counts []uint32) float64 {
	total := 0.0
	for _, n := range counts {
		total += float64(n)
	}
	even, most := 1/float64(len(counts)), 0.0
	for _, n := range counts {
		most = max(most, math.Abs(float64(n)/total-even))
	}
	if total == 0 {
		return math.NaN()
	}
	return 100 * most
}

// pairs are figure 6a's deviations, rows figure 6b's; without intervals that
// had no packet.
func (d *deviations) pairs() (all []float64) {
	for i := range d.pair {
		all = appendNumber(all, furthest(d.pair[i][:]))
	}
	return all
}

func (d *deviations) rows() (all []float64) {
	for i := range d.row {
		all = appendNumber(all, furthest(d.row[i][:]))
	}
	return all
}

func appendNumber(to []float64, x float64) []float64 {
	if math.IsNaN(x) {
		return to
	}
	return append(to, x)
}

// share is a hop's part of a second's packets, of four, in per cent.
func (d *deviations) share(second, hop int) float64 {
	total := 0.0
	for _, n := range d.quad[second] {
		total += float64(n)
	}
	return 100 * float64(d.quad[second][hop]) / total
}

// shares are the least and the greatest of all.
func (d *deviations) shares() (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for second := range d.quad {
		for hop := range quadHops {
			if x := d.share(second, hop); !math.IsNaN(x) {
				least, most = min(least, x), max(most, x)
			}
		}
	}
	return least, most
}
