package lab

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/lab/netspace"
)

// Scenario parted: five machines with three controllers among them are parted in
// two, in every way that there is; on both sides somebody drains a server, or takes
// that back, under traffic. The side with most of the controllers may do so; the
// other is refused. When they meet again there is one history, what was
// acknowledged stands, and what was refused does not.
//
//	lb1 (ctl1)   server1 (ctl2)   lb2 (ctl3)   server2   server3
//
// Parted are the daemons' and the controllers' own connections. Clients' packets
// and tunnels go on, as they would where only the managing network fails.

// PartedScale is the scenario as it is judged; a partition takes as long as it takes.
var PartedScale = Scale{Connections: 500, Slot: 16 * time.Second}

var partedSize = size{3, 3, 2, 2}

// Partition is one of them, and what became of it.
type Partition struct {
	// Major has most of the controllers, Minor the others, which may be nobody's.
	Major []string `json:"major"`
	Minor []string `json:"minor"`
	// Majority and Minority are what was tried there, and what was answered:
	// "done", or why not.
	Majority string `json:"majority"`
	Minority string `json:"minority"`
	// Healed is how long, in seconds, until all had one version again.
	Healed float64 `json:"healed_seconds"`
	// Version is that one's, and Digests how many there were under it.
	Version uint64 `json:"version"`
	Digests int    `json:"digests"`
}

// parted is the runner's partitions.
type parted struct {
	*runner
	machines []string
	// drained is whether each server shall be, by what was acknowledged.
	drained map[string]bool
	done    []Partition
	wrong   []string
}

func (r *runner) parted(ctx context.Context) error {
	p := &parted{runner: r, machines: append(r.lab.fronts(), r.lab.servers()...), drained: map[string]bool{}}
	halves := r.o.Scale.Steps // machines of the half without lb1, each
	for n := 1; r.o.Scale.Steps == nil && n < 1<<(len(p.machines)-1); n++ {
		var away []string
		for i, m := range p.machines[1:] {
			if n>>i&1 != 0 {
				away = append(away, m)
			}
		}
		halves = append(halves, strings.Join(away, " "))
	}
	var steps []step
	for _, half := range halves {
		away := strings.Fields(half)
		near := slices.DeleteFunc(slices.Clone(p.machines), func(m string) bool { return slices.Contains(away, m) })
		steps = append(steps, step{text: strings.Join(near, ", ") + " | " + strings.Join(away, ", "),
			do: func(ctx context.Context) error { return p.part(ctx, near, away) }})
	}
	err := r.loaded(ctx, r.churn(), steps)
	r.result.Partitions = p.done
	r.result.Verdict = append(r.result.Verdict, p.wrong...)
	return err
}

// controllersOn counts the controllers on machines.
func (p *parted) controllersOn(machines []string) (n int) {
	for _, c := range p.lab.controllers() {
		if slices.Contains(machines, c.machine) {
			n++
		}
	}
	return n
}

// part is one partition from beginning to end.
func (p *parted) part(ctx context.Context, a, b []string) error {
	if p.controllersOn(a) < p.controllersOn(b) {
		a, b = b, a
	}
	now := Partition{Major: a, Minor: b}
	say := func(format string, args ...any) {
		p.wrong = append(p.wrong, strings.Join(a, " ")+" | "+strings.Join(b, " ")+": "+fmt.Sprintf(format, args...))
	}
	if err := p.cut(a, b, true); err != nil {
		return err
	}
	var tries sync.WaitGroup
	tries.Go(func() { now.Majority = p.try(ctx, a, "server2") })
	tries.Go(func() { now.Minority = p.try(ctx, b, "server3") })
	tries.Wait()
	if now.Majority == "done" {
		p.drained["server2"] = !p.drained["server2"]
	} else {
		say("the majority's change was refused: %s", now.Majority)
	}
	if now.Minority == "done" {
		p.drained["server3"] = !p.drained["server3"]
		say("the minority's change was acknowledged")
	}
	if err := p.cut(a, b, false); err != nil {
		return err
	}
	began := time.Now()
	var last string
	healed := netspace.WaitFor(readyWait, func() bool {
		last = p.agree(ctx, &now)
		return last == "" || ctx.Err() != nil
	})
	now.Healed = time.Since(began).Seconds()
	if !healed {
		say("%v after they met again: %s", readyWait, last)
	}
	p.done = append(p.done, now)
	return ctx.Err()
}

