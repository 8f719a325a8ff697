// Package steered is the scenario `lab run fabric`: a balancer's tunnels cross a
// leaf-spine fabric in which one link turns slow, and later carries nothing, while
// long connections of TCP upload through the balancer. It counts what passes each
// spine and what the connections feel, with steered tunnels and without.
//
//	client ─┐          ┌─ spine1 ─┐          ┌─ s1
//	        ├─ leaf1 ──┤          ├── leaf2 ─┼─ …
//	    lb ─┘          └─ spine2 ─┘          └─ sN
//	                          └ this link, spine1–leaf2, is degraded, then cut
//
// All routers run `fairlead router`, the servers `fairlead host`, lb `fairlead lb`.
// leaf1 is not told that the far link is bad: it goes on giving spine1 its share.
//
// Files: steered.go the options and the order of things, site.go what stands,
// load.go the connections, count.go the routers' counters, judge.go what must
// hold, print.go the table.
package steered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/lab/experiment"
	choices "github.com/fairlead/fairlead/vip"
)

// Options of a run; zero fields are the defaults.
type Options struct {
	// Steer are the settings that are compared, each in a run of its own (default
	// connection and off).
	Steer []string
	// Servers behind the VIP (default 3, at most 16).
	Servers int
	// Connections at a time (default 24, at most 256), each of which uploads
	// ConnectionRate bit/s (default 400,000).
	Connections    int
	ConnectionRate int
	// Limit is the degraded link's rate, bit/s (default 1,000,000).
	Limit int
	// Phase is how long each phase lasts (default 5s, at least 2s).
	Phase time.Duration
	// Seed of the fabric's keys and of the connections' ports.
	Seed uint64
	// Program is the fairlead binary that runs in the machines.
	Program string
	// Keep leaves the lab of a failed run.
	Keep bool
	// Watch, if not nil, is told what happens.
	Watch func(text string)
}

// Result is all runs. Its JSON form is stable.
type Result struct {
	experiment.Head
	Servers        int         `json:"servers"`
	Connections    int         `json:"connections"`
	ConnectionRate int         `json:"connection_bits_per_second"`
	Limit          int         `json:"degraded_bits_per_second"`
	Link           string      `json:"link"`      // that is degraded and cut
	BadSpine       string      `json:"bad_spine"` // whose link it is
	Runs           []RunResult `json:"runs"`
}

// RunResult is one setting of steer.
type RunResult struct {
	Steer  string  `json:"steer"`
	Phases []Phase `json:"phases"`
	// Broken connections: errors, or an answer that shows that other bytes
	// arrived than were sent.
	Broken   int      `json:"broken"`
	Failures []string `json:"failures,omitempty"`
	// Moved is how often a part of a server's connections (64 in all) was moved to
	// another path, by the balancer's status.
	Moved uint64 `json:"moved"`
}

// Phase is a part of a run's time: healthy, degraded, mended, cut, restored.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Spines  []Spine `json:"spines"`
	// LeftAfter is after how many seconds leaf1 sent the bad spine less than a tenth
	// of what it had before; -1: not within the phase. Only in phases in which
	// tunnels should leave it, of runs that steer.
	LeftAfter *float64 `json:"left_after_seconds,omitempty"`
	// Acknowledged by the servers, bit/s of all connections.
	Goodput float64 `json:"goodput_bits_per_second"`
	// LongestGap is the longest time for which a connection had nothing
	// acknowledged, Stalled how many had nothing for more than two.
	LongestGap float64 `json:"longest_gap_seconds"`
	Stalled    int     `json:"stalled_connections"`
}

