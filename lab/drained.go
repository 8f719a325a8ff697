package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scenario synflood with drains instead of its other changes: the figure of
// Beamer's paper (a flood of SYNs at two muxes, 8 servers, 700 connections,
// 0, 1, 2 and 4 servers drained: a stateful balancer loses 0, 87, 148 and 351
// of them, Beamer none).

// DrainedScale is that experiment: connections of each VIP, and the time from
// one drain to the next.
var DrainedScale = Scale{Connections: 700, Slot: time.Second, Pause: 12 * time.Second}

var drainedSize = size{8, 8, 2, 2}

// maxDrained leaves a server that takes what the others give up.
var maxDrained = drainedSize.servers - 1

// fillDrained checks Drained, and fills in the paper's numbers for beamer.
func (o *RunOptions) fillDrained() error {
	if o.Scenario != "synflood" {
		if o.Drained != nil {
			return fmt.Errorf("--drained is of scenario synflood, not of %s", o.Scenario)
		}
		return nil
	}
	if o.Drained == nil {
		if !slices.Contains(o.Schemes, "beamer") {
			return nil
		}
		o.Drained = []int{0, 1, 2, 4}
		if !slices.Contains(o.Schemes, "full-ct") { // what it is compared with
			o.Schemes = append(slices.Clone(o.Schemes), "full-ct")
		}
	}
	for _, n := range o.Drained {
		if n < 0 || n > maxDrained {
			return fmt.Errorf("--drained %d: must be 0 to %d of the %d servers", n, maxDrained, drainedSize.servers)
		}
	}
	if slices.Contains(o.Schemes, "faild") {
		return fmt.Errorf("--drained: scheme faild has no balancers to flood; take beamer, and full-ct beside it")
	}
	return nil
}

// drainedParts is a lab for each number of drained servers.
func (o RunOptions) drainedParts() (parts []part) {
	for _, n := range o.Drained {
		p := part{drained: n}
		for _, run := range o.runs() {
			run.Drained = &n
			p.runs = append(p.runs, run)
		}
		parts = append(parts, p)
	}
	return parts
}

// drainSteps drains that many servers of the seed's choice, all at once.
func (c *churn) drainSteps(count int) []step {
	if count == 0 {
		return nil
	}
	var names []string
	for _, n := range c.random.Perm(drainedSize.servers)[:count] {
		names = append(names, fmt.Sprint("server", n+1))
	}
	slices.Sort(names)
	return []step{{text: strings.Join(names, ", ") + " drain: no new connections",
		do: func(ctx context.Context) error { return c.lab.apply(ctx, nil, names) }}}
}

// apply writes into the lab's file which servers are set to work from standby
// and which drain, and applies it: one change.
func (l *Lab) apply(ctx context.Context, added, drained []string) error {
	data, err := os.ReadFile(l.ConfigPath())
	if err != nil {
		return err
	}
	text := string(data)
	for _, s := range added {
		name := l.daemonName(s)
		text = strings.ReplaceAll(text, "{name: "+name+", standby: true}", name)
	}
	for _, s := range drained {
		name := l.daemonName(s)
		// In the lists of the VIPs alone.
		text = regexp.MustCompile(`(servers: \[.*\b)`+name+`\b`).ReplaceAllString(text, "${1}{name: "+name+", drain: true}")
	}
	if err := os.WriteFile(l.ConfigPath(), []byte(text), 0o600); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, l.Program, "apply", "-f", l.ConfigPath()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("apply %s: %w: %s", l.ConfigPath(), err, out)
	}
	return nil
}
