package threshold

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// ordered is the lowest threshold, in percent, at which rules of return are
// compared: below, other rules than Home move nearly everything all the time,
// which takes the product's minutes to plan.
const ordered = 20

// runsAway is the lowest threshold, in percent, at which broken connections
// are ended: at lower ones most end.
const runsAway = 10

// way is one way to balance: in figures, a curve.
type way struct {
	policy   string // of Cheetah; empty: buckets and a threshold
	rule     Return
	interval time.Duration
	// steady: the system begins in the steady state, not empty.
	steady bool
	gone   bool // see bucketed.gone
}

// chosenBy is Cheetah with a policy; it needs no threshold.
func chosenBy(name string) way { return way{policy: name} }

// usual is as most figures have it.
func (o *Options) usual() way { return way{rule: Home, interval: o.Every} }

// The other ways differ from it in one thing.
func (o *Options) judged(interval time.Duration) way { return way{rule: Home, interval: interval} }
func (o *Options) returning(r Return) way            { return way{rule: r, interval: o.Every} }
func (o *Options) steady() way                       { return way{rule: Home, interval: o.Every, steady: true} }
func (o *Options) ended() way                        { return way{rule: Home, interval: o.Every, gone: true} }

// policies of Cheetah that need no threshold.
var policies = []string{policy.RR, policy.P2C, policy.LeastConn}

// never is a threshold that nobody exceeds.
var never = math.Inf(1)

// cell is a way with a threshold in percent.
type cell struct {
	way
	percent float64
}

// outcome of one run.
type outcome struct {
	counts
	connections int64
	// imbalance is the mean, most the greatest, in percent.
	imbalance, most float64
}

// broken is the share of a scheme's connections that broke, in percent.
func broken(scheme int) func(outcome) float64 {
	return func(r outcome) float64 { return 100 * float64(r.Broken[scheme]) / float64(max(1, r.connections)) }
}

// outcomes by cell, one a seed.
type outcomes map[cell][]outcome

// cells are all runs of one seed, each once, long ones first.
func (o *Options) cells() (all []cell) {
	known := map[cell]bool{}
	add := func(w way, percent float64) {
		if c := (cell{w, percent}); !known[c] {
			known[c] = true
			all = append(all, c)
		}
	}
	for _, percent := range o.Thresholds {
		add(o.usual(), percent)
		for _, i := range o.Intervals {
			add(o.judged(i), percent)
		}
		add(o.steady(), percent)
		if percent >= runsAway {
			add(o.ended(), percent)
		}
		if percent >= ordered {
			for _, r := range Returns() {
				add(o.returning(r), percent)
			}
		}
	}
	add(o.usual(), never)
	for _, p := range policies {
		add(chosenBy(p), never)
	}
	return all
}

// sweep runs all cells for all seeds.
func (o *Options) sweep(ctx context.Context, c sim.Common) (outcomes, error) {
	cells, seeds := o.cells(), c.SeedList()
	results := make(outcomes, len(cells))
	for _, x := range cells {
		results[x] = make([]outcome, len(seeds))
	}
	loads := make([]*seedLoad, len(seeds))
	for i, seed := range seeds {
		loads[i] = o.loadOf(seed, len(cells))
	}
	return results, c.Each(ctx, len(cells)*len(seeds), func(ctx context.Context, i int) (err error) {
		x, s := cells[i%len(cells)], i/len(cells)
		results[x][s], err = o.run(ctx, x, loads[s].timeline(x.steady), seeds[s])
		loads[s].done()
		return err
	})
}

// seedLoad is a seed's timelines, made when they are needed and dropped after
// their last run: many seeds are no more than two at a time.
type seedLoad struct {
	empty, steady func() *timeline
	left          atomic.Int32
}

func (o *Options) loadOf(seed uint64, runs int) *seedLoad {
	from := func(begin func(*workload.Poisson) *workload.Poisson) func() *timeline {
		return sync.OnceValue(func() *timeline {
			arrivals := workload.NewPoisson(seed, float64(o.Active), o.Lifetimes.Distribution)
			return newTimeline(begin(arrivals), sim.Time(o.Seconds)*sim.Second)
		})
	}
	l := &seedLoad{empty: from((*workload.Poisson).FromEmpty), steady: from(func(p *workload.Poisson) *workload.Poisson { return p })}
	l.left.Store(int32(runs))
	return l
}

func (l *seedLoad) timeline(steady bool) *timeline {
	if steady {
		return l.steady()
	}
	return l.empty()
}

func (l *seedLoad) done() {
	if l.left.Add(-1) == 0 {
		l.empty, l.steady = nil, nil
	}
}

// run is one way with one threshold on one load.
func (o *Options) run(ctx context.Context, x cell, t *timeline, seed uint64) (outcome, error) {
	s := newServers(o.Servers, x.percent/100)
	var c contender
	var n *counts
	if x.policy != "" {
		p := newChosen(len(t.conns), x.policy, seed, s)
		c, n = p, &p.counts
	} else {
		returning := sim.Stream(seed, "returning buckets")
		b := newBucketed(len(t.conns), s, newTable(o.Servers*o.Buckets, o.Servers, x.rule, returning), newCookies(len(t.conns), seed), sim.Time(x.interval))
		b.gone = x.gone
		c, n = b, &b.counts
	}
	err := t.play(ctx, c, sampleEvery)
	return outcome{*n, int64(len(t.conns)), s.imbalance(), s.most}, err
}