// Spine is what went over a spine towards the servers, by the routers' counters:
// tunnels and probes.
type Spine struct {
	Name string `json:"name"`
	// Sent there by leaf1, and how many of the packets because their fields say so.
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`
	Selected uint64 `json:"selected"`
	// Forwarded from there to leaf2.
	Forwarded uint64 `json:"forwarded"`
}

// Settings of steer that can be compared.
var Settings = []string{choices.SteerOff, choices.SteerServer, choices.SteerConnection}

func (o *Options) complete() error {
	if len(o.Steer) == 0 {
		o.Steer = []string{choices.SteerConnection, choices.SteerOff}
	}
	for i, s := range o.Steer {
		if !slices.Contains(Settings, s) {
			return fmt.Errorf("--steer %s: must be off, server or connection", s)
		}
		if slices.Contains(o.Steer[:i], s) {
			return fmt.Errorf("--steer %s: named twice", s)
		}
	}
	for _, f := range []struct {
		flag             string
		value            *int
		usual, low, most int
	}{
		{"servers", &o.Servers, 3, 1, 16},
		{"connections", &o.Connections, 24, 2, 256},
		{"rate", &o.ConnectionRate, 400_000, 8_000, 10_000_000},
		{"limit", &o.Limit, 1_000_000, 100_000, 1_000_000_000},
	} {
		*f.value = cmp.Or(*f.value, f.usual)
		if *f.value < f.low || *f.value > f.most {
			return fmt.Errorf("--%s %d: must be %d to %d", f.flag, *f.value, f.low, f.most)
		}
	}
	o.Phase = cmp.Or(o.Phase, 5*time.Second)
	if o.Phase < 2*time.Second || o.Phase > time.Minute {
		return fmt.Errorf("--phase %v: must be 2s to 1m", o.Phase)
	}
	if o.Connections*o.ConnectionRate/2 < 2*o.Limit {
		return fmt.Errorf("--limit %d: half of the load, %d bit/s, must be twice as much at least, or the link is not degraded", o.Limit, o.Connections*o.ConnectionRate/2)
	}
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	return nil
}

// CheckOptions says what is wrong with options, nil if nothing is.
func CheckOptions(o Options) error { return o.complete() }

// Run builds the fabric, makes the runs and takes it down. It needs root.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	head := experiment.Begin("fabric", o.Seed)
	o.Watch("building the fabric")
	s, err := build(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if !o.Keep || err == nil && len(result.Verdict) == 0 {
			err = errors.Join(err, s.fabric.Down())
		}
	}()
	result = &Result{Head: head, Servers: o.Servers, Connections: o.Connections, ConnectionRate: o.ConnectionRate,
		Limit: o.Limit, Link: s.linkName(), BadSpine: s.badSpine()}
	for _, steer := range o.Steer {
		run, err := s.run(ctx, steer)
		if err != nil {
			return nil, fmt.Errorf("steer %s: %w", steer, err)
		}
		result.Runs = append(result.Runs, *run)
	}
	result.judge()
	result.End()
	return result, nil
}

// run is one setting: its connections live through all phases.
func (s *site) run(ctx context.Context, steer string) (*RunResult, error) {
	o := s.o
	o.Watch(fmt.Sprintf("steer %s: %d connections of %d bit/s", steer, o.Connections, o.ConnectionRate))
	before := s.moved(ctx, steer)
	l, err := s.open(ctx, steer)
	if err != nil {
		return nil, err
	}
	defer l.close()
	run := &RunResult{Steer: steer}
	bad := s.link
	for _, p := range []struct {
		name, text string
		begin      func() error
		leaves     bool // tunnels should leave the bad spine
		settle     bool // wait until what was left is used again
	}{
		{"healthy", "", func() error { return nil }, false, false},
		{"degraded", fmt.Sprintf("link %s carries %d bit/s", s.linkName(), o.Limit), func() error { return s.fabric.Limit(bad, int64(o.Limit)) }, true, false},
		{"mended", "the link is as before", func() error { return s.fabric.Limit(bad, 0) }, false, true},
		{"cut", "link " + s.linkName() + " is cut", func() error { return s.fabric.Cut(bad) }, true, false},
		{"restored", "the link is restored", func() error { return s.fabric.Restore(bad) }, false, true},
	} {
		if p.text != "" {
			o.Watch(p.text)
		}
		phase, err := s.phase(ctx, l, steer, p.name, p.begin, p.leaves, p.settle)
		if err != nil {
			return nil, fmt.Errorf("phase %s: %w", p.name, err)
		}
		o.Watch(phase.line())
		run.Phases = append(run.Phases, *phase)
	}
	run.Broken, run.Failures = l.finish()
	run.Moved = s.moved(ctx, steer) - before
	return run, nil
}
