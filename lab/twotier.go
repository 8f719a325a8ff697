package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/vip"
)

// Scenario two-tier: balancers of both tiers come, drain and die under traffic, beside
// changes of servers. VIPs whose cookies name balancer and server must keep every
// connection; full-ct behind one tier, whose balancers know what they have seen alone,
// is the one to compare with.

// twoTierSize: lb1 and lb2 are tier one, lb3 and lb4 tier two; lb5 and lb6 wait, one of
// each.
var (
	twoTierSize = size{churnServers, churnActiveServers, 6, 4}
	secondTier  = []int{3, 4, 6}
)

// TwoTierScale is the scenario as it is judged. A death is noticed by health checks, so
// that a slot is longer than a churn's.
var TwoTierScale = Scale{Connections: 1500, Slot: 4 * time.Second}

// tiers gives VIPs with cookies two tiers, with each forwarding between them in turn.
func (o RunOptions) tiers(vips []VIP) {
	for i := range vips {
		if v := &vips[i]; v.row().Tiers {
			names := vip.ForwardingNames()
			v.Tiers = names[i%len(names)]
			if v.row().Seats > 0 {
				v.SeatBits = 6 // beside 4 of a tier and 4 of a slot
			}
		}
	}
}

// twoTierSteps are the changes in one possible order.
func (c *churn) twoTierSteps() []step {
	order := c.random.Perm(churnActiveServers)
	role := func(i int) string { return fmt.Sprint("server", order[i]+1) }
	drained, failed, paused := role(0), role(1), role(2)
	dies, drains := 3+c.random.IntN(2), 0
	drains = 7 - dies
	front := 1 + c.random.IntN(2)
	lb := c.lab.front
	return []step{
		{name: "rotate", text: "key rotated", do: c.rotate},
		{name: "add", text: "server7 added", do: func(ctx context.Context) error { return c.add(ctx, "server7") }},
		{name: "drain", text: drained + " drains", do: func(ctx context.Context) error { return c.drain(ctx, drained) }},
		{name: "fail", text: failed + " fails its health checks; its connections live on",
			do: func(ctx context.Context) error { return c.fail(ctx, true, failed) }},
		{name: "recover", text: failed + " is well again", after: "fail", gap: 1,
			do: func(ctx context.Context) error { return c.fail(ctx, false, failed) }},
		{name: "kill host", text: paused + "'s agent killed and started again",
			do: func(ctx context.Context) error { return c.restart(ctx, paused) }},
		{name: "reshuffle", text: c.reshuffleText(), do: func(context.Context) error { return c.reshuffle() }},
		{name: "tier two drains", text: lb(drains) + " of tier two drains", do: func(ctx context.Context) error { return c.drain(ctx, lb(drains)) }},
		{name: "tier two is back", text: lb(drains) + " of tier two takes new connections again", after: "tier two drains", gap: 1,
			do: func(ctx context.Context) error { return c.undrain(ctx, lb(drains)) }},
		{name: "tier two joins", text: lb(6) + " of tier two joins", do: func(ctx context.Context) error { return c.joinTierTwo(ctx, 6) }},
		{name: "tier two's daemon", text: lb(drains) + "'s daemon of tier two killed and started again", after: "tier two is back", gap: 1,
			do: func(ctx context.Context) error { return c.restart(ctx, lb(drains)) }},
		{name: "tier two dies", text: lb(dies) + " of tier two loses power", after: "tier two is back", gap: 1,
			do: func(ctx context.Context) error { return c.loseTierTwo(ctx, dies) }},
		{name: "tier one's daemon", text: lb(front) + "'s daemon of tier one killed and started again",
			do: func(ctx context.Context) error { return c.restart(ctx, lb(front)) }},
		{name: "tier one joins", text: lb(5) + " of tier one joins", do: func(ctx context.Context) error { return c.joinFront(ctx, 5) }},
		{name: "tier one dies", text: lb(3-front) + " of tier one loses power; the router drops it", after: "tier one's daemon", gap: 1,
			do: func(ctx context.Context) error { return c.loseFront(ctx, 3-front) }},
	}
}

// twoTier is the scenario.
func (r *runner) twoTier(ctx context.Context) error {
	c := r.churn()
	steps, err := r.chosen(c.twoTierSteps())
	if err == nil && r.o.Scale.Steps == nil {
		steps, err = c.arrange(steps)
	}
	if err != nil {
		return err
	}
	if err := r.loaded(ctx, c, steps); err != nil {
		return err
	}
	r.result.Tiers = r.lab.tierReasons(ctx)
	if died := slices.ContainsFunc(steps, func(s step) bool { return s.name == "tier two dies" }); died && r.tiered() {
		for _, reason := range []string{"forward_tier_down", "forward_other_tier"} {
			if r.result.Tiers[reason] == 0 {
				r.result.Verdict = append(r.result.Verdict, fmt.Sprintf("no packet counted as %s, so a death in tier two met no connection and proves nothing", reason))
			}
		}
	}
	return nil
}

func (r *runner) tiered() bool {
	return slices.ContainsFunc(r.lab.VIPs, func(v VIP) bool { return v.Tiers != "" })
}

// judgeOneTier: behind one tier, whose balancers break a few in a thousand, some connection
// of some family broke.
func (r *runner) judgeOneTier(say func(string, ...any)) {
	var one, broken int
	for _, run := range r.result.Runs {
		if !run.mustHold() {
			one, broken = one+1, broken+run.Broken
		}
	}
	if one > 0 && broken == 0 {
		say("no connection broken behind one tier, so the run proves nothing about two")
	}
}

// tierReasons adds up what balancers that answer counted of what only tiers count.
func (l *Lab) tierReasons(ctx context.Context) Counters {
	sums := Counters{}
	for _, front := range l.fronts() {
		status, err := l.daemonStatus(ctx, front)
		if err != nil {
			continue // dead
		}
		for _, reason := range status.Reasons {
			if name := strings.ToLower(reason.Name); strings.Contains(name, "tier") && reason.Packets > 0 {
				sums[name] += reason.Packets
			}
		}
	}
	return sums
}

// joinTierTwo starts a balancer of tier two and has it take connections.
func (c *churn) joinTierTwo(ctx context.Context, n int) error {
	if err := c.lab.StartDaemon(ctx, c.lab.front(n)); err != nil {
		return err
	}
	delete(c.gone, c.lab.front(n))
	return c.undrain(ctx, c.lab.front(n))
}

// loseTierTwo takes a balancer of tier two away as a loss of power does, and waits until
// all of tier one have noticed by their checks.
func (c *churn) loseTierTwo(ctx context.Context, n int) error {
	name := c.lab.front(n)
	c.gone[name] = true
	if err := c.lab.crash(name); err != nil {
		return err
	}
	for i, front := range c.lab.fronts() {
		for !c.gone[front] && !slices.Contains(secondTier, i+1) {
			status, err := c.lab.daemonStatus(ctx, front)
			if err == nil && holdsDown(status, c.lab.daemonName(name)) {
				break
			}
			if sleep(ctx, 50*time.Millisecond) != nil {
				return fmt.Errorf("%s has not noticed that %s is dead: %w", front, name, errors.Join(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}

// holdsDown: a balancer of tier one holds one of tier two for down in all VIPs that have it.
func holdsDown(status *fairleadv1.GetStatusResponse, name string) bool {
	for _, v := range status.Vips {
		for _, s := range v.Slots {
			if s.Server == name && s.Health != fairleadv1.Health_HEALTH_DOWN {
				return false
			}
		}
	}
	return true
}
