package lab

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
)

// Scenario scaling: figure 9 of Cheetah's paper on real packets. Requests come
// at a rate that rises and falls, answers last as a web server's do, and
// servers are added and drain at the schedule's times. Each scheme has a VIP
// of its own on the same servers: all see the same requests and the same
// changes. `fairlead sim scaling` plays the same schedule.

// Bounds of a share of the paper's rate: beyond it, the client has not enough
// ports, nor two processors the time.
const (
	DefaultRateFactor = 0.02
	MaxRateFactor     = 0.25
)

// scalingFronts is how many balancers carry the traffic.
const scalingFronts = 2

// scalingHashes are the hashes of scheme stateless there: a consistent one,
// and what a balancer or a router with a table does.
var scalingHashes = []string{"table-hrw", "maglev", "bucket"}

// Scaling is what scenario scaling found besides Result.Runs.
type Scaling struct {
	// RateFactor is the share of the paper's rate.
	RateFactor float64 `json:"rate_factor"`
	// Servers that there are, and of these that worked at the start.
	Servers       int `json:"servers"`
	ActiveServers int `json:"active_servers"`
	// LatestStart is by how many seconds the most belated request began too
	// late, LatestEnd by how many the most belated answer ended after the plan.
	// Answers that last longer than planned meet more changes.
	LatestStart float64       `json:"latest_start"`
	LatestEnd   float64       `json:"latest_end"`
	Steps       []ScalingStep `json:"steps"`
	// Table holds the lab beside the simulation, the worst scheme first.
	Table []ScalingRow `json:"table"`
	// PerSecond counts ends by the second since the load's start, by runs' names.
	PerSecond map[string][]Second `json:"per_second"`
}

// ScalingStep is a change of the schedule; times are seconds since the load's
// start.
type ScalingStep struct {
	Server string `json:"server"`
	Add    bool   `json:"add"` // else it drains
	// Planned is the schedule's time, Asked when the change was applied, and
	// Made when all daemons had it. It took effect between these two. A step
	// whose time comes while another one is made waits for it.
	Planned float64 `json:"planned"`
	Asked   float64 `json:"asked"`
	Made    float64 `json:"made"`
}

func (o *RunOptions) fillScaling() error {
	if o.Scenario != "scaling" {
		if o.RateFactor != 0 {
			return fmt.Errorf("--rate-factor is of scenario scaling, not of %s", o.Scenario)
		}
		return nil
	}
	o.RateFactor = cmp.Or(o.RateFactor, DefaultRateFactor)
	if !(o.RateFactor > 0 && o.RateFactor <= MaxRateFactor) {
		return fmt.Errorf("--rate-factor %g: must be above 0 and at most %g of the paper's 1,500 to 2,500 requests a second", o.RateFactor, MaxRateFactor)
	}
	if o.Schedule.Servers == 0 {
		o.Schedule = pcc.CheetahSchedule()
	}
	if len(o.Schedule.Requests(o.Seed, o.RateFactor)) == 0 {
		return fmt.Errorf("--rate-factor %g: gives no request at all; take more", o.RateFactor)
	}
	// One VIP a scheme: the machine's time goes into connections.
	o.IPv4 = !o.IPv6
	o.Forwarding = cmp.Or(o.Forwarding, "ipip")
	return nil
}

// scaling is scenario scaling.
func (r *runner) scaling(ctx context.Context) error {
	s := r.o.Schedule
	c := r.churn()
	found := &Scaling{RateFactor: r.o.RateFactor, Servers: s.Servers, ActiveServers: s.Active}
	r.result.Scaling = found
	l, err := r.lab.startLoad(ctx, r.pacedPlan())
	if err != nil {
		return err
	}
	r.load = loads{l}
	c.load = r.load
	start, err := r.started(ctx, l)
	if err != nil {
		return err
	}
	since := func() float64 { return time.Since(start).Seconds() }
	for _, steps := range together(s.Changes(r.o.Seed)) {
		if err := r.until(ctx, start.Add(seconds(steps[0].Planned))); err != nil {
			return err
		}
		asked := since()
		if err := r.change(ctx, c.scalingStep(steps)); err != nil {
			return err
		}
		for i := range steps {
			steps[i].Asked, steps[i].Made = asked, since()
		}
		found.Steps = append(found.Steps, steps...)
	}
	if err := r.end(ctx); err != nil {
		return err
	}
	last, err := l.wait()
	if err != nil {
		return err
	}
	found.LatestStart, found.LatestEnd, found.PerSecond = last.LatestStart, last.LatestEnd, last.PerSecond
	return r.compare(ctx)
}

// together are the changes by their times: what has one time is one change of
// the file.
func together(changes []pcc.Change) (steps [][]ScalingStep) {
	for i, c := range changes {
		step := ScalingStep{Server: fmt.Sprint("server", c.Server+1), Add: c.Add, Planned: inSeconds(c.At)}
		if i == 0 || c.At != changes[i-1].At {
			steps = append(steps, nil)
		}
		last := &steps[len(steps)-1]
		*last = append(*last, step)
	}
	return steps
}

// scalingStep makes steps of one time, in all VIPs at once.
func (c *churn) scalingStep(steps []ScalingStep) step {
	var added, drained, texts []string
	for _, s := range steps {
		texts = append(texts, s.text())
		if s.Add {
			added = append(added, s.Server)
		} else {
			drained = append(drained, s.Server)
		}
	}
	return step{text: strings.Join(texts, ", "), do: func(ctx context.Context) error { return c.lab.apply(ctx, added, drained) }}
}

// text is the step for people.
func (s ScalingStep) text() string {
	if s.Add {
		return s.Server + " added"
	}
	return s.Server + " drains"
}

// pacedPlan is the schedule's requests to every VIP.
func (r *runner) pacedPlan() LoadPlan {
	s := r.o.Schedule
	requests := s.Requests(r.o.Seed, r.o.RateFactor)
	plan := LoadPlan{Device: uplink, Seed: r.o.Seed, Seconds: inSeconds(s.End(requests)), Targets: r.targets(r.result.Runs)}
	for _, q := range requests {
		plan.Paced = append(plan.Paced, Paced{At: inSeconds(q.At), Seconds: inSeconds(q.Lasts), Chunks: q.Chunks})
	}
	return plan
}

// started waits for the load's first report, which tells when it began.
func (r *runner) started(ctx context.Context, l *loadClient) (time.Time, error) {
	for l.report().Start.IsZero() {
		if l.ended() {
			_, err := l.wait()
			return time.Time{}, err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
	return l.report().Start, nil
}

// inSeconds is a simulated time as the load's plans have it.
func inSeconds(t sim.Time) float64 { return float64(t) / float64(sim.Second) }
