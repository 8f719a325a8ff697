package lab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/attack"
)

// Scenario attack: connections live while somebody, where clients are, tries
// to break them, one attack after the other. Each stops by itself; then every
// connection has to speak.

// AttackScale is scenario attack as it is judged: connections that live at
// each VIP, the longest silence of each, and about how long an attack takes.
var AttackScale = Scale{Connections: 200, Slot: 3 * time.Second, Pause: 8 * time.Second}

// attackSize leaves two servers that wait, for the two attacks after which one
// has to be added.
var attackSize = size{6, 4, 2, 2}

const (
	// attackPatience is how long a connection waits for its answer. What an
	// attack spoils at a server may last no longer than 15 s (the least time
	// for which Linux believes a neighbour), so it is shorter than that.
	attackPatience = 10 * time.Second
	// attackSeconds bounds all attacks in a lab.
	attackSeconds = 20 * time.Minute
	// maxLost is the share of genuine errors that may be lost. Two or three in a
	// hundred are, whose hash under the balancer's random secret is an attacker's;
	// of the fifty of a short run so many by chance.
	maxLost = 0.05
	fewLost = 5
)

// Attack is what one attack did.
type Attack struct {
	Name   string `json:"name"`
	Scheme string `json:"scheme"`
	// Packets that were sent, connections for attack idle-api; Refused by the
	// kernel that sends.
	Packets int     `json:"packets"`
	Refused int     `json:"refused"`
	Seconds float64 `json:"seconds"`
	// Broken are connections, by run.
	Broken map[string]int `json:"broken,omitempty"`
	// Genuine errors were sent between those of attack asks; Arrived reached
	// the server of the connection that they quote.
	Genuine int `json:"genuine,omitempty"`
	Arrived int `json:"arrived,omitempty"`
	// Found is what is not as it was: neighbours and routes at servers,
	// servers that are taken for down, daemons that do not answer.
	Found []string `json:"found,omitempty"`
}

// broken adds up the connections.
func (a Attack) broken() (n int) {
	for _, b := range a.Broken {
		n += b
	}
	return n
}

// lost is how many genuine errors did not arrive.
func (a Attack) lost() int { return max(0, a.Genuine-a.Arrived) }

// succeeded says what the attack reached, empty if nothing.
func (a Attack) succeeded() string {
	var did []string
	if n := a.broken(); n > 0 {
		did = append(did, fmt.Sprintf("broke %d connections", n))
	}
	if float64(a.lost()) > max(maxLost*float64(a.Genuine), fewLost) {
		did = append(did, fmt.Sprintf("took %d of %d genuine errors away", a.lost(), a.Genuine))
	}
	if len(a.Found) > 0 {
		did = append(did, fmt.Sprintf("left %d things changed (%s)", len(a.Found), a.Found[0]))
	}
	return strings.Join(did, ", ")
}

// attackStep is an attack as the scenario makes it.
type attackStep struct {
	name string
	// schemes that it concerns; nil: all.
	schemes []string
	// proves are those that it breaks something of without guards.
	proves []string
	// rate is packets a second; 0: RunOptions.Rate.
	rate int
	// slots is for how long.
	slots float64
	// adds a server, once the packets are sent.
	adds bool
	do   func(*runner, context.Context, attackStep, *Attack) error
}

// attackSteps are the attacks, in their order.
func attackSteps() []attackStep {
	send := (*runner).send
	return []attackStep{
		{name: "barrage", rate: 5000, slots: 1.5, do: send},
		{name: "flood", slots: 1, do: send},
		{name: "cookies", schemes: []string{"cheetah"}, rate: 5000, slots: 1, do: send},
		{name: "generation", schemes: []string{"beamer"}, rate: 500, slots: 1, do: send},
		{name: "asks", proves: []string{"cheetah"}, rate: 600 * attack.AskGenuine / (attack.AskGenuine - 1), slots: 2.5, do: (*runner).sendAsks},
		{name: "discovery", proves: []string{"cheetah", "jet", "beamer"}, rate: 50, slots: 1, do: send},
		{name: "redirect", proves: []string{"cheetah", "jet", "beamer"}, rate: 50, slots: 1, do: send},
		{name: "resets", proves: []string{"jet"}, slots: 2, adds: true, do: send},
		{name: "spray", proves: []string{"jet"}, slots: 2, adds: true, do: send},
		{name: "idle-api", proves: []string{"cheetah", "jet", "beamer", "faild"}, slots: 3, do: (*runner).idleAPI},
	}
}

