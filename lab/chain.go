package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/sim"
)

// Scenario chain: one server has all buckets, then the next one has, and so
// on, so that every bucket is reassigned three times while connections live
// on each server that had it:
//
//	server1 ─▶ server2 ─▶ server3 ─▶ server4
//	 3 ago      2 ago      1 ago      current
//
// A connection that the first server owns goes through all four in the end.

// ChainScale is scenario chain as it is judged: connections of each VIP on the
// first server, of which each speaks at least every Pause.
var ChainScale = Scale{Connections: 2000, Slot: 3 * time.Second, Pause: 8 * time.Second}

const (
	// chainLater is which share of ChainScale's connections each later
	// server gets.
	chainLater = 8
	// chainBrief is the chain time of half of scheme beamer's VIPs: shorter
	// than the scenario, so that their chains last only because their
	// servers say that they own connections.
	chainBrief = 10 * time.Second
	// chainPatience is how long a load may have to wait for the last change.
	chainPatience = 5 * time.Minute
)

// ChainStage is what scenario chain opened while one server had all buckets.
type ChainStage struct {
	Server string `json:"server"`
	// Reassigned is how often every bucket went to another server since.
	Reassigned int   `json:"reassigned"`
	Tally      Tally `json:"tally"` // of all VIPs
}

// chain is scenario chain.
func (r *runner) chain(ctx context.Context) error {
	c := r.churn()
	servers := r.lab.servers()
	// Connections that come and go meanwhile.
	plan := r.plan(time.Duration(len(servers)) * (r.o.Scale.Slot + r.o.Scale.Pause))
	plan.Short, plan.Stream, plan.Upload, plan.Idle = plan.Short/chainLater, plan.Stream/chainLater, plan.Upload/chainLater, plan.Idle/chainLater
	mixed, err := r.lab.startLoad(ctx, plan)
	if err != nil {
		return err
	}
	r.load = loads{mixed}
	c.load = r.load
	for i, server := range servers {
		if i > 0 {
			if err := r.change(ctx, step{text: "every bucket goes from " + servers[i-1] + " to " + server,
				do: func(ctx context.Context) error { return c.replace(ctx, servers[i-1], server) }}); err != nil {
				return err
			}
		}
		plan := r.steady(i)
		if err := r.open(ctx, plan); err != nil {
			return err
		}
		c.load = r.load
		r.note(fmt.Sprintf("%d connections to each VIP live on %s", plan.Steady, server))
		// Every connection shall speak by way of the servers that there are.
		if err := r.until(ctx, time.Now().Add(r.o.Scale.Pause+r.o.Scale.Slot)); err != nil {
			return err
		}
	}
	if err := r.end(ctx); err != nil {
		return err
	}
	for i, l := range r.load[1:] {
		stage := ChainStage{Server: servers[i], Reassigned: len(servers) - 1 - i}
		for _, t := range l.report().Tallies {
			stage.Tally = stage.Tally.add(t)
		}
		r.result.Chain = append(r.result.Chain, stage)
	}
	return r.detour(ctx, c)
}

// steady is the load that opens while server number i has all buckets.
func (r *runner) steady(i int) LoadPlan {
	n := r.o.Scale.Connections
	if i > 0 {
		n /= chainLater
	}
	return r.steadyPlan(fmt.Sprint("steady", i), n, r.result.Runs)
}

// steadyPlan is n connections to each of the runs' VIPs that speak now and
// then until the scenario is over.
func (r *runner) steadyPlan(purpose string, n int, runs []RunTally) LoadPlan {
	return LoadPlan{Device: uplink, Seed: sim.Stream(r.o.Seed, purpose).Uint64(), Steady: n, Settle: float64(n) / settleRate,
		Pause: r.o.Scale.Pause.Seconds(), Seconds: chainPatience.Seconds(), Targets: r.targets(runs)}
}

// replace puts a server to work, drains another, and waits until every front
// sends all new connections to the former.
func (c *churn) replace(ctx context.Context, old, next string) error {
	if err := c.join(ctx, next); err != nil {
		return err
	}
	if err := c.drain(ctx, old); err != nil {
		return err
	}
	for _, front := range c.lab.fronts() {
		for !c.gone[front] {
			status, err := c.lab.daemonStatus(ctx, front)
			if err == nil && c.lab.hasAll(status, next) {
				break
			}
			if sleep(ctx, 50*time.Millisecond) != nil {
				return fmt.Errorf("%s does not give every bucket to %s: %w", front, next, context.Cause(ctx))
			}
		}
	}
	return nil
}

// join adds a server, or takes it back where it drained.
func (c *churn) join(ctx context.Context, server string) error {
	if c.member[server] {
		return c.undrain(ctx, server)
	}
	return c.add(ctx, server)
}

// hasAll tells whether a front gives a machine every bucket of every VIP.
func (l *Lab) hasAll(s *fairleadv1.GetStatusResponse, machine string) bool {
	if s.Switch != nil {
		return !slices.ContainsFunc(s.Switch.Hosts, func(h *fairleadv1.SwitchHost) bool {
			return h.Nexthops > 0 && l.machineName(h.Server) != machine
		})
	}
	for _, v := range s.Vips {
		for _, slot := range v.Slots {
			if slot.Buckets > 0 && l.machineName(slot.Server) != machine {
				return false
			}
		}
	}
	return true
}
