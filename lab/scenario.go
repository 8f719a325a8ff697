package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Scenarios are the names that Run knows, with what each does.
var Scenarios = map[string]string{
	"churn":    "real connections while servers, balancers, routes and keys change",
	"synflood": "connections that live and are mostly silent under a flood of SYNs and ACKs, while servers and balancers change",
	"control":  "the same connections straight to one server: what breaks here is the lab's own fault",
}

// RunOptions narrow a scenario; the zero value runs all of it.
type RunOptions struct {
	Scenario string
	Seed     uint64
	Schemes  []string // default cheetah and stateless; synflood: jet, cheetah, full-ct
	// Policies of cheetah (default rr and p2c); the other schemes always run
	// hash.
	Policies []string
	// Hashes of the other schemes (default table-hrw and, for jet, anchor).
	Hashes       []string
	Forwarding   string // default ipip
	IPv6         bool   // IPv6 alone: VIPs and tunnels; default: IPv4 and IPv6 VIPs, mixed tunnels
	IPv4         bool   // IPv4 VIPs alone
	NoTimestamps bool
	Rate         int    // synflood: packets a second, default DefaultFloodRate
	Scale        Scale  // default FullScale, or FloodScale
	Keep         bool   // leave the lab of a failed run, to look at
	Program      string // the fairlead binary (default: this one)
	// Watch, if not nil, is told of every change while it runs.
	Watch func(Moment)
}

// Scale is a churn's size.
type Scale struct {
	// Connections a run.
	Connections int
	// Slot is the time from one change to the next.
	Slot time.Duration
	// Pause is synflood's longest silence of a connection.
	Pause time.Duration
	// Steps, if not nil, names the changes that happen, in this order.
	Steps []string
}

// FullScale is the scenario as it is judged.
var FullScale = Scale{Connections: 2000, Slot: 3 * time.Second}

// minChanges is how many changes a full churn must have made.
const minChanges = 12

// Moment is a point of a scenario's time line.
type Moment struct {
	// At is seconds since the load's start.
	At float64 `json:"at"`
	// Text says what changed; empty: nothing, only the tallies are news.
	Text string `json:"text"`
	// Tallies by run, in the order of Result.Runs.
	Tallies []Tally `json:"tallies"`
}

// Result is what `lab run -o json` prints.
type Result struct {
	Scenario string     `json:"scenario"`
	Seed     uint64     `json:"seed"`
	Kernel   string     `json:"kernel"`
	Seconds  float64    `json:"seconds"`
	Runs     []RunTally `json:"runs"`
	Timeline []Moment   `json:"timeline"`
	// Synflood: of each lab that ran, one after the other, what was sent and
	// what stood in the balancers' tables at the flood's end.
	Floods []FloodReport `json:"floods,omitempty"`
	Tables []TableUse    `json:"tables,omitempty"`
	// Failures are connections that did not complete, the first maxFailures
	// of each run.
	Failures []Failure `json:"failures,omitempty"`
	// Verdict is why the run failed, empty if it did not.
	Verdict []string `json:"verdict,omitempty"`
}

// maxFailures bounds Result.Failures for each run.
const maxFailures = 20

// RunTally is one scheme, policy, forwarding and family under the scenario.
type RunTally struct {
	Scheme         string `json:"scheme"`
	Policy         string `json:"policy"`
	Hash           string `json:"hash,omitempty"` // where the policy is hash
	Forwarding     string `json:"forwarding"`
	Family         string `json:"family"`
	Connections    int    `json:"connections"`
	Completed      int    `json:"completed"`
	Broken         int    `json:"broken"`
	LostWithServer int    `json:"lost_with_server"`
	Changes        int    `json:"changes"`
	// NoTimestamps: its clients carry no cookie.
	NoTimestamps bool `json:"no_timestamps"`
	// Synflood: entries that the balancers made, that gave way to others
	// unconfirmed (full-ct: alive), and that found no place.
	Tracked      uint64 `json:"tracked"`
	FlowReplaced uint64 `json:"flow_replaced"`
	FlowFull     uint64 `json:"flow_full"`
}

// Name is the run in one word.
func (r RunTally) Name() string {
	name := r.Scheme + "-" + cmp.Or(r.Hash, r.Policy) + "-" + r.Family
	if r.NoTimestamps {
		name += "-no-timestamps"
	}
	return name
}

// mustHold tells whether the scheme promises to break nothing; cheetah also
// without timestamps, where JET is its fallback. Its VIPs have a horizon.
func (r RunTally) mustHold() bool { return r.Scheme == "cheetah" || r.Scheme == "jet" }

