package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/lab/netspace"
)

// The churn scenario's size. Two balancers (scheme faild: switches) carry the
// traffic of six servers; a third one and four more servers wait to join.
const (
	churnServers, churnActiveServers = 10, 6
	churnLBs, churnActiveLBs         = 3, 2
)

// step is one change of the churn.
type step struct {
	name string
	text string // what happens, for people
	// after names a step that must come earlier, by at least gap slots.
	after string
	gap   int
	// early: in the first third, because a later step waits for what it
	// starts.
	early bool
	// forces: every bucket of a server goes to others, or comes back.
	forces bool
	do     func(context.Context) error
}

// churn is a running churn: who lives, and in which state.
type churn struct {
	lab    *Lab
	load   loads
	random *rand.Rand
	// calm, if not 0, is how many slots a connection may live: within so many
	// no more changes may force a bucket than a chain is long.
	calm int
	// gone are the daemons that changes go on without.
	gone map[string]bool
	// member are the servers that are in the pools.
	member map[string]bool
	// ecmp are the fronts behind the router.
	ecmp []int
}

// steps are the changes in one possible order; arrange makes the seed's.
func (c *churn) steps() []step {
	order := c.random.Perm(churnActiveServers)
	role := func(i int) string { return fmt.Sprint("server", order[i]+1) }
	drained, paused, crashed, weighted, restarted, failed := role(0), role(1), role(2), role(3), role(4), role(5)
	pair := []string{weighted, restarted}
	lost := 1 + c.random.IntN(churnActiveLBs)
	kept := 3 - lost
	kind := c.lab.frontKind()
	keptName, lostName, joining := c.lab.front(kept), c.lab.front(lost), c.lab.front(churnLBs)
	steps := []step{
		{name: "drain", text: drained + " drains: no new connections", early: true, forces: true,
			do: func(ctx context.Context) error { return c.drain(ctx, drained) }},
		{name: "remove", text: drained + " removed: its last connection ended", after: "drain", gap: 7,
			do: func(ctx context.Context) error { return c.remove(ctx, drained, false) }},
		{name: "rotate", text: "key rotated", early: true, do: c.rotate},
		{name: "rotate again", text: "key rotated again, the first key is gone", after: "rotate", gap: 7, do: c.rotate},
		{name: "add", text: "server7 added", do: func(ctx context.Context) error { return c.add(ctx, "server7") }},
		{name: "add another", text: "server8 added", do: func(ctx context.Context) error { return c.add(ctx, "server8") }},
		{name: "add two", text: "server9 and server10 added together",
			do: func(ctx context.Context) error { return c.add(ctx, "server9", "server10") }},
		{name: "fail", text: failed + " fails its health checks; its connections live on", forces: true,
			do: func(ctx context.Context) error { return c.fail(ctx, true, failed) }},
		{name: "recover", text: failed + " is well again", after: "fail", gap: 2, forces: true,
			do: func(ctx context.Context) error { return c.fail(ctx, false, failed) }},
		// With the others that are out, no server of the first six may be left.
		{name: "fail two", text: strings.Join(pair, " and ") + " fail their health checks", after: "add", gap: 1, forces: true,
			do: func(ctx context.Context) error { return c.fail(ctx, true, pair...) }},
		{name: "recover two", text: strings.Join(pair, " and ") + " are well again", after: "fail two", gap: 2, forces: true,
			do: func(ctx context.Context) error { return c.fail(ctx, false, pair...) }},
		{name: "pause", text: paused + " drains", forces: true, do: func(ctx context.Context) error { return c.drain(ctx, paused) }},
		{name: "resume", text: paused + " takes new connections again", after: "pause", gap: 2,
			do: func(ctx context.Context) error { return c.undrain(ctx, paused) }},
		{name: "weight", text: weighted + " has weight 3", do: func(ctx context.Context) error { return c.weight(ctx, weighted, 3) }},
		{name: "crash", text: crashed + " crashes, and its connections", forces: true,
			do: func(context.Context) error { return c.crash(crashed) }},
		{name: "remove crashed", text: crashed + " is taken out by force", after: "crash", gap: 3,
			do: func(ctx context.Context) error { return c.remove(ctx, crashed, true) }},
		{name: "reshuffle", text: c.reshuffleText(),
			do: func(context.Context) error { return c.reshuffle() }},
		{name: "reshuffle again", text: c.reshuffleText(), after: "reshuffle", gap: 1,
			do: func(context.Context) error { return c.reshuffle() }},
		{name: "kill " + kind, text: keptName + "'s daemon killed and started again",
			do: func(ctx context.Context) error { return c.restart(ctx, keptName) }},
		{name: "kill host", text: restarted + "'s agent killed and started again",
			do: func(ctx context.Context) error { return c.restart(ctx, restarted) }},
		{name: "lose " + kind, text: lostName + " loses power; the router drops it",
			do: func(ctx context.Context) error { return c.loseFront(ctx, lost) }},
		{name: "join " + kind, text: joining + " joins", do: func(ctx context.Context) error { return c.joinFront(ctx, churnLBs) }},
	}
	if c.lab.faild() {
		steps = append(steps, c.switchSteps(kept)...)
	}
	if !slices.ContainsFunc(c.lab.VIPs, VIP.weighted) {
		steps = slices.DeleteFunc(steps, func(s step) bool { return s.name == "weight" })
	}
	return steps
}

