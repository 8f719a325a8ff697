package lab

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/sim"
)

// runner is a running scenario.
type runner struct {
	o      RunOptions
	lab    *Lab
	part   part
	load   loads
	result *Result
	// before stand for the runs of labs that came before this one.
	before  []Tally
	changes int
}

// churn is the runner's churn, with the fronts that are at work.
func (r *runner) churn() *churn {
	c := &churn{lab: r.lab, random: sim.Stream(r.o.Seed, "churn"), gone: map[string]bool{}, member: map[string]bool{}}
	for _, s := range r.lab.servers()[:r.lab.ActiveServers] {
		c.member[s] = true
	}
	if r.lab.chained() {
		c.calm = int(math.Ceil(maxLong / r.o.Scale.Slot.Seconds()))
	}
	for n := range r.lab.LBs {
		if n < r.lab.ActiveLBs {
			if !slices.Contains(r.lab.SecondTier, n+1) {
				c.ecmp = append(c.ecmp, n+1)
			}
		} else {
			c.gone[r.lab.front(n+1)] = true // not there yet
		}
	}
	return c
}

// run is scenario churn, and control.
func (r *runner) run(ctx context.Context) error {
	c := r.churn()
	var steps []step
	if !r.lab.Plain {
		var err error
		steps, err = c.choose(r.o.Scale.Steps)
		if err == nil && r.o.Scale.Steps == nil {
			steps, err = c.arrange(steps)
		}
		if err != nil {
			return err
		}
	}
	return r.loaded(ctx, c, steps)
}

// chosen are those of all changes that the scale names, all where it names none.
func (r *runner) chosen(all []step) (steps []step, err error) {
	if r.o.Scale.Steps == nil {
		return all, nil
	}
	for _, name := range r.o.Scale.Steps {
		i := slices.IndexFunc(all, func(s step) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no change %q", name)
		}
		steps = append(steps, all[i])
	}
	return steps, nil
}

// loaded makes the changes under a load of their length.
func (r *runner) loaded(ctx context.Context, c *churn, steps []step) error {
	l, err := r.lab.startLoad(ctx, r.plan(r.length(max(len(steps), 5))))
	if err != nil {
		return err
	}
	r.load = loads{l}
	c.load = r.load
	if err := r.steps(ctx, steps, time.Now().Add(lead)); err != nil {
		return err
	}
	return r.end(ctx)
}