func (o *RunOptions) fill() error {
	if _, known := Scenarios[o.Scenario]; !known {
		return fmt.Errorf("there is no scenario %q; there are churn, synflood and control", o.Scenario)
	}
	schemes, policies, scale := []string{"cheetah", "stateless"}, []string{"rr", "p2c"}, FullScale
	if o.Scenario == "synflood" {
		schemes, policies, scale = []string{"jet", "cheetah", "full-ct"}, []string{"rr"}, FloodScale
	}
	if len(o.Schemes) == 0 {
		o.Schemes = schemes
	}
	if len(o.Policies) == 0 {
		o.Policies = policies
	}
	if o.Rate == 0 {
		o.Rate = DefaultFloodRate
	}
	if o.Rate < 1 || o.Rate > MaxFloodRate {
		return fmt.Errorf("rate %d: must be 1 to %d packets a second", o.Rate, MaxFloodRate)
	}
	if o.Forwarding == "" {
		o.Forwarding = "ipip"
	}
	if o.Scale.Connections == 0 {
		o.Scale = scale
	}
	for _, check := range []choice{
		{"scheme", o.Schemes, schemeNames}, {"hash", o.Hashes, kinds()},
		{"policy", o.Policies, policyNames}, {"forwarding", []string{o.Forwarding}, forwardingNames},
	} {
		if err := check.check(); err != nil {
			return err
		}
	}
	for _, scheme := range o.Schemes {
		for _, hash := range o.Hashes {
			if err := suits(scheme, hash); err != nil && scheme != "cheetah" {
				return err
			}
		}
	}
	return nil
}

// runs lists the runs; they differ in the VIP and share everything else, so
// that each meets exactly the same changes.
func (o RunOptions) runs() []RunTally {
	var runs []RunTally
	for _, scheme := range o.Schemes {
		for _, way := range o.ways(scheme) {
			for _, family := range []string{"ipv4", "ipv6"} {
				if family == "ipv4" && o.IPv6 || family == "ipv6" && o.IPv4 {
					continue
				}
				way.Forwarding, way.Family, way.NoTimestamps = o.Forwarding, family, o.NoTimestamps
				runs = append(runs, way)
			}
		}
	}
	return runs
}

// ways are the policies of scheme cheetah and the hashes of the others.
func (o RunOptions) ways(scheme string) (ways []RunTally) {
	if scheme == "cheetah" {
		for _, policy := range o.Policies {
			ways = append(ways, RunTally{Scheme: scheme, Policy: policy})
		}
		return ways
	}
	hashes := o.Hashes
	if len(hashes) == 0 {
		hashes = []string{"table-hrw"}
		if scheme == "jet" {
			hashes = append(hashes, "anchor")
		}
	}
	for _, hash := range hashes {
		ways = append(ways, RunTally{Scheme: scheme, Policy: defaultPolicy(scheme), Hash: hash})
	}
	return ways
}

// vips are the runs' VIPs, named after them.
func vipsOf(runs []RunTally) []VIP {
	var vips []VIP
	for i, r := range runs {
		v := VIP{Name: r.Name(), Address: vipAddress4(i + 1), Port: httpPort, Protocol: "tcp", Scheme: r.Scheme, Policy: r.Policy, Hash: r.Hash, Standby: r.mustHold(), Health: "http"}
		if r.Family == "ipv6" {
			v.Address = vipAddress6(i + 1)
		}
		vips = append(vips, v)
	}
	return vips
}

// Run carries out a scenario in a lab of its own and takes the lab down. The
// result is whole also where it is a failure (Result.Verdict); an error means
// that there is none.
func Run(ctx context.Context, o RunOptions) (*Result, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	began := time.Now()
	groups := [][]RunTally{o.runs()}
	if o.Scenario == "synflood" {
		groups = o.floodGroups()
	}
	whole := &Result{Scenario: o.Scenario, Seed: o.Seed}
	for _, runs := range groups {
		part, err := o.runLab(ctx, runs, whole.Runs)
		if err != nil {
			return nil, err
		}
		whole.join(part)
	}
	whole.Seconds = time.Since(began).Seconds()
	return whole, nil
}

// runLab is one lab's life.
func (o RunOptions) runLab(ctx context.Context, runs, before []RunTally) (*Result, error) {
	options := Options{
		Name: fmt.Sprint("run", os.Getpid()), Servers: churnServers, ActiveServers: churnActiveServers,
		LBs: churnLBs, ActiveLBs: churnActiveLBs, Forwarding: o.Forwarding, IPv6: o.IPv6,
		Mixed: true, NoTimestamps: o.NoTimestamps, VIPs: vipsOf(runs), Plain: o.Scenario == "control", Program: o.Program,
	}
	if o.Scenario == "synflood" {
		for _, run := range runs {
			if run.Scheme != "cheetah" || run.NoTimestamps {
				options.Flows += floodTable * o.Scale.Connections
			}
		}
	}
	l, err := Up(ctx, options, true)
	if err != nil {
		return nil, err
	}
	r := &runner{o: o, lab: l, before: make([]Tally, len(before)), result: &Result{Kernel: l.Kernel, Runs: runs}}
	if o.Scenario == "synflood" {
		err = r.flood(ctx)
	} else {
		err = r.run(ctx, options.Plain)
	}
	if o.Keep && (err != nil || len(r.result.Verdict) > 0) {
		l.Owner, l.OwnerStart = 0, ""
		if err := errors.Join(err, l.save()); err != nil {
			return nil, fmt.Errorf("%w (lab %s is kept)", err, l.Name)
		}
		r.result.Verdict = append(r.result.Verdict, fmt.Sprintf("lab %s is kept", l.Name))
		return r.result, nil
	}
	if err := errors.Join(err, Down(l.Name)); err != nil {
		return nil, err
	}
	return r.result, nil
}

