package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/vip"
)

// Scenario drain-switch: hosts of scheme faild drain one after the other, each
// of them one that still passes on what the one before gave it; then one
// crashes, a switch drains, and flows go from switch to switch. Beside it, on
// the same switches and servers, what the kernel offers: members are removed
// from a plain ECMP group and from a resilient one.

// DrainScale is scenario drain-switch as it is judged: connections of each VIP
// of scheme faild, the same number of flows that are looked up, and half as
// many connections through the groups beside it.
var DrainScale = Scale{Connections: 2000, Slot: 3 * time.Second, Pause: 8 * time.Second}

const (
	// resilientBuckets of the resilient group.
	resilientBuckets = 1024
	// Repointing is measured with that many nexthops, that often, in so many
	// blocks, of which the fastest counts: what else goes on at the machine
	// disturbs it least.
	repointNexthops, repointRounds, repointBlocks = 1024, 100, 5
	// maxRepoint bounds its 95th percentile (the paper: 119 and 134 ms).
	maxRepoint = 5 * time.Millisecond
	// plainGroup and resilientGroup are ids of nexthops that are not
	// Fairlead's, a range of a hundred for each VIP.
	plainGroup, resilientGroup = 1000, 2000
)

// DrainCount is what one change did to the flows of one VIP.
type DrainCount struct {
	Run    string `json:"run"`
	Change string `json:"change"`
	// Flows that were looked up before and after, at every switch.
	Flows int `json:"flows"`
	// OnServer went to the servers that the change takes away; Moved are
	// others that go to another server than before.
	OnServer int `json:"on_server"`
	Moved    int `json:"moved"`
	// Broken and LostWithServer are the connections that ended so by then.
	Broken         int `json:"broken"`
	LostWithServer int `json:"lost_with_server"`
	// SwitchesDiffer are flows that the switches give to different servers.
	SwitchesDiffer int `json:"switches_differ"`
}

// Repoint is how long it takes to point all nexthops to other hosts.
type Repoint struct {
	Nexthops int     `json:"nexthops"`
	Rounds   int     `json:"rounds"`
	Blocks   int     `json:"blocks"` // of so many rounds each; the fastest one's figures follow
	MedianMs float64 `json:"median_ms"`
	P95Ms    float64 `json:"p95_ms"`
	MaxMs    float64 `json:"max_ms"`
	Timing
}

// drainParts puts the kernel's groups beside scheme faild.
func (o RunOptions) drainParts() []part {
	o.Schemes = append(slices.Clone(o.Schemes), plainECMP, resilientECMP)
	return []part{{runs: o.runs()}}
}

// drainSwitch is scenario drain-switch.
func (r *runner) drainSwitch(ctx context.Context) error {
	c := r.churn()
	groups, err := r.addGroups()
	if err != nil {
		return err
	}
	var faild, others []RunTally
	for _, run := range r.result.Runs {
		if run.row().Switched {
			faild = append(faild, run)
		} else {
			others = append(others, run)
		}
	}
	if err := r.open(ctx, r.steadyPlan("faild", r.o.Scale.Connections, faild)); err != nil {
		return err
	}
	if err := r.open(ctx, r.steadyPlan("others", r.o.Scale.Connections/2, others)); err != nil {
		return err
	}
	c.load = r.load
	r.note("all connections live")
	for _, s := range r.drains(c, groups) {
		if err := r.counted(ctx, s); err != nil {
			return err
		}
		// Every connection shall speak by the way that it has now.
		if err := r.until(ctx, time.Now().Add(r.o.Scale.Pause+r.o.Scale.Slot)); err != nil {
			return err
		}
		r.countEnded()
	}
	if err := r.end(ctx); err != nil {
		return err
	}
	r.countEnded()
	r.judgeDrains()
	return r.repoint()
}

// drainStep is a change that takes servers away.
type drainStep struct {
	step
	servers []string
}