// steps makes the changes, from start on, a slot apart. What takes longer than
// its slot puts off the others only where they shall not come close together.
func (r *runner) steps(ctx context.Context, steps []step, start time.Time) error {
	for i, s := range steps {
		at := start.Add(time.Duration(i) * r.o.Scale.Slot)
		if earliest := time.Now().Add(r.o.Scale.Slot); r.lab.chained() && i > 0 && at.Before(earliest) {
			at = earliest
		}
		if err := r.until(ctx, at); err != nil {
			return err
		}
		if err := r.change(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// length is how long changes take, about: those that may not come close
// together half as long again as their slots.
func (r *runner) length(changes int) time.Duration {
	d := time.Duration(changes) * r.o.Scale.Slot
	if r.lab.chained() {
		d += d / 2
	}
	return d + 2*lead
}

// lead is the time before the first change, and after the last.
const lead = 3 * time.Second

// change makes one change under load.
func (r *runner) change(ctx context.Context, s step) error {
	if r.load.ended() { // it would have held on until told: it failed
		_, err := r.load.wait()
		return fmt.Errorf("before change %d (%s): %w", r.changes+1, s.text, err)
	}
	if err := r.load.tell(LoadNotice{Begins: true}); err != nil {
		return err
	}
	if err := within(ctx, s.do); err != nil {
		return fmt.Errorf("change %d (%s): %w", r.changes+1, s.text, err)
	}
	r.changes++
	r.note(s.text)
	return r.load.tell(LoadNotice{Made: true})
}

// end tells the load that it is over, and judges what it found.
func (r *runner) end(ctx context.Context) error {
	if err := r.load.tell(LoadNotice{Over: true}); err != nil {
		return err
	}
	if err := r.until(ctx, time.Time{}); err != nil {
		return err
	}
	last, err := r.load.wait()
	if err != nil {
		return err
	}
	r.finish(last)
	return nil
}

// stepWait bounds a change: a removal waits for the longest connection.
const stepWait = 60 * time.Second

func within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	return do(ctx)
}

// choose takes the wanted steps in their order; nil: all.
func (c *churn) choose(wanted []string) ([]step, error) {
	steps := c.steps()
	if wanted == nil {
		return steps, nil
	}
	var chosen []step
	for _, name := range wanted {
		i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if i < 0 && name != "weight" { // no VIP may know weights
			return nil, fmt.Errorf("churn has no step %q", name)
		}
		if i >= 0 {
			chosen = append(chosen, steps[i])
		}
	}
	return chosen, nil
}

// plan divides the connections: most short, a quarter long.
func (r *runner) plan(length time.Duration) LoadPlan {
	n := r.o.Scale.Connections
	p := LoadPlan{Hold: true, Device: uplink, Seed: r.o.Seed, Seconds: length.Seconds(), Targets: r.targets(r.result.Runs), Stream: n / 10, Upload: n / 20, Idle: n / 10}
	p.Short = n - p.Stream - p.Upload - p.Idle
	return p
}

// targets are the VIPs of the runs that are wanted.
func (r *runner) targets(wanted []RunTally) (all []Target) {
	for i, v := range r.lab.VIPs {
		name := r.result.Runs[i].Name()
		if slices.ContainsFunc(wanted, func(run RunTally) bool { return run.Name() == name }) {
			all = append(all, Target{Name: name, Endpoint: v.Endpoint()})
		}
	}
	return all
}

// until waits for a time, zero for the load's end, and shows the tallies
// every second.
func (r *runner) until(ctx context.Context, at time.Time) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var timer <-chan time.Time
	if !at.IsZero() {
		timer = time.After(time.Until(at))
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.load.finished():
			return nil
		case <-timer:
			return nil
		case <-tick.C:
			r.tell(r.moment(""))
		}
	}
}

func (r *runner) tell(m Moment) {
	if r.o.Watch != nil {
		r.o.Watch(m)
	}
}

func (r *runner) note(text string) {
	m := r.moment(text)
	r.result.Timeline = append(r.result.Timeline, m)
	r.tell(m)
}

func (r *runner) moment(text string) Moment {
	report := r.load.report()
	m := Moment{At: report.Seconds, Text: text, Tallies: slices.Clone(r.before)}
	for _, run := range r.result.Runs {
		m.Tallies = append(m.Tallies, report.Tallies[run.Name()])
	}
	return m
}

// stopped fills in what was counted before an error.
func (r *runner) stopped(err error) {
	for _, l := range r.load {
		l.stop()
	}
	last, _ := r.load.wait()
	r.finish(last)
	r.result.Verdict = append([]string{"stopped: " + err.Error()}, r.result.Verdict...)
}

// finish fills in the counts and judges them.
func (r *runner) finish(last LoadReport) {
	r.result.MissedResets = last.MissedResets
	for i := range r.result.Runs {
		run := &r.result.Runs[i]
		t := last.Tallies[run.Name()]
		run.Connections, run.Completed, run.Broken, run.LostWithServer = t.Started, t.Completed, t.Broken, t.LostWithServer
		run.Survived, run.Resets, run.LateResets = t.Survived, t.Resets, t.LateResets
		run.Changes = r.changes
		kept := 0
		for _, f := range last.Failures {
			if f.Target == run.Name() && !f.Lost && kept < maxFailures {
				r.result.Failures = append(r.result.Failures, f)
				kept++
			}
		}
	}
	r.tell(r.moment(""))
	r.result.Verdict = r.judge()
}