// join adds what another lab found.
func (r *Result) join(o *Result) {
	r.Kernel = o.Kernel
	for i := range r.Timeline { // tallies in the order of all runs
		r.Timeline[i].Tallies = append(r.Timeline[i].Tallies, make([]Tally, len(o.Runs))...)
	}
	r.Runs = append(r.Runs, o.Runs...)
	r.Timeline = append(r.Timeline, o.Timeline...)
	r.Failures = append(r.Failures, o.Failures...)
	r.Floods, r.Tables = append(r.Floods, o.Floods...), append(r.Tables, o.Tables...)
	r.Verdict = append(r.Verdict, o.Verdict...)
}

// runner is a running scenario.
type runner struct {
	o      RunOptions
	lab    *Lab
	load   loads
	result *Result
	// before stand for the runs of labs that came before this one.
	before  []Tally
	changes int
}

func (r *runner) run(ctx context.Context, control bool) error {
	c := &churn{lab: r.lab, random: stream(r.o.Seed, "churn"), gone: map[string]bool{}}
	var steps []step
	if !control {
		var err error
		steps, err = c.choose(r.o.Scale.Steps)
		if err == nil && r.o.Scale.Steps == nil {
			steps, err = arrange(steps, c.random)
		}
		if err != nil {
			return err
		}
	}
	const lead = 3 * time.Second // before the first change, and after the last
	plan := r.plan(2*lead + time.Duration(max(len(steps), 5))*r.o.Scale.Slot)
	l, err := r.lab.startLoad(ctx, plan)
	if err != nil {
		return err
	}
	r.load = loads{l}
	c.load = r.load
	start := time.Now()
	changes := 0
	for i, s := range steps {
		if err := r.until(ctx, start.Add(lead+time.Duration(i)*r.o.Scale.Slot)); err != nil {
			return err
		}
		if r.load.ended() { // it would have held on until told: it failed
			_, err := r.load.wait()
			return fmt.Errorf("before change %d (%s): %w", i+1, s.text, err)
		}
		if err := within(ctx, s.do); err != nil {
			return fmt.Errorf("change %d (%s): %w", i+1, s.text, err)
		}
		changes++
		r.note(s.text)
	}
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
	r.finish(last, changes)
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
	c.ecmp = []int{1, 2}
	for n := churnActiveLBs + 1; n <= churnLBs; n++ {
		c.gone[fmt.Sprint("lb", n)] = true // not there yet
	}
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
	p := LoadPlan{Hold: true, Seed: r.o.Seed, Seconds: length.Seconds(), Stream: n / 10, Upload: n / 20, Idle: n / 10}
	p.Short = n - p.Stream - p.Upload - p.Idle
	for i, v := range r.lab.VIPs {
		p.Targets = append(p.Targets, Target{Name: r.result.Runs[i].Name(), Endpoint: v.Endpoint()})
	}
	return p
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

// finish fills in the counts and judges them.
func (r *runner) finish(last LoadReport, changes int) {
	for i := range r.result.Runs {
		run := &r.result.Runs[i]
		t := last.Tallies[run.Name()]
		run.Connections, run.Completed, run.Broken, run.LostWithServer = t.Started, t.Completed, t.Broken, t.LostWithServer
		run.Changes = changes
		kept := 0
		for _, f := range last.Failures {
			if f.Target == run.Name() && !f.Lost && kept < maxFailures {
				r.result.Failures = append(r.result.Failures, f)
				kept++
			}
		}
	}
	r.tell(r.moment(""))
	r.result.Verdict = r.judge(changes)
}

// judge says what is not as it must be.
func (r *runner) judge(changes int) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	control := r.o.Scenario == "control"
	full := r.o.Scenario == "churn" && r.o.Scale.Steps == nil
	if r.o.Scenario == "synflood" {
		r.judgeFlood(say)
	}
	for _, run := range r.result.Runs {
		switch {
		case run.Completed+run.Broken+run.LostWithServer != run.Connections:
			say("%s: %d connections, but %d completed, broken or lost", run.Name(), run.Connections, run.Completed+run.Broken+run.LostWithServer)
		case control && run.Completed != run.Connections:
			say("%s: %d connections broken without any balancer", run.Name(), run.Connections-run.Completed)
		case !control && run.mustHold() && run.Broken > 0:
			say("%s: %d connections broken, must be 0", run.Name(), run.Broken)
		case full && run.Scheme == "stateless" && run.Broken == 0:
			say("%s: no connection broken, so the churn proves nothing about the others", run.Name())
		}
		if full && run.Connections < r.o.Scale.Connections {
			say("%s: %d connections, must be at least %d", run.Name(), run.Connections, r.o.Scale.Connections)
		}
	}
	if full && changes < minChanges {
		say("%d changes, must be at least %d", changes, minChanges)
	}
	return wrong
}
