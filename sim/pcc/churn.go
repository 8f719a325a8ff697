package pcc

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// BalancerChurn is scenario balancer-churn: no paper has it.
type BalancerChurn struct {
	Base
	// Updates of the pool a minute.
	Updates   float64
	Balancers int
	// Churns are how many balancers leave or join a minute, Stales the longest
	// delays by which balancers hear of an update, Floods SYNs a second: each is
	// varied alone, the others are Churn, Stale and 0 then.
	Churns []float64
	Churn  float64
	Stales []time.Duration
	Stale  time.Duration
	Floods []float64
	// FloodEntries are the flow tables' entries for each connection, where
	// there are floods.
	FloodEntries float64
}

// BalancerChurnKind is its entry in the list of all.
var BalancerChurnKind = sim.Kind{
	Name:  "balancer-churn",
	Short: "Balancers that join, leave, disagree for a while and are flooded: all schemes at once",
	Long: `Several balancers stand behind routers that spread connections over them by
ECMP. While the pool of servers is updated, balancers leave and join (routers
reshuffle connections: modulo, or resilient), and each hears of an update with a
delay of its own, so that they disagree for a while. One of three things is
varied, the others stay: how many balancers leave or join a minute, how stale
they may be, and a flood of SYNs on flow tables of limited size.`,
	Example: `  fairlead sim balancer-churn
  fairlead sim balancer-churn --balancers 50 --stales 0s,5s,30s --seeds 5
  fairlead sim balancer-churn --schemes full-ct-ecmp,jet,cheetah --plot churn.svg`,
	Seeds: 3,
	New: func() sim.Scenario {
		o := &BalancerChurn{
			Base:    NewBase(Hash, "ring", "table-hrw", "maglev", "anchor", AnchorTable, FullCTECMP, JET, JETTableHRW, Faild1, Beamer1, Beamer3, Cheetah),
			Updates: 20, Balancers: 16,
			Churns: []float64{0, 1, 3, 10}, Churn: 3,
			Stales: []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second}, Stale: 2 * time.Second,
			Floods: []float64{0, 1e4, 1e5, 1e6}, FloodEntries: 4,
		}
		o.Seconds, o.Active = 120, 30_000
		return o
	},
}

// Flags adds the options.
func (o *BalancerChurn) Flags(f *sim.Flags) {
	o.Base.Flags(f)
	f.Add("updates", &o.Updates, "updates of the pool a minute")
	f.Add("balancers", &o.Balancers, "balancers at the start")
	f.Add("churns", &o.Churns, "balancers that leave or join a minute, varied")
	f.Add("balancer-churn", &o.Churn, "balancers that leave or join a minute, where something else is varied")
	f.Add("stales", &o.Stales, "longest delays by which balancers hear of an update, varied")
	f.Add("stale", &o.Stale, "longest delay by which balancers hear of an update, where something else is varied")
	f.Add("floods", &o.Floods, "SYNs a second of a flood, varied; elsewhere there is none")
	f.Add("flood-entries", &o.FloodEntries, "--entries where floods are varied: tables that a flood can fill")
}

// maxStale bounds a balancer's delay.
const maxStale = time.Hour