// drains are the changes; the seed chooses the servers.
func (r *runner) drains(c *churn, groups []group) []drainStep {
	order := c.random.Perm(r.lab.Servers)
	role := func(i int) string { return r.lab.servers()[order[i]] }
	var steps []drainStep
	for i, how := range []string{"drains", "drains, and passes on what the one before gave it", "drains, and passes on what the two before gave it"} {
		server := role(i)
		steps = append(steps, drainStep{servers: []string{server}, step: step{text: server + " " + how, do: func(ctx context.Context) error {
			if err := c.drain(ctx, server); err != nil {
				return err
			}
			if err := c.awaitNone(ctx, server); err != nil {
				return err
			}
			return r.removeMember(groups, server)
		}}})
	}
	crashed, drained := role(3), 1+c.random.IntN(r.lab.LBs)
	return append(steps,
		drainStep{servers: []string{crashed}, step: step{text: crashed + " crashes, with what it passes on of others' connections", do: func(ctx context.Context) error {
			if err := c.crash(crashed); err != nil {
				return err
			}
			if err := c.awaitNone(ctx, crashed); err != nil {
				return err
			}
			return r.removeMember(groups, crashed)
		}}},
		drainStep{step: step{text: c.lab.front(drained) + " drains; the router drops it as its routes go",
			do: func(ctx context.Context) error { return c.drainSwitch(ctx, drained, true) }}},
		drainStep{step: step{text: c.lab.front(drained) + " is announced again; the router reshuffles",
			do: func(ctx context.Context) error { return c.drainSwitch(ctx, drained, false) }}},
	)
}

// awaitNone waits until no switch has a nexthop for the server.
func (c *churn) awaitNone(ctx context.Context, server string) error {
	for _, front := range c.lab.fronts() {
		for !c.gone[front] {
			status, err := c.lab.daemonStatus(ctx, front)
			if err == nil && status.Switch != nil {
				left := uint32(0)
				for _, h := range status.Switch.Hosts {
					if c.lab.machineName(h.Server) == server {
						left += h.Nexthops
					}
				}
				if left == 0 {
					break
				}
			}
			if sleep(ctx, 50*time.Millisecond) != nil {
				return fmt.Errorf("%s still gives nexthops to %s: %w", front, server, context.Cause(ctx))
			}
		}
	}
	return nil
}

// counted makes a change and counts the flows that it moved.
func (r *runner) counted(ctx context.Context, s drainStep) error {
	before, err := r.places()
	if err != nil {
		return err
	}
	if err := r.change(ctx, s.step); err != nil {
		return err
	}
	after, err := r.places()
	if err != nil {
		return err
	}
	for i, run := range r.result.Runs {
		d := DrainCount{Run: run.Name(), Change: s.text, Flows: len(before[0][i])}
		for f := range before[0][i] {
			differ := false
			for sw := range before {
				was, is := before[sw][i][f], after[sw][i][f]
				differ = differ || is != after[0][i][f]
				switch {
				case sw > 0:
				case slices.Contains(s.servers, was):
					d.OnServer++
				case was != is:
					d.Moved++
				}
			}
			if differ {
				d.SwitchesDiffer++
			}
		}
		r.result.Drains = append(r.result.Drains, d)
	}
	return nil
}

// countEnded takes down, for the latest change, how many connections ended.
func (r *runner) countEnded() {
	tallies := r.load.report().Tallies
	latest := r.result.Drains[len(r.result.Drains)-len(r.result.Runs):]
	for i := range latest {
		t := tallies[latest[i].Run]
		latest[i].Broken, latest[i].LostWithServer = t.Broken, t.LostWithServer
	}
}

// judgeDrains says what is not as it must be, beside broken connections.
func (r *runner) judgeDrains() {
	say := func(format string, args ...any) {
		r.result.Verdict = append(r.result.Verdict, fmt.Sprintf(format, args...))
	}
	moved := map[string]int{}
	for _, d := range r.result.Drains {
		scheme, _, _ := strings.Cut(d.Run, "-")
		moved[scheme] += d.Moved
		if vip.Scheme(scheme).Row().Switched && (d.Moved > 0 || d.SwitchesDiffer > 0) {
			say("%s: %s: %d of %d flows moved that were on other servers, %d differ between switches, must be 0", d.Run, d.Change, d.Moved, d.Flows, d.SwitchesDiffer)
		}
	}
	if moved[plainECMP] == 0 {
		say("%s: no flow moved, so the drains prove nothing about the others", plainECMP)
	}
	for _, run := range r.result.Runs {
		if run.Scheme == resilientECMP && run.Broken == 0 {
			say("%s: no connection broken, so the drains prove nothing about the others", run.Name())
		}
	}
}
