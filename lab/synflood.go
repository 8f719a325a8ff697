package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/vip"
)

// FloodScale is scenario synflood as it is judged: connections that live at
// each VIP, and the time from one change to the next.
var FloodScale = Scale{Connections: 1000, Slot: 3 * time.Second, Pause: 16 * time.Second}

// Bounds of the scenario.
const (
	// DefaultFloodRate is packets a second: what two processors carry beside
	// everything else of the lab.
	DefaultFloodRate = 20_000
	// floodTable is places of the flow table for each connection that may be
	// tracked. Half of them are, so one bucket in millions has more than it
	// has places for (docs/jet.md, "How large"), and the flood fills the rest.
	floodTable = 6
	// settleRate is at how many a second each VIP's connections open.
	settleRate = 200
	// floodWait is in which the flood has to fill the tables.
	floodWait = 60 * time.Second
)

// floodSteps are the changes under the flood; the seed orders them.
var floodSteps = []string{"add", "add two", "drain", "fail", "recover", "pause", "resume", "weight", "reshuffle", "reshuffle again", "kill lb", "join lb"}

// floodParts are the labs of the scenario. full-ct has one of its own: its
// entries take the places of others that live, but not of beamer's, which has
// none.
func (o RunOptions) floodParts() (parts []part) {
	if o.Drained != nil {
		return o.drainedParts()
	}
	var hold, others []RunTally
	for _, r := range o.runs() {
		if r.mustHold() {
			hold = append(hold, r)
		} else {
			others = append(others, r)
		}
		if r.row().Finds == vip.ByCookie && !o.NoTimestamps {
			r.NoTimestamps = true
			hold = append(hold, r)
		}
	}
	for _, g := range [][]RunTally{hold, others} {
		for _, runs := range apart(g) {
			parts = append(parts, part{runs: runs})
		}
	}
	return parts
}

