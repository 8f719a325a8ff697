// Package chaos is the scenario `lab run chaos`: three controllers, two balancers and five
// servers, each daemon a process with a disk of its own, of which everything fails that
// can, several at once at times, while operators change the deployment and clients have
// connections. Afterwards all must be well by itself, no connection may have broken, and
// what operators were told and saw must be one history.
//
//	lb1 (ctl1)   server1 (ctl2)   lb2 (ctl3)   server2 … server5
//
// Files: chaos.go the options and the order of things; faults.go what is drawn and
// parts.go who is parted from whom, disks.go what becomes of disks, servers.go which servers
// die; ends.go who may end; world.go keeps processes alive as their units would; operators.go makes changes and looks; history.go
// and linear.go judge what they were told; print.go is for people.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/experiment"
)

// Options of a run; zero fields are the defaults.
type Options struct {
	Name   string // of the lab; default chaos and this process's number
	Seed   uint64
	Faults int // in all (default 200, at most 1000)
	// Longest is how long most of them last at most (default 4 s); a few last six times
	// as long.
	Longest time.Duration
	// Program is the fairlead binary that runs in the machines.
	Program string
	Keep    bool // leave the lab of a failed run
	// Watch, if not nil, is told what happens.
	Watch func(text string)
}

// Check refuses options that cannot work, and fills in defaults.
func (o *Options) Check() error {
	o.Faults = cmp.Or(o.Faults, 200)
	if o.Faults < 1 || o.Faults > 1000 {
		return fmt.Errorf("--faults %d: must be 1 to 1000", o.Faults)
	}
	o.Longest = cmp.Or(o.Longest, 4*time.Second)
	if o.Name == "" {
		o.Name = fmt.Sprint("chaos", os.Getpid())
	}
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	return nil
}

// Result is a run. Its JSON form is stable.
type Result struct {
	experiment.Head
	Faults []Fault        `json:"faults"`
	ByKind map[string]int `json:"faults_by_kind"`
	// Restarts are processes that ended by themselves, and were started again as their
	// units would.
	Restarts []string `json:"restarts"`
	// Changes by what became of them; Versions of the store at the end; Looks at its
	// history; Sights of daemons' versions.
	Changes  map[Outcome]int `json:"changes"`
	Versions int             `json:"versions"`
	Looks    int             `json:"looks"`
	Sights   int             `json:"sights"`
	// Healed is how long, in seconds, it took at most until all was well after faults
	// that came together had ended; Recovered the same at the end, to the last version
	// everywhere.
	Healed    float64 `json:"healed_seconds_at_most"`
	Recovered float64 `json:"recovered_seconds"`
	// Connections by VIP.
	Connections map[string]lab.Tally `json:"connections"`
	// Failures are those that broke, at most 20.
	Failures []lab.Failure `json:"failures,omitempty"`
}

// Within is how long anything may take to be well again.
const Within = 90 * time.Second

// The VIPs: connections found by their cookies, by a hash that every balancer remembers
// exceptions of, and by servers that pass on what is another's.
var vips = []lab.VIP{
	{Name: "web", Address: netip.MustParseAddr("10.77.7.1"), Port: 80, Protocol: "tcp", Scheme: "cheetah", Policy: "wrr", Health: "http"},
	{Name: "jet", Address: netip.MustParseAddr("10.77.7.2"), Port: 80, Protocol: "tcp", Scheme: "jet", Policy: "hash", Health: "http", Standby: true},
	{Name: "beamer", Address: netip.MustParseAddr("10.77.7.3"), Port: 80, Protocol: "tcp", Scheme: "beamer", Policy: "hash", Health: "http"},
}

const servers, activeServers, balancers = 5, 4, 2

// Run carries the scenario out.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	result := &Result{Head: experiment.Begin("chaos", o.Seed), Restarts: []string{}}
	l, err := lab.Up(ctx, o.options(), !o.Keep)
	if err != nil {
		return nil, err
	}
	err = newWorld(&o, l).play(ctx, result)
	if !o.Keep || err == nil && len(result.Verdict) == 0 {
		err = errors.Join(err, lab.Down(o.Name))
	}
	if err != nil {
		return nil, err
	}
	result.End()
	return result, nil
}