// attackParts gives each scheme a lab of its own: an attack by way of one VIP
// may break the connections of all.
func (o RunOptions) attackParts() (parts []part) {
	for _, scheme := range o.Schemes {
		one := o
		one.Schemes = []string{scheme}
		parts = append(parts, part{runs: one.runs()})
	}
	return parts
}

// attack is scenario attack.
func (r *runner) attack(ctx context.Context) error {
	c := r.churn()
	scheme := r.result.Runs[0].Scheme
	if err := r.refill(ctx); err != nil {
		return err
	}
	c.load = r.load
	added := r.lab.ActiveServers
	for _, s := range attackSteps() {
		if r.o.Scale.Steps != nil && !slices.Contains(r.o.Scale.Steps, s.name) || s.schemes != nil && !slices.Contains(s.schemes, scheme) {
			continue
		}
		a := Attack{Name: s.name, Scheme: scheme}
		before, err := r.lab.tablesOf(ctx)
		if err != nil {
			return err
		}
		began, alive := time.Now(), r.load.report()
		if err := s.do(r, ctx, s, &a); err != nil {
			return fmt.Errorf("attack %s: %w", s.name, err)
		}
		a.Seconds = time.Since(began).Seconds()
		if s.adds && added < r.lab.Servers {
			added++
			server := fmt.Sprint("server", added)
			if err := r.change(ctx, step{text: server + " added", do: func(ctx context.Context) error { return c.add(ctx, server) }}); err != nil {
				return err
			}
		}
		if err := r.round(ctx); err != nil {
			return err
		}
		after, err := r.lab.tablesOf(ctx)
		if err != nil {
			return err
		}
		a.Found = append(a.Found, changed(before, after)...)
		now := r.load.report()
		for _, run := range r.result.Runs {
			if n := now.Tallies[run.Name()].Broken - alive.Tallies[run.Name()].Broken; n > 0 {
				if a.Broken == nil {
					a.Broken = map[string]int{}
				}
				a.Broken[run.Name()] = n
			}
		}
		r.result.Attacks = append(r.result.Attacks, a)
		r.note(fmt.Sprintf("attack %s on %s: %s", a.Name, scheme, cmp.Or(a.succeeded(), "did nothing")))
		if a.succeeded() != "" {
			if err := r.repair(ctx); err != nil {
				return err
			}
		}
	}
	return r.end(ctx)
}

// repair undoes what an attack left, so that the next one meets what it would
// have met without this one.
func (r *runner) repair(ctx context.Context) error {
	if err := r.lab.forgetTables(); err != nil {
		return err
	}
	if err := r.lab.awaitHealth(ctx, r.lab.fronts()[:r.lab.ActiveLBs]); err != nil {
		return err
	}
	return r.refill(ctx)
}

// refill opens as many connections to each VIP as are missing there.
func (r *runner) refill(ctx context.Context) error {
	report, together := r.load.report(), map[int][]Target{}
	for i, v := range r.lab.VIPs {
		name := r.result.Runs[i].Name()
		if n := r.o.Scale.Connections - report.Tallies[name].Alive; n > 0 {
			together[n] = append(together[n], Target{Name: name, Endpoint: v.Endpoint()})
		}
	}
	for n, targets := range together {
		plan := LoadPlan{Targets: targets, Seed: r.o.Seed + uint64(len(r.load)), Steady: n, Settle: float64(n) / settleRate, Hold: true,
			Pause: r.o.Scale.Pause.Seconds(), Patience: attackPatience.Seconds(), Seconds: attackSeconds.Seconds()}
		if err := r.open(ctx, plan); err != nil {
			return err
		}
	}
	return nil
}