// flood runs the scenario in this runner's lab.
func (r *runner) flood(ctx context.Context) error {
	c := r.churn()
	scale := r.o.Scale
	if scale.Steps == nil {
		scale.Steps = floodSteps
	}
	var steps []step
	if r.o.Drained != nil {
		steps = c.drainSteps(r.part.drained)
	} else {
		all, err := c.choose(scale.Steps)
		if err != nil {
			return err
		}
		if steps, err = c.arrange(all); err != nil {
			return err
		}
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	c.load = r.load
	r.note("all connections live")
	f, err := r.startFlood(ctx, time.Duration(len(steps)+2)*r.o.Scale.Slot+2*stepWait+floodWait)
	if err != nil {
		return err
	}
	defer f.stop()
	if err := r.awaitOverflow(ctx, f, c); err != nil {
		return err
	}
	r.note("the flood has filled the flow tables")
	if err := r.steps(ctx, steps, time.Now()); err != nil {
		return err
	}
	// Each connection shall speak after the last change, under the flood.
	if err := r.until(ctx, time.Now().Add(scale.Pause)); err != nil {
		return err
	}
	if err := r.readTables(ctx, c); err != nil {
		return err
	}
	report, err := f.end()
	if err != nil {
		return err
	}
	r.result.Floods = append(r.result.Floods, report)
	r.note("the flood is over")
	return r.end(ctx)
}

// settle opens the connections: first those of clients with timestamps, then
// those without, and waits until a server has answered each.
func (r *runner) settle(ctx context.Context) error {
	for _, stamped := range []bool{true, false} {
		plan := LoadPlan{Device: uplink, Seed: r.o.Seed, Steady: r.o.Scale.Connections, Settle: float64(r.o.Scale.Connections) / settleRate, Pause: r.o.Scale.Pause.Seconds(),
			Seconds: (time.Duration(2*len(floodSteps))*r.o.Scale.Slot + floodWait + 2*stepWait).Seconds()}
		for i, v := range r.lab.VIPs {
			if run := r.result.Runs[i]; run.NoTimestamps != stamped {
				plan.Targets = append(plan.Targets, Target{Name: run.Name(), Endpoint: v.Endpoint()})
			}
		}
		if len(plan.Targets) == 0 {
			continue
		}
		if err := r.lab.setTimestamps(stamped); err != nil {
			return err
		}
		if err := r.open(ctx, plan); err != nil {
			return err
		}
	}
	return r.lab.setTimestamps(true)
}

// open starts a load beside those that run, and waits until each of its
// steady connections has been answered.
func (r *runner) open(ctx context.Context, plan LoadPlan) error {
	l, err := r.lab.startLoad(ctx, plan)
	if err != nil {
		return err
	}
	r.load = append(r.load, l)
	limit := seconds(plan.Settle) + readyWait
	deadline := time.Now().Add(limit)
	for !settled(l.report(), plan) {
		if l.ended() {
			_, err := l.wait()
			return fmt.Errorf("while connections opened: %w", err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not all connections were answered within %v: %+v", limit, l.report().Tallies)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func settled(report LoadReport, plan LoadPlan) bool {
	return !slices.ContainsFunc(plan.Targets, func(t Target) bool { return report.Tallies[t.Name].Answered < plan.Steady })
}

// setTimestamps decides for connections that the client opens from now on.
func (l *Lab) setTimestamps(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	return netspace.In(l.namespace("client"), func() error { return netspace.Sysctl("net.ipv4.tcp_timestamps", value) })
}

// awaitOverflow waits until each balancer at work has had to give a place of
// its flow table to another.
func (r *runner) awaitOverflow(ctx context.Context, f *floodClient, c *churn) error {
	for deadline := time.Now().Add(floodWait); ; {
		full := true
		for _, n := range c.ecmp {
			status, err := r.lab.daemonStatus(ctx, fmt.Sprint("lb", n))
			if err != nil {
				return err
			}
			replaced := uint64(0)
			for _, v := range status.Vips {
				replaced += v.Counters.FlowReplaced + v.Counters.FlowFull
			}
			full = full && replaced > 0
		}
		if full {
			return nil
		}
		if f.ended() {
			_, err := f.end()
			return fmt.Errorf("the flood ended before it filled the flow tables: %w", err)
		}
		if time.Now().After(deadline) {
			return nil // the verdict says so
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// readTables takes down what is in the tables while the flood goes on.
func (r *runner) readTables(ctx context.Context, c *churn) error {
	for _, lb := range r.lab.fronts() {
		if c.gone[lb] {
			continue
		}
		use, err := r.lab.tableUse(ctx, lb)
		if err != nil {
			return err
		}
		use.Schemes = r.schemes()
		r.result.Tables = append(r.result.Tables, use)
		status, err := r.lab.daemonStatus(ctx, lb)
		if err != nil {
			return err
		}
		for i := range r.result.Runs {
			run := &r.result.Runs[i]
			for _, v := range status.Vips {
				if v.Name == run.Name() {
					run.Tracked += v.Counters.Tracked
					run.FlowFull += v.Counters.FlowFull
					run.FlowReplaced += v.Counters.FlowReplaced
				}
			}
		}
	}
	return nil
}

// schemes are those that share this runner's lab.
func (r *runner) schemes() (names []string) {
	for _, run := range r.result.Runs {
		if !slices.Contains(names, run.Scheme) {
			names = append(names, run.Scheme)
		}
	}
	return names
}

// judgeFlood says what is not as it must be, beside broken connections.
func (r *runner) judgeFlood(say func(string, ...any)) {
	replaced, tracks := uint64(0), false
	for _, run := range r.result.Runs {
		replaced += run.FlowReplaced + run.FlowFull
		tracks = tracks || run.row().Tracks != vip.None
		if run.row().Tracks == vip.All && run.Broken == 0 && (run.Drained == nil || *run.Drained > 0) {
			say("%s: no connection broken, so the flood proves nothing about the others", run.Name())
		}
		if run.Connections != r.o.Scale.Connections {
			say("%s: %d connections, must be %d", run.Name(), run.Connections, r.o.Scale.Connections)
		}
	}
	if replaced == 0 && tracks {
		say("the flood never filled the flow tables of %v, so it proves nothing: raise --rate", r.schemes())
	}
}

// discardFloods makes the router drop what goes back to a flood's sources; it
// runs in the router's namespace.
func discardFloods() error {
	for _, p := range floodSources {
		_, to, err := net.ParseCIDR(p.String())
		if err != nil {
			return err
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: to, Type: unix.RTN_BLACKHOLE}); err != nil {
			return fmt.Errorf("route %s into nothing: %w", p, err)
		}
	}
	return nil
}

// floodClient is the process in the client's namespace that floods.
type floodClient struct {
	*piped
	last FloodReport
	err  error
	done chan struct{}
}

// startFlood floods all VIPs, for limit at most.
func (r *runner) startFlood(ctx context.Context, limit time.Duration) (*floodClient, error) {
	plan := FloodPlan{Seed: r.o.Seed, Rate: r.o.Rate, Seconds: min(limit.Seconds(), MaxFloodSeconds)}
	for _, v := range r.lab.VIPs {
		plan.Targets = append(plan.Targets, netip.AddrPortFrom(v.Address, uint16(v.Port)))
	}
	return r.lab.startAttacker(ctx, "client", plan)
}

// startAttacker starts what a plan says in a machine's namespace.
func (l *Lab) startAttacker(ctx context.Context, machine string, plan FloodPlan) (*floodClient, error) {
	err := netspace.In(l.namespace("router"), func() error {
		port, err := netlink.LinkByName("client")
		if err == nil {
			plan.Gateway = port.Attrs().HardwareAddr
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	piped, err := l.startPiped(ctx, machine, "flood", "flood")
	if err != nil {
		return nil, err
	}
	f := &floodClient{piped: piped, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		var err error
		for err == nil && !f.last.Done {
			err = f.output.Decode(&f.last)
		}
		if waitErr := f.cmd.Wait(); waitErr != nil || err != nil {
			f.err = fmt.Errorf("flood: %w: %s", errors.Join(err, waitErr), f.errors)
		}
	}()
	if err := json.NewEncoder(f.input).Encode(plan); err != nil {
		f.stop()
		return nil, fmt.Errorf("send plan to flood: %w", err)
	}
	return f, nil
}

func (f *floodClient) ended() bool { return isClosed(f.done) }

// stop ends the flood if it goes on.
func (f *floodClient) stop() {
	f.input.Close()
	<-f.done
}

// end ends the flood and says what it sent.
func (f *floodClient) end() (FloodReport, error) {
	f.stop()
	return f.last, f.err
}