// arrange puts the steps into a random order that keeps every "after" and
// "early", and calm: shuffles until one fits, so that all such orders are
// equally likely. The limits leave hundreds of orders in a million; the bound
// is never met.
func (c *churn) arrange(steps []step) ([]step, error) {
	for range 1_000_000 {
		c.random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		if fits(steps) && c.isCalm(steps) {
			return steps, nil
		}
	}
	return nil, errors.New("the steps' conditions allow no order")
}

// isCalm tells whether no connection meets more changes that force buckets
// than a chain is long. Schemes beamer and faild promise to keep it through
// that many.
func (c *churn) isCalm(steps []step) bool {
	if c.calm == 0 {
		return true
	}
	for first := range steps {
		forced := 0
		for _, s := range steps[first:min(len(steps), first+c.calm)] {
			if s.forces {
				forced++
			}
		}
		if forced > buckets.Chain {
			return false
		}
	}
	return true
}

func fits(steps []step) bool {
	for i, s := range steps {
		if s.early && i >= len(steps)/3 {
			return false
		}
		if s.after == "" {
			continue
		}
		before := slices.IndexFunc(steps, func(o step) bool { return o.name == s.after })
		if before < 0 || i-before < s.gap {
			return false
		}
	}
	return true
}

// passing are the refusals that pass by themselves: connections are live,
// another change came between, a busy daemon did not answer in time. A change
// that stopped half way goes on when it is asked for again.
var passing = []connect.Code{connect.CodeFailedPrecondition, connect.CodeAborted, connect.CodeUnavailable, connect.CodeDeadlineExceeded}

// answer is what an API says of a change.
type answer = connect.Response[fairleadv1.ChangeResponse]

// ask carries out a change by the controllers' API, again and again until it is
// accepted or ctx ends.
func (c *churn) ask(ctx context.Context, f func(context.Context, fairleadv1connect.ControlClient, []string) (*answer, error)) error {
	var without []string
	for m, gone := range c.gone {
		if gone {
			without = append(without, c.lab.daemonName(m))
		}
	}
	for stopped := false; ; {
		err := c.lab.change(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient) error {
			_, err := f(ctx, client, without)
			return err
		})
		code := connect.CodeOf(err)
		if stopped && (code == connect.CodeNotFound || code == connect.CodeFailedPrecondition && strings.Contains(err.Error(), "already")) {
			return nil // the attempt that stopped had done it
		}
		if err == nil || !slices.Contains(passing, code) {
			return err
		}
		stopped = stopped || code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded
		if sleep(ctx, time.Second) != nil {
			return fmt.Errorf("refused for too long: %w", err)
		}
	}
}