// try drains a server, or takes that back, by a command on the first of machines.
func (p *parted) try(ctx context.Context, machines []string, server string) string {
	verb := "drain"
	if p.drained[server] {
		verb = "undrain"
	}
	args := []string{verb, p.lab.daemonName(server), "-f", p.lab.ConfigPath()}
	for _, m := range p.machines { // the command asks those that it may reach
		if !slices.Contains(machines, m) {
			args = append(args, "--without", p.lab.daemonName(m))
		}
	}
	said, err := p.lab.command(ctx, machines[0], args...)
	if err != nil {
		return said
	}
	return "done"
}

// agree says why not all daemons have one assignment, which is what was acknowledged.
func (p *parted) agree(ctx context.Context, now *Partition) string {
	digests := map[string]bool{}
	for _, m := range p.machines {
		s, err := p.lab.daemonStatus(ctx, m)
		if err != nil {
			return m + ": " + err.Error()
		}
		for _, w := range s.Warnings {
			if strings.HasPrefix(w, "what is in force goes on, and changes wait") {
				return m + ": " + w
			}
		}
		now.Version = s.AssignmentVersion
		digests[fmt.Sprintf("version %d %s", s.AssignmentVersion, hex.EncodeToString(s.AssignmentDigest[:4]))] = true
		for _, v := range s.Vips {
			for _, slot := range v.Slots {
				machine := p.lab.machineName(slot.Server)
				if is := slot.State == fairleadv1.SlotState_SLOT_STATE_DRAINING; is != p.drained[machine] {
					return fmt.Sprintf("%s has %s of VIP %s in state %v", m, machine, v.Name, slot.State)
				}
			}
		}
	}
	now.Digests = len(digests)
	if len(digests) != 1 {
		return fmt.Sprintf("there are %d assignments: %v", len(digests), digests)
	}
	return ""
}

// cut takes from machines of both sides the way to the other's daemons and
// controllers, or gives it back.
func (p *parted) cut(a, b []string, cut bool) error {
	for _, sides := range [][2][]string{{a, b}, {b, a}} {
		for _, m := range sides[0] {
			err := netspace.In(p.lab.namespace(m), func() error {
				for _, other := range sides[1] {
					if err := ruleOut(p.lab.exposedAt(other).Addr(), cut); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("part %s: %w", m, err)
			}
		}
	}
	return nil
}

// ruleOut loses what this machine sends to the other's ports, and from its own.
func ruleOut(to netip.Addr, cut bool) error {
	for _, port := range []uint16{exposedPort, controlPort, storePort, peerPort} {
		for _, own := range []bool{false, true} {
			if err := lose(to, port, own, cut); err != nil {
				return err
			}
		}
	}
	return nil
}

// lose loses what this machine sends to a port of another, or from its own one to
// it, or no longer.
func lose(to netip.Addr, port uint16, own, cut bool) error {
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Type, rule.IPProto = unix.AF_INET, 10, unix.RTN_BLACKHOLE, unix.IPPROTO_TCP
	rule.Dst = &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(32, 32)}
	if own {
		rule.Sport = netlink.NewRulePortRange(port, port)
	} else {
		rule.Dport = netlink.NewRulePortRange(port, port)
	}
	change := netlink.RuleDel
	if cut {
		change = netlink.RuleAdd
	}
	if err := change(rule); err != nil {
		return fmt.Errorf("rule for %s port %d: %w", to, port, err)
	}
	return nil
}

func (r *Result) printPartitions(w io.Writer) error {
	for _, p := range r.Partitions {
		first := func(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }
		if _, err := fmt.Fprintf(w, "%s | %s: %s | %s; one version (%d) again after %.1f s\n", strings.Join(p.Major, " "), strings.Join(p.Minor, " "),
			first(p.Majority), first(p.Minority), p.Version, p.Healed); err != nil {
			return err
		}
	}
	return nil
}