// Check says which option is wrong.
func (o *BalancerChurn) Check() error {
	if err := (workload.Updates{PerMinute: o.Updates}).Check(); err != nil || o.Updates == 0 {
		return fmt.Errorf("--updates %v: must be above 0, %d a minute at most", o.Updates, workload.MaxPerMinute)
	}
	if err := checkBalancers(o.Balancers, o.Churn); err != nil {
		return err
	}
	if err := cmp.Or(twice("churns", o.Churns), twice("stales", o.Stales), twice("floods", o.Floods)); err != nil {
		return err
	}
	for _, churn := range o.Churns {
		if err := (workload.Updates{PerMinute: churn}).Check(); err != nil {
			return fmt.Errorf("--churns %v: must be 0 to %d a minute", churn, workload.MaxPerMinute)
		}
	}
	for _, stale := range o.Stales {
		if stale < 0 || stale > maxStale {
			return fmt.Errorf("--stales %v: must be 0s to %v", stale, maxStale)
		}
	}
	if o.Stale < 0 || o.Stale > maxStale {
		return fmt.Errorf("--stale %v: must be 0s to %v", o.Stale, maxStale)
	}
	for _, flood := range o.Floods {
		if err := (workload.Flood{PerSecond: flood}).Check(); err != nil {
			return fmt.Errorf("--floods: %w", err)
		}
	}
	if !(o.FloodEntries > 0 && o.FloodEntries <= maxEntries) {
		return fmt.Errorf("--flood-entries %v: must be above 0, %d at most", o.FloodEntries, maxEntries)
	}
	if len(o.Churns)+len(o.Stales)+len(o.Floods) == 0 {
		return fmt.Errorf("--churns, --stales, --floods: one of them must name something to vary")
	}
	return o.Base.Check()
}

// place is one point of the sweeps.
type place struct {
	ecmp  ECMP
	churn float64
	stale sim.Time
	flood float64
	// small: tables have FloodEntries.
	small bool
}

// sweep is a figure: places, and where they stand on its X axis.
type sweep struct {
	figure  sim.Figure
	schemes []string
	x       []float64
	places  []place
}

// sweeps are all figures. Places that several share are played once.
func (o *BalancerChurn) sweeps() []sweep {
	centre := place{ecmp: Modulo, churn: o.Churn, stale: sim.Time(o.Stale)}
	y := sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 4}
	var all []sweep
	for _, ecmp := range ECMPs() {
		s := sweep{schemes: o.Schemes, figure: sim.Figure{
			Name: "churn-" + string(ecmp), Title: fmt.Sprintf("balancers that leave or join, %s ECMP, stale up to %v", ecmp, o.Stale),
			X: sim.Axis{Label: "balancers that leave or join", Unit: "1/min", Decimals: 1}, Y: y,
		}}
		for _, churn := range o.Churns {
			p := centre
			p.ecmp, p.churn = ecmp, churn
			s.x, s.places = append(s.x, churn), append(s.places, p)
		}
		all = append(all, s)
	}
	s := sweep{schemes: o.Schemes, figure: sim.Figure{
		Name: "stale", Title: fmt.Sprintf("balancers that disagree, modulo ECMP, %g leave or join a minute", o.Churn),
		X: sim.Axis{Label: "longest delay of an update", Unit: "s", Decimals: 1}, Y: y,
	}}
	for _, stale := range o.Stales {
		p := centre
		p.stale = sim.Time(stale)
		s.x, s.places = append(s.x, stale.Seconds()), append(s.places, p)
	}
	all = append(all, s)
	s = sweep{schemes: o.flooded(), figure: sim.Figure{
		Name: "flood", Title: "a flood of SYNs; balancers neither change nor disagree",
		X: sim.Axis{Label: "SYNs", Unit: "1/s", Log: true}, Y: y,
		Note: fmt.Sprintf("Flow tables have %g entries for each connection that they are to hold; each connection sends a packet a second.", o.FloodEntries),
	}}
	for _, flood := range o.Floods {
		s.x, s.places = append(s.x, flood), append(s.places, place{ecmp: Modulo, flood: flood, small: true})
	}
	return slices.DeleteFunc(append(all, s), func(s sweep) bool { return len(s.places) == 0 || len(s.schemes) == 0 })
}

// flooded are the schemes that a flood is shown for: those with state at
// balancers, what they come down to without any, and two that need none.
func (o *BalancerChurn) flooded() (names []string) {
	for _, name := range o.Schemes {
		if slices.Contains([]string{AnchorTable, FullCT, FullCTECMP, JET, Beamer1, Cheetah}, name) {
			names = append(names, name)
		}
	}
	return names
}