// add puts servers to work in every VIP: those of one VIP together, then the
// next VIP's.
func (c *churn) add(ctx context.Context, servers ...string) error {
	for _, v := range c.lab.pools() {
		work, ctx := errgroup.WithContext(ctx)
		for _, server := range servers {
			work.Go(func() error {
				return c.ask(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient, without []string) (*answer, error) {
					if v.Standby { // from the horizon
						return client.UndrainServer(ctx, connect.NewRequest(&fairleadv1.UndrainServerRequest{
							Vip: v.Name, Server: c.lab.daemonName(server), Without: without}))
					}
					return client.AddServer(ctx, connect.NewRequest(&fairleadv1.AddServerRequest{
						Vip: v.Name, Server: c.lab.daemonName(server), Without: without}))
				})
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
	for _, s := range servers {
		c.member[s] = true
	}
	return nil
}

// fail makes servers refuse their health checks, or answer them again, and
// waits until every balancer or switch has noticed. Their connections are not touched.
func (c *churn) fail(ctx context.Context, fails bool, servers ...string) error {
	for _, s := range servers {
		if err := c.lab.tellHealth(ctx, s, fails); err != nil {
			return err
		}
	}
	want := fairleadv1.Health_HEALTH_UP
	if fails {
		want = fairleadv1.Health_HEALTH_DOWN
	}
	for _, front := range c.lab.fronts() {
		for !c.gone[front] {
			status, err := c.lab.daemonStatus(ctx, front)
			if err == nil && c.lab.allHave(status, servers, want) {
				break
			}
			if sleep(ctx, 50*time.Millisecond) != nil {
				return fmt.Errorf("%s has not noticed the health of %s: %w", front, strings.Join(servers, ", "), errors.Join(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}

func (c *churn) drain(ctx context.Context, server string) error {
	return c.ask(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient, without []string) (*answer, error) {
		return client.DrainServer(ctx, connect.NewRequest(&fairleadv1.DrainServerRequest{
			Server: c.lab.daemonName(server), Without: without}))
	})
}

func (c *churn) undrain(ctx context.Context, server string) error {
	return c.ask(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient, without []string) (*answer, error) {
		return client.UndrainServer(ctx, connect.NewRequest(&fairleadv1.UndrainServerRequest{
			Server: c.lab.daemonName(server), Without: without}))
	})
}

// remove takes a server out of every VIP, which waits for its connections
// to end unless forced. Where the scheme breaks connections it is always
// forced: those that the hash took away leave orphans on their server, open
// for ever.
func (c *churn) remove(ctx context.Context, server string, force bool) error {
	for _, v := range c.lab.pools() {
		err := c.ask(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient, without []string) (*answer, error) {
			return client.RemoveServer(ctx, connect.NewRequest(&fairleadv1.RemoveServerRequest{
				Vip: v.Name, Server: c.lab.daemonName(server), Force: force || v.breaks(), Without: without}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *churn) weight(ctx context.Context, server string, weight uint32) error {
	for _, v := range c.lab.pools() {
		if !v.weighted() {
			continue
		}
		err := c.ask(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient, without []string) (*answer, error) {
			return client.SetWeight(ctx, connect.NewRequest(&fairleadv1.SetWeightRequest{
				Vip: v.Name, Server: c.lab.daemonName(server), Weight: weight, Without: without}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *churn) rotate(ctx context.Context) error {
	return c.ask(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient, without []string) (*answer, error) {
		return client.RotateKey(ctx, connect.NewRequest(&fairleadv1.RotateKeyRequest{Without: without}))
	})
}

func (c *churn) reshuffleText() string {
	if c.lab.faild() {
		return "router reshuffles flows over the switches"
	}
	return "router reshuffles flows over the balancers"
}

func (c *churn) reshuffle() error { return c.lab.setRoutes(c.ecmp, c.random.Uint32()) }

// crash takes a server away as a loss of power does.
func (c *churn) crash(server string) error {
	c.gone[server] = true
	n := LoadNotice{Crashed: server, From: time.Now()}
	if err := c.lab.setLink(server, false); err != nil {
		return err
	}
	n.To = time.Now()
	return errors.Join(c.load.tell(n), netspace.Kill(c.lab.namespace(server)))
}

// restart kills a daemon and starts it again two seconds later: packets must
// not notice either.
func (c *churn) restart(ctx context.Context, machine string) error {
	if err := c.lab.KillDaemon(machine); err != nil {
		return err
	}
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	return c.lab.StartDaemon(ctx, machine)
}

// routerNotice is how long a router goes on sending to a balancer that has
// died (BFD's usual three times 100 ms).
const routerNotice = 300 * time.Millisecond

func (c *churn) loseFront(ctx context.Context, n int) error {
	name := c.lab.front(n)
	c.gone[name] = true
	if err := c.lab.crash(name); err != nil {
		return err
	}
	if err := sleep(ctx, routerNotice); err != nil {
		return err
	}
	c.ecmp = slices.DeleteFunc(c.ecmp, func(o int) bool { return o == n })
	if c.lab.faild() {
		if err := c.lab.leave(n); err != nil {
			return err
		}
	}
	return c.reshuffle()
}

func (c *churn) joinFront(ctx context.Context, n int) error {
	name := c.lab.front(n)
	if err := c.lab.StartDaemon(ctx, name); err != nil {
		return err
	}
	delete(c.gone, name)
	c.ecmp = append(c.ecmp, n)
	return c.reshuffle()
}
