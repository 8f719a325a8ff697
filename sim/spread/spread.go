// Package spread is scenario `path-spread`: how evenly routers share out flows
// that nobody steers, by a hash and by CFLB's selectors (Detal et al., 2012,
// section 4.1.1, figures 6 and 7).
//
//	trace       flows and their packets: drawn, or a user's own
//	contenders  ways of choosing a next hop
//	uniform     is the choice of many flows even? χ², one router and four
//	deviation   how uneven packets are, second by second
//	radix       what a radix that is no power of two does to digits
//	result      the figures
//	checks      what the paper says of them
package spread

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Kinds is the scenario of this package.
var Kinds = []sim.Kind{{
	Name:  "path-spread",
	Short: "How evenly unsteered flows spread over equal next hops, by hash and by CFLB (CFLB Figs 6, 7)",
	Long: `Routers that read path selectors must share out everybody else's flows as a
hash would (CFLB, section 4.1.1). Two questions are asked of CRC16, MD5, and
CFLB with RC5, Skip32 and Fairlead's own permutation:

Are --packets flows, one packet each, shared out evenly? Their counts are held
against the uniform distribution (χ²), for every number of next hops, of one
router, and of the ways through four routers in a row: there a hash that is
the same everywhere leaves most ways empty.

How far is the load from even in each second of a trace of --packets packets,
in which a flow's packets go the same way? That depends on how much the largest
flows carry, by any method. The paper's trace (CAIDA 2008) cannot be passed on,
so flows are drawn, with sizes by Zipf's law, its exponent fitted to MD5's
deviation in the paper; --flows takes a flow file or a capture of yours
(fairlead sim workloads FILE shows what is in it).`,
	Example: `  fairlead sim path-spread
  fairlead sim path-spread --packets 1000000 --hops 2,3,4,8 --schemes md5,feistel
  fairlead sim path-spread --flows backbone.pcap --plot spread.svg`,
	Seeds: 1,
	New:   func() sim.Scenario { return New() },
}}

// Options of the scenario.
type Options struct {
	// Packets of the trace, and flows that are tested for evenness.
	Packets int
	// Mean is how many packets a flow of the trace has, in the mean.
	Mean int
	// Skew is the exponent of Zipf's law of flows' sizes.
	Skew float64
	// Span of the trace.
	Span time.Duration
	// Hops are the numbers of next hops that are tested for evenness.
	Hops []int
	// Radix of selectors.
	Radix int
	// Flows are recorded ones to use instead; nil: none.
	Flows workload.RecordFlag
	// Schemes are the ways of choosing.
	Schemes []string
}

// Limits of the options.
const (
	maxPackets = 1_000_000_000
	maxMean    = 10_000
	// maxHops keeps the ways through four routers at 65,536.
	maxHops = 16
	// routers in a row, as in the paper's figure 6b.
	routers = 4
)

// New has the paper's parameters: its radix is not said, and no matter
// according to it. Sizes of flows are ours; the skew is fitted so that MD5
// deviates as it does in the paper's figures 6a and 7a.
func New() *Options {
	o := &Options{
		Packets: 10_000_000,
		Mean:    12,
		Skew:    0.7,
		Span:    30 * time.Second,
		Radix:   16,
		Schemes: slices.Clone(schemeNames),
	}
	for n := 2; n <= maxHops; n++ {
		o.Hops = append(o.Hops, n)
	}
	return o
}

// Flags adds the options.
func (o *Options) Flags(f *sim.Flags) {
	f.Add("packets", &o.Packets, "packets of the trace, and flows that are tested for evenness")
	f.Add("mean", &o.Mean, "packets that a flow of the trace has in the mean")
	f.Add("skew", &o.Skew, "exponent of Zipf's law of flows' sizes; 0: all have the same")
	f.Add("span", &o.Span, "how long the trace lasts")
	f.Add("hops", &o.Hops, "`numbers` of next hops to test for evenness, comma-separated")
	f.Add("radix", &o.Radix, "radix of CFLB's selectors")
	f.Add("flows", &o.Flows, workload.FlowsUsage)
	f.Add("schemes", &o.Schemes, "ways of choosing, `comma-separated`")
}