// deathsToProve is how many servers have to die until some had connections for sure.
const deathsToProve = 3

// perRound is how long faults that come together take, about, with what heals after, as
// a share of Options.Longest.
const perRound = 1.4

// play is the whole of it.
func (w *world) play(ctx context.Context, result *Result) (err error) {
	rounds := w.draw(w.o.Faults)
	length := time.Duration(float64(len(rounds)) * perRound * float64(w.o.Longest))
	traffic, err := w.lab.StartTraffic(ctx, plan(w.o.Seed, length))
	if err != nil {
		return err
	}
	defer traffic.Stop()
	w.traffic = traffic
	if w.history.First, err = w.entries(ctx, "server1"); err != nil {
		return fmt.Errorf("the store's history before the first fault: %w", err)
	}

	busy, rest := context.WithCancel(ctx)
	defer rest()
	var work sync.WaitGroup
	for n := range 3 {
		work.Go(func() { w.operate(busy, n) })
	}
	for n := range 2 {
		work.Go(func() { w.look(busy, n) })
	}
	for _, d := range w.lab.Daemons() {
		work.Go(func() { w.watch(busy, d.Machine) })
	}
	watched, done := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { w.keepAlive(watched) })
	defer func() { done(); keeping.Wait() }()

	for _, r := range rounds {
		if err := w.round(ctx, r, result); err != nil {
			return err
		}
	}
	rest()
	work.Wait()
	if err := w.recover(ctx, result); err != nil {
		return err
	}
	if err := traffic.Tell(lab.LoadNotice{Over: true}); err != nil {
		return err
	}
	last, err := traffic.Wait()
	if err != nil {
		return err
	}
	if err := w.panics(); err != nil {
		return err
	}
	w.judge(last, result)
	return ctx.Err()
}

// plan is the clients' connections: most short, and to each VIP about twenty at a time
// that are long.
func plan(seed uint64, length time.Duration) lab.LoadPlan {
	s := max(int(length.Seconds()), 20)
	return lab.LoadPlan{Seed: seed, Seconds: float64(s), Short: 4 * s, Stream: s / 2, Upload: s / 4, Idle: s / 2, Hold: true, Beyond: 3*float64(s) + 600, Device: lab.Uplink, Returns: true}
}

// judge says what is not as it must be.
func (w *world) judge(last lab.LoadReport, r *Result) {
	say := func(format string, args ...any) { r.Verdict = append(r.Verdict, fmt.Sprintf(format, args...)) }
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Restarts = append(r.Restarts, w.restarts...)
	r.Connections = last.Tallies
	for _, v := range vips {
		t := last.Tallies[v.Name]
		switch {
		case t.Broken > 0:
			say("%s: %d connections broken, must be 0", v.Name, t.Broken)
		case t.Resets > 0:
			say("%s: %d RSTs came to clients whose server lived, must be 0", v.Name, t.Resets)
		case t.Started != t.Completed+t.LostWithServer:
			say("%s: %d connections, but %d completed or lost with their server", v.Name, t.Started, t.Completed+t.LostWithServer)
		case t.LostWithServer == 0 && r.ByKind["power"]+r.ByKind["service"] >= deathsToProve:
			say("%s: servers died, and no connection with them: that proves nothing about the others", v.Name)
		case t.Survived < t.Started/50: // one in ten is long
			say("%s: of %d connections %d lived through a change: too few to prove anything", v.Name, t.Started, t.Survived)
		}
	}
	broken := slices.DeleteFunc(slices.Clone(last.Failures), func(f lab.Failure) bool { return f.Lost })
	r.Failures = broken[:min(len(broken), 20)]
	if last.MissedResets > 0 {
		say("%d RSTs at the client were seen and not kept", last.MissedResets)
	}
	r.Changes = map[Outcome]int{}
	for _, c := range w.history.Changes {
		r.Changes[c.Outcome]++
	}
	if r.Changes[Done] == 0 {
		say("no change was acknowledged, so the run proves nothing")
	}
	r.Looks, r.Sights = len(w.history.Looks), len(w.history.Sights)
	r.Verdict = append(r.Verdict, w.history.Check(5*time.Minute)...)
	r.Verdict = append(r.Verdict, w.wrong...)
}
