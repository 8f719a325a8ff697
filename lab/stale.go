package lab

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// Scenario stale-mux: a balancer's daemon dies, or is cut off from everybody,
// while the others go on from version to version. Its programs still forward
// by the table that was. The router spreads flows over all balancers, then
// over the fresh ones, again and again, so that connections open by one table
// and live by the other; what a stale balancer cannot place is dropped, and
// the client's repetition finds a fresh one.

// StaleScale is scenario stale-mux as it is judged.
var StaleScale = Scale{Connections: 2000, Slot: 3 * time.Second}

// staleSteps are the changes that a stale balancer misses: no bucket moves
// more often than a chain is long.
func (c *churn) staleSteps() []step {
	servers := c.lab.servers()
	order := c.random.Perm(c.lab.ActiveServers)
	role := func(i int) string { return servers[order[i]] }
	spare := servers[c.lab.ActiveServers:]
	stale := 1 + c.random.IntN(c.lab.LBs)
	cutOff := c.random.IntN(2) == 1
	name := c.lab.front(stale)
	text := name + "'s daemon is killed, its programs go on"
	if cutOff {
		text = name + "'s daemon is cut off (stopped), its programs go on"
	}
	mixed := func() step {
		return step{text: "router reshuffles flows over all balancers, " + name + " among them",
			do: func(context.Context) error { return c.reshuffle() }}
	}
	fresh := func() step {
		return step{text: "router takes " + name + " out", do: func(context.Context) error { return c.without(stale) }}
	}
	return []step{
		{text: text, do: func(context.Context) error { return c.makeStale(stale, cutOff) }},
		{text: spare[0] + " added", do: func(ctx context.Context) error { return c.add(ctx, spare[0]) }},
		mixed(), fresh(),
		{text: role(0) + " drains", do: func(ctx context.Context) error { return c.drain(ctx, role(0)) }},
		mixed(), fresh(),
		{text: role(1) + " fails its health checks; its connections live on", do: func(ctx context.Context) error { return c.fail(ctx, true, role(1)) }},
		mixed(), fresh(),
		{text: role(1) + " is well again", do: func(ctx context.Context) error { return c.fail(ctx, false, role(1)) }},
		{text: spare[1] + " and " + spare[2] + " added together", do: func(ctx context.Context) error { return c.add(ctx, spare[1], spare[2]) }},
		mixed(), fresh(),
		{text: name + " is back and takes in what it missed", do: func(ctx context.Context) error { return c.makeFresh(ctx, stale, cutOff) }},
		mixed(),
		{text: role(0) + " takes new connections again", do: func(ctx context.Context) error { return c.undrain(ctx, role(0)) }},
		mixed(),
		{text: role(2) + " drains", do: func(ctx context.Context) error { return c.drain(ctx, role(2)) }},
		mixed(),
	}
}

// stale is scenario stale-mux.
func (r *runner) stale(ctx context.Context) error {
	c := r.churn()
	return r.loaded(ctx, c, c.staleSteps())
}

// makeStale kills a balancer's daemon, or stops it so that it answers nobody.
func (c *churn) makeStale(n int, cutOff bool) error {
	name := c.lab.front(n)
	c.gone[name] = true
	if !cutOff {
		return c.lab.KillDaemon(name)
	}
	return c.signal(name, syscall.SIGSTOP)
}

// makeFresh starts it again, and waits until it has the newest version.
func (c *churn) makeFresh(ctx context.Context, n int, cutOff bool) error {
	name := c.lab.front(n)
	if cutOff {
		if err := c.signal(name, syscall.SIGCONT); err != nil {
			return err
		}
		if err := c.lab.awaitDaemon(ctx, name); err != nil {
			return err
		}
	} else if err := c.lab.StartDaemon(ctx, name); err != nil {
		return err
	}
	other := c.lab.front(n%c.lab.LBs + 1)
	for {
		theirs, err := c.lab.daemonStatus(ctx, other)
		if err == nil {
			var its *fairleadv1.GetStatusResponse
			if its, err = c.lab.daemonStatus(ctx, name); err == nil && its.AssignmentVersion == theirs.AssignmentVersion && len(its.NotReady) == 0 {
				delete(c.gone, name)
				return nil
			}
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("%s has not taken in what %s has: %w", name, other, context.Cause(ctx))
		}
	}
}

func (c *churn) signal(machine string, s syscall.Signal) error {
	pid := c.lab.pid(machine, machine)
	if pid == 0 {
		return fmt.Errorf("the daemon of %s is not running", machine)
	}
	return syscall.Kill(pid, s)
}

// without makes the router use the other fronts alone.
func (c *churn) without(n int) error {
	others := slices.DeleteFunc(slices.Clone(c.ecmp), func(o int) bool { return o == n })
	return c.lab.setRoutes(others, c.random.Uint32())
}