// Check says which option is wrong.
func (o *Options) Check() error {
	switch {
	case o.Packets < 1000 || o.Packets > maxPackets:
		return fmt.Errorf("--packets %d: must be 1000 to %d", o.Packets, maxPackets)
	case o.Mean < 1 || o.Mean > maxMean || o.Mean > o.Packets/100:
		return fmt.Errorf("--mean %d: must be 1 to %d, and a hundredth of --packets (%d) at most", o.Mean, maxMean, o.Packets)
	case !(o.Skew >= 0 && o.Skew <= workload.MaxSkew):
		return fmt.Errorf("--skew %v: must be 0 to %d", o.Skew, workload.MaxSkew)
	case o.Span < time.Second || o.Span > time.Hour:
		return fmt.Errorf("--span %s: must be 1s to 1h", o.Span)
	case len(o.Hops) == 0:
		return fmt.Errorf("--hops: none is given; give one number of next hops or more, 2 to %d", maxHops)
	case len(o.Schemes) == 0:
		return fmt.Errorf("--schemes: none is given; there are %s", strings.Join(schemeNames, ", "))
	}
	if _, err := pathsel.New(selectorOf(string(pathsel.Feistel), o.Radix, 0)); err != nil {
		return fmt.Errorf("--radix %d: %w", o.Radix, err)
	}
	for i, n := range o.Hops {
		if n < 2 || n > maxHops {
			return fmt.Errorf("--hops %d: must be 2 to %d", n, maxHops)
		}
		if n > o.Radix {
			return fmt.Errorf("--hops %d: with --radix %d every digit names a hop, and the others get no traffic; take hops up to %d or a larger radix", n, o.Radix, o.Radix)
		}
		if slices.Contains(o.Hops[:i], n) {
			return fmt.Errorf("--hops %d: is given twice", n)
		}
	}
	for i, s := range o.Schemes {
		if !slices.Contains(schemeNames, s) {
			return fmt.Errorf("--schemes %q: must be one of %s", s, strings.Join(schemeNames, ", "))
		}
		if slices.Contains(o.Schemes[:i], s) {
			return fmt.Errorf("--schemes %q: is given twice", s)
		}
	}
	return nil
}

// found is what runs found, by scheme and seed.
type found struct {
	o        *Options
	seeds    []uint64
	uniform  [][]*uniform
	deviated [][]*deviations
}

// Run makes both experiments for every scheme and seed.
func (o *Options) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	slices.Sort(o.Hops)
	f := &found{o: o, seeds: c.SeedList()}
	f.uniform = make([][]*uniform, len(o.Schemes))
	f.deviated = make([][]*deviations, len(o.Schemes))
	for i := range o.Schemes {
		f.uniform[i] = make([]*uniform, len(f.seeds))
		f.deviated[i] = make([]*deviations, len(f.seeds))
	}
	// The long jobs first.
	jobs := len(o.Schemes) * len(f.seeds)
	err := c.Each(ctx, 2*jobs, func(ctx context.Context, i int) (err error) {
		scheme, seed := i%jobs/len(f.seeds), i%len(f.seeds)
		way, err := newContender(o.Schemes[scheme], o.Radix, f.seeds[seed])
		if err != nil {
			return err
		}
		if i < jobs {
			f.uniform[scheme][seed], err = o.spread(ctx, way, f.seeds[seed])
		} else {
			f.deviated[scheme][seed], err = o.deviate(ctx, way, f.seeds[seed])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if f.uniform[0][0].flows < leastExpected*uint64(o.Hops[0]) {
		return nil, sim.NothingToSee("path-spread", fmt.Sprintf("%s has %d flows", o.Flows.Name, f.uniform[0][0].flows),
			fmt.Sprintf("a test of %d next hops needs %d; record for longer", o.Hops[0], leastExpected*o.Hops[0]))
	}
	return f.result(), nil
}
