package pcc

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// DIPUpdates is scenario dip-updates: figure 2a of Cheetah (NSDI'20).
type DIPUpdates struct {
	Base
	// Rates of updates, a minute.
	Rates []float64
	// Balancers of full-ct-ecmp, and how many of them leave or join a minute.
	// All other schemes have one that never changes.
	Balancers     int
	BalancerChurn float64
}

// DIPUpdatesKind is its entry in the list of all.
var DIPUpdatesKind = sim.Kind{
	Name:  "dip-updates",
	Short: "Broken connections against updates of the pool a minute (Cheetah Fig 2a)",
	Long: `Servers are removed (they drain) and added, half and half, while connections
live: which schemes keep each connection on its server? All see the same
connections and the same updates. One balancer that knows of each update at
once stands before the servers; only full-ct-ecmp has several that come and go
behind routers that hash modulo their number.`,
	Example: `  fairlead sim dip-updates
  fairlead sim dip-updates --rates 10,80 --active 200000 --seeds 3 --plot fig2a.svg
  fairlead sim dip-updates --schemes hash,jet,cheetah --lifetimes hadoop`,
	Seeds: 3,
	New: func() sim.Scenario {
		return &DIPUpdates{
			Base:      NewBase(Hash, "ring", "table-hrw", "maglev", "anchor", AnchorTable, FullCTECMP, Faild1, Beamer1, Beamer1Any, Beamer3, JET, FullCT, Cheetah),
			Rates:     []float64{1.5, 5, 10, 20, 40, 60, 80},
			Balancers: 10, BalancerChurn: 1,
		}
	},
}

// Flags adds the options.
func (o *DIPUpdates) Flags(f *sim.Flags) {
	o.Base.Flags(f)
	f.Add("rates", &o.Rates, "updates of the pool a minute")
	f.Add("balancers", &o.Balancers, "balancers of full-ct-ecmp")
	f.Add("balancer-churn", &o.BalancerChurn, "balancers of full-ct-ecmp that leave or join a minute")
}

// Check says which option is wrong.
func (o *DIPUpdates) Check() error {
	if err := checkRates(o.Rates); err != nil {
		return err
	}
	if err := checkBalancers(o.Balancers, o.BalancerChurn); err != nil {
		return err
	}
	return o.Base.Check()
}

// maxBalancers bounds a front.
const maxBalancers = 1000

func checkBalancers(balancers int, churn float64) error {
	if balancers < 1 || balancers > maxBalancers {
		return fmt.Errorf("--balancers %d: must be 1 to %d", balancers, maxBalancers)
	}
	if err := (workload.Updates{PerMinute: churn}).Check(); err != nil {
		return fmt.Errorf("--balancer-churn %v: must be 0 to %d a minute", churn, workload.MaxPerMinute)
	}
	return nil
}

// Run plays all rates under all seeds.
func (o *DIPUpdates) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	rates := slices.Sorted(slices.Values(o.Rates))
	tallies := make([]*Tally, len(rates)*c.Seeds) // by rate, then seed
	err := c.Each(ctx, len(tallies), func(ctx context.Context, i int) (err error) {
		i = len(tallies) - 1 - i // the longest ones first
		r := o.run(c.SeedList()[i%c.Seeds], workload.Updates{PerMinute: rates[i/c.Seeds]})
		if r.Contenders, err = o.contenders(c.SeedList()[i%c.Seeds]); err == nil {
			tallies[i], err = r.Play(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if nobodyThrough(tallies) {
		return nil, sim.NothingToSee("dip-updates", "no connection lived through an update of the pool", "make --seconds or --rates greater")
	}
	return o.result(c, rates, tallies), nil
}

// quiet are the rates at which no connection lived through an update, so that
// nothing could have broken.
func quiet(rates []float64, tallies []*Tally) (list []float64) {
	seeds := len(tallies) / len(rates)
	for i, rate := range rates {
		if nobodyThrough(tallies[i*seeds : (i+1)*seeds]) {
			list = append(list, rate)
		}
	}
	return list
}

// contenders are all schemes, and the balancers of full-ct-ecmp.
func (o *DIPUpdates) contenders(seed uint64) ([]Contender, error) {
	one := One()
	churn := workload.Updates{PerMinute: o.BalancerChurn}.Draw(sim.Stream(seed, "balancer churn"), o.end())
	several, err := NewFront(seed, FrontOptions{Balancers: o.Balancers, ECMP: Modulo, Churn: churn})
	if err != nil {
		return nil, err
	}
	contenders := make([]Contender, len(o.Schemes))
	for i, name := range o.Schemes {
		contenders[i] = Contender{Name: name, Front: one}
		if name == FullCTECMP {
			contenders[i].Front = several
		}
		if contenders[i].Scheme, err = New(name, o.setup(seed)); err != nil {
			return nil, err
		}
	}
	return contenders, nil
}

// curve is a scheme's broken share by rate.
func (o *DIPUpdates) curve(scheme int, rates []float64, tallies []*Tally) sim.Series {
	s := sim.Series{Name: o.Schemes[scheme], By: sim.Ours}
	seeds := len(tallies) / len(rates)
	for i, rate := range rates {
		if slices.Contains(quiet(rates, tallies), rate) {
			continue
		}
		s.Points = append(s.Points, sim.Point{X: rate, Y: shares(tallies[i*seeds:(i+1)*seeds], scheme)})
	}
	return s
}

// shares is the broken share of a contender over runs.
func shares(tallies []*Tally, contender int) sim.Stat {
	return sim.StatOf(tallies, func(t *Tally) float64 { return t.Share(contender) })
}

func (o *DIPUpdates) result(c sim.Common, rates []float64, tallies []*Tally) *sim.Result {
	figure := sim.Figure{
		Name: "broken", Title: "broken connections against updates of the pool",
		X: sim.Axis{Label: "updates", Unit: "1/min", Decimals: 1},
		Y: sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 4},
		Note: "A server that is removed drains. full-ct-ecmp is the only one whose balancers change. " +
			"beamer-1-any is beamer-1 whose buckets are moved as Faild does, any of a server's, instead of those that moved longest ago.",
	}
	if none := quiet(rates, tallies); len(none) > 0 {
		figure.Note += fmt.Sprintf(" At %v updates a minute no connection lived through one: nothing is drawn.", none)
	}
	for i := range o.Schemes {
		figure.Series = append(figure.Series, o.curve(i, rates, tallies))
	}
	for _, name := range []string{Faild1, Beamer1} { // one line in the paper, "almost 1%"
		if slices.Contains(o.Schemes, name) && slices.Contains(rates, 80) && o.isPaper() {
			figure.Series = append(figure.Series, sim.Series{Name: name, By: sim.ByPaper, Points: []sim.Point{{X: 80, Y: sim.Value(1)}}})
		}
	}
	return &sim.Result{
		Scenario: "dip-updates", Source: "Cheetah (NSDI'20), figure 2a", Machine: sim.ThisMachine(), Seeds: c.SeedList(),
		Parameters: append(o.parameters(),
			sim.Parameter{Name: "balancers of full-ct-ecmp", Value: fmt.Sprintf("%d behind modulo ECMP, %s leave or join a minute", o.Balancers, strconv.FormatFloat(o.BalancerChurn, 'g', -1, 64))}),
		Samples: samples(tallies),
		Figures: []sim.Figure{figure},
		Checks:  o.checks(figure, tallies),
	}
}
