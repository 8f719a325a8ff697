// Package sevenpaths is the testbed of CFLB's paper (Detal et al., section
// 4.2.2) in network namespaces: a client and a server of Multipath TCP behind
// two routers with seven links of limited rate between them; then the same with a
// server that has two such links.
//
//	                 ┌── 7 links ──┐                    ┌── 6 links ──┐
//	client ── r1 ────┤             ├── r2 ── server     r1            r2
//	                 └─────────────┘                     └── server ──┘
//
// The routers are real (`fairlead router`), so is the daemon at the client
// (`fairlead mptcp`), and the bytes are counted on the links and by the server.
package sevenpaths

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/fabrics"
)

// Paths is the number of paths between client and server, in both topologies.
const Paths = 7

// Bounds of the rate of a link, in bit/s: below, a run is mostly its
// beginning; above, two processors do not keep up.
const (
	LeastRate, MostRate, DefaultRate = 1e6, 200e6, 20e6
	DefaultRuns, MostRuns            = 50, 1000
)

// Options of a run.
type Options struct {
	Runs int   `json:"runs"` // with seven subflows, with chosen and with random ports, 1 to MostRuns
	Rate int64 `json:"rate"` // of a link, bit/s
	// Seed of the fabric's keys and of the connections' ports.
	Seed uint64 `json:"seed"`
	// Program is the fairlead binary that runs in the machines.
	Program string `json:"-"`
	// Watch, if set, is told what happens.
	Watch func(string) `json:"-"`
}

// What has to come out, in the figures: goodput in units of what TCP
// gets over one link.
const (
	leastOfSeven = 6.3
	leastOfTwo   = 1.9
)

// A point of a curve is run repeats times.
const repeats = 2

// Check says whether the numbers are within their bounds.
func (o *Options) Check() error {
	switch {
	case o.Runs < 1 || o.Runs > MostRuns:
		return fmt.Errorf("--runs %d: must be 1 to %d", o.Runs, MostRuns)
	case o.Rate < LeastRate || o.Rate > MostRate:
		return fmt.Errorf("--rate %s: must be %s to %s, such as 20Mbit", topology.FormatRate(o.Rate), topology.FormatRate(LeastRate), topology.FormatRate(MostRate))
	}
	return nil
}

// fill replaces what is not given by its default.
func (o *Options) fill() error {
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	return o.Check()
}

// Run runs everything, with the default 50 runs in less than six minutes.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	r := &Result{Head: experiment.Begin("seven-paths", o.Seed), Rate: o.Rate, ExpectedAllAtRandom: allAtRandom(Paths)}
	if err := o.part(ctx, r, sevenLinks, o.sevenPoints()); err != nil {
		return nil, err
	}
	if err := o.part(ctx, r, twoLinks, twoPoints); err != nil {
		return nil, err
	}
	r.judge()
	r.End()
	return r, nil
}

// allAtRandom is the probability that n subflows at random use all n paths.
func allAtRandom(n int) float64 {
	p := 1.0
	for i := range n {
		p *= float64(i+1) / float64(n)
	}
	return p
}

// point is one point of a curve.
type point struct {
	subflows int
	random   bool
	runs     int
}

// sevenPoints are 1 to 7 subflows with chosen and with random ports.
func (o Options) sevenPoints() (points []point) {
	for _, random := range []bool{false, true} {
		for n := 1; n <= Paths; n++ {
			p := point{n, random, min(repeats, o.Runs)}
			if n == Paths {
				p.runs = o.Runs
			}
			points = append(points, p)
		}
	}
	return points
}

// twoPoints are few subflows to the server with two links, and with random
// ports as many as there may be.
var twoPoints = []point{{1, false, repeats}, {2, false, 3 * repeats}, {2, true, 3 * repeats}, {4, true, repeats}, {mptcp.MaxSubflows, true, repeats}}

// The testbeds' names.
const nameOfSeven, nameOfTwo = "seven-links", "two-links"

// testbed is a topology with the links that are counted.
type testbed struct {
	name    string
	fabric  *topology.Fabric
	counted []int
}

// sevenLinks is the first testbed.
func sevenLinks(rate int64) testbed {
	b := begin(nameOfSeven, rate, Paths)
	b.join(2, 3, -1, 1, 0) // r2 - server
	return b
}

// twoLinks is the second: the server hangs at both routers, as far away by
// the one as by the other.
func twoLinks(rate int64) testbed {
	b := begin(nameOfTwo, rate, Paths-1)
	b.counted = nil
	b.join(2, 3, -1, 1, rate)
	b.join(1, 3, Paths-1, 2, rate) // r1 - server
	last := len(b.fabric.Links)
	b.counted = []int{last - 2, last - 1}
	return b
}

// begin is the client, the routers and so many links between them.
func begin(name string, rate int64, between int) testbed {
	b := testbed{name: name, fabric: &topology.Fabric{
		Selector: pathsel.Config{Permutation: pathsel.Feistel, Radix: 8, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
		Nodes:    []topology.Node{{Name: "client", Host: true}, {Name: "r1"}, {Name: "r2"}, {Name: "server", Host: true}},
	}}
	b.join(0, 1, -1, 1, 0)
	for i := range between {
		b.counted = append(b.counted, len(b.fabric.Links))
		b.join(1, 2, i, 1, rate)
		b.fabric.Links[len(b.fabric.Links)-1].Ends[1].Port = i
	}
	return b
}

// join adds a link; port is its number at the first node.
func (b *testbed) join(from, to, port, cost int, rate int64) {
	b.fabric.Links = append(b.fabric.Links, topology.Link{
		Ends: [2]topology.End{{Node: from, Port: port}, {Node: to, Port: -1}}, Cost: cost, Capacity: rate,
	})
}

// part is one testbed's life.
func (o Options) part(ctx context.Context, r *Result, build func(int64) testbed, points []point) (err error) {
	b := build(o.Rate)
	o.Watch("building " + b.name)
	// Each testbed has a name of its own: the first one's remains cannot be in
	// the second one's way.
	random := experiment.Random(o.Seed)
	_, _ = random.Read(b.fabric.Selector.Key[:]) // it never fails
	f, err := fabrics.Up(ctx, b.fabric, fabrics.Options{Name: fmt.Sprint(b.name[:3], os.Getpid()), Program: o.Program})
	if err != nil {
		return err
	}
	defer func() {
		if down := f.Down(); err == nil {
			err = down
		}
	}()
	t, err := newTraffic(ctx, f, b, o.Program, experiment.Ports(random))
	if err != nil {
		return err
	}
	defer t.close()
	one, err := t.baseline(ctx)
	if err != nil {
		return err
	}
	o.Watch(fmt.Sprintf("%s: TCP over one link: %.2f Mbit/s", b.name, one/1e6))
	r.OneLink = append(r.OneLink, Baseline{b.name, one})
	for _, p := range points {
		c := Point{Testbed: b.name, Ports: "chosen", Subflows: p.subflows, Links: len(b.counted)}
		if p.random {
			c.Ports = "random"
		}
		for range p.runs {
			run, err := t.run(ctx, p)
			if err != nil {
				return fmt.Errorf("%s, %s ports, %d subflows: %w", b.name, c.Ports, p.subflows, err)
			}
			run.Ratio = run.Goodput / one
			c.Connections = append(c.Connections, run)
		}
		c.sum()
		o.Watch(c.line())
		r.Runs = append(r.Runs, c)
	}
	return nil
}

// median of some numbers.
func median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