// Run plays all places under all seeds.
func (o *BalancerChurn) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	sweeps := o.sweeps()
	var places []place
	for _, s := range sweeps {
		for _, p := range s.places {
			if !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}
	tallies := make([]*Tally, len(places)*c.Seeds) // by place, then seed
	err := c.Each(ctx, len(tallies), func(ctx context.Context, i int) (err error) {
		tallies[i], err = o.play(ctx, places[i/c.Seeds], c.SeedList()[i%c.Seeds])
		return err
	})
	if err != nil {
		return nil, err
	}
	if nobodyThrough(tallies) {
		return nil, sim.NothingToSee("balancer-churn", "no connection lived through an update of the pool", "make --seconds or --updates greater")
	}
	at := func(p place) []*Tally {
		i := slices.Index(places, p)
		return tallies[i*c.Seeds : (i+1)*c.Seeds]
	}
	return o.result(c, sweeps, tallies, at), nil
}

// play plays all schemes at one place under one seed. All stand behind one
// front.
func (o *BalancerChurn) play(ctx context.Context, p place, seed uint64) (*Tally, error) {
	r := o.run(seed, workload.Updates{PerMinute: o.Updates})
	churn := workload.Updates{PerMinute: p.churn}.Draw(sim.Stream(seed, "balancer churn"), o.end())
	front, err := NewFront(seed, FrontOptions{Balancers: o.Balancers, ECMP: p.ecmp, Stale: p.stale, Churn: churn})
	if err != nil {
		return nil, err
	}
	setup := o.setup(seed)
	schemes := o.Schemes
	if p.small {
		schemes = o.flooded()
		setup.Entries, setup.Flood = o.FloodEntries, workload.Flood{PerSecond: p.flood}
		r.Silence = sim.Second
	}
	for _, name := range schemes {
		scheme, err := New(name, setup)
		if err != nil {
			return nil, err
		}
		r.Contenders = append(r.Contenders, Contender{name, scheme, front})
	}
	return r.Play(ctx)
}

func (o *BalancerChurn) result(c sim.Common, sweeps []sweep, tallies []*Tally, at func(place) []*Tally) *sim.Result {
	r := &sim.Result{
		Scenario: "balancer-churn", Machine: sim.ThisMachine(), Seeds: c.SeedList(),
		Parameters: append(o.parameters(),
			sim.Parameter{Name: "updates of the pool", Value: fmt.Sprintf("%g a minute", o.Updates)},
			sim.Parameter{Name: "balancers", Value: fmt.Sprint(o.Balancers)},
			sim.Parameter{Name: "flow table's entries a connection under floods", Value: fmt.Sprint(o.FloodEntries)}),
		Samples: samples(tallies),
	}
	for _, s := range sweeps {
		for i, name := range s.schemes {
			series := sim.Series{Name: name, By: sim.Ours}
			for k, p := range s.places {
				series.Points = append(series.Points, sim.Point{X: s.x[k], Y: shares(at(p), i)})
			}
			s.figure.Series = append(s.figure.Series, series)
		}
		if s.figure.Note == "" {
			s.figure.Note = o.dropped(at(s.places[len(s.places)-1]), s.x[len(s.x)-1])
		}
		r.Figures = append(r.Figures, s.figure)
	}
	r.Checks = o.checks(r.Figures, tallies)
	return r
}

// dropped says how many look-ups ended in silent drops at the last place, x, of
// a sweep.
func (o *BalancerChurn) dropped(tallies []*Tally, x float64) string {
	var parts []string
	for i, name := range o.Schemes { // all of which are there
		dropped := int64(0)
		for _, t := range tallies {
			dropped += t.Schemes[i].Dropped
		}
		if dropped > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, dropped))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("Look-ups that servers dropped in silence at %g, all seeds together, since a balancer was stale: %s. They break nothing: the client sends again.", x, strings.Join(parts, ", "))
}