// round makes every connection speak, and waits until all have been answered
// or are broken.
func (r *runner) round(ctx context.Context) error {
	for _, l := range r.load {
		l.asked++
		if err := l.tell(LoadNotice{Ask: true}); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(attackPatience + readyWait); ; {
		waits := slices.ContainsFunc(r.load, func(l *loadClient) bool { return !l.ended() && l.report().Round < l.asked })
		if !waits {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not all connections were answered or broke within %v", attackPatience+readyWait)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// site is what the attacker knows now.
func (r *runner) site(ctx context.Context) (attack.Site, error) {
	l := r.lab
	flows, err := r.observe(ctx)
	s := attack.Site{Flows: flows, Attackers: addresses(clientAddress4, clientAddress6)}
	for _, v := range l.VIPs {
		s.VIPs = append(s.VIPs, netip.AddrPortFrom(v.Address, uint16(v.Port)))
	}
	for n := range l.Servers {
		s.Machines = append(s.Machines, l.serverAddresses(n+1)...)
		if n < l.ActiveServers {
			s.Servers = append(s.Servers, l.tunnelEnd(n+1))
		}
	}
	for n := range l.LBs {
		front := addresses(lbAddress4(n+1), lbAddress6(n+1))
		s.Machines, s.Idle = append(s.Machines, front...), append(s.Idle, front...)
		if l.faild() {
			s.Balancers = append(s.Balancers, front...)
			s.Gateways = append(s.Gateways, addresses(switchAddress4(n+1), switchAddress6(n+1))...)
			continue
		}
		for _, p := range []string{tunnelSource4(n + 1), tunnelSource6(n + 1)} {
			s.Balancers = append(s.Balancers, netip.MustParsePrefix(p).Addr().Next())
		}
	}
	if !l.faild() {
		s.Gateways = addresses(gateway4, gateway6)
	}
	return s, err
}

func addresses(texts ...string) (as []netip.Addr) {
	for _, t := range texts {
		as = append(as, netip.MustParseAddr(t))
	}
	return as
}

// send sends an attack's packets.
func (r *runner) send(ctx context.Context, s attackStep, a *Attack) error {
	site, err := r.site(ctx)
	if err != nil {
		return err
	}
	plan := FloodPlan{Seed: r.o.Seed, Rate: cmp.Or(s.rate, r.o.Rate), Seconds: s.slots * r.o.Scale.Slot.Seconds(), Attack: &attack.Plan{Kind: s.name, Site: site}}
	f, err := r.lab.startAttacker(ctx, "client", plan)
	if err != nil {
		return err
	}
	defer f.stop()
	select {
	case <-f.done: // with its time
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	report, err := f.end()
	a.Packets, a.Refused, a.Genuine = report.Attacks, report.Refused, report.Genuine
	return err
}

// sendAsks counts which of the genuine errors arrive: the stack of the server
// that has the connection counts one whose sequence number is not the
// connection's, no other server's does.
func (r *runner) sendAsks(ctx context.Context, s attackStep, a *Attack) error {
	before, err := r.quotesSeen()
	if err != nil {
		return err
	}
	if err := r.send(ctx, s, a); err != nil {
		return err
	}
	// What daemons copy to all servers may be on its way.
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline) && a.Arrived < a.Genuine; {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		now, err := r.quotesSeen()
		if err != nil {
			return err
		}
		a.Arrived = int(now - before)
	}
	return nil
}

// quotesSeen is how many ICMP errors about connections of theirs the servers
// have seen.
func (r *runner) quotesSeen() (n uint64, err error) {
	for _, s := range r.lab.servers() {
		c, err := r.lab.kernelCountersOf(s)
		if err != nil {
			return 0, err
		}
		n += c["TcpExtOutOfWindowIcmps"]
	}
	return n, nil
}
