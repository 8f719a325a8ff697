package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/vip"
)

// Scenario migrate-scheme: VIPs change their scheme under traffic, from one with cookies
// to one without and back, beside other changes. Each is there twice: one migrates
// (docs/migration.md), and must keep every connection; the other is taken away and made
// anew with the scheme that is next, as it had to be without migration.

// MigrateScale is the scenario as it is judged. A migration waits until what was opened
// before the one before has ended.
var MigrateScale = Scale{Connections: 1200, Slot: 8 * time.Second}

// migrateParts are one lab with both kinds.
func (o RunOptions) migrateParts() []part {
	var runs []RunTally
	for _, r := range o.runs() {
		anew := r
		r.Migrates, anew.Anew = true, true
		runs = append(runs, r, anew)
	}
	return []part{{runs: runs}}
}

// migrateSteps are the changes: from a hash to cookies, to cookies of another form, to a
// hash, and both once more.
func (c *churn) migrateSteps() []step {
	cookies, hashes := []string{"cheetah", "cheetah-stateful"}, []string{"jet", "full-ct"}
	for _, names := range [][]string{cookies, hashes} {
		c.random.Shuffle(2, func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	server := func() string { return fmt.Sprint("server", 1+c.random.IntN(churnActiveServers)) }
	drained, restarted, front := server(), server(), c.lab.front(1+c.random.IntN(churnActiveLBs))
	to := func(scheme string) step {
		return step{name: "to " + scheme, text: "scheme " + scheme, do: func(ctx context.Context) error { return c.migrate(ctx, scheme) }}
	}
	reshuffle := step{name: "reshuffle", text: c.reshuffleText(), do: func(context.Context) error { return c.reshuffle() }}
	return []step{
		to(cookies[0]),
		reshuffle,
		{name: "kill lb", text: front + "'s daemon killed and started again", do: func(ctx context.Context) error { return c.restart(ctx, front) }},
		{name: "drain", text: drained + " drains", do: func(ctx context.Context) error { return c.drain(ctx, drained) }},
		{name: "undrain", text: drained + " takes new connections again", do: func(ctx context.Context) error { return c.undrain(ctx, drained) }},
		to(cookies[1]),
		reshuffle,
		to(hashes[0]),
		reshuffle,
		{name: "kill host", text: restarted + "'s agent killed and started again", do: func(ctx context.Context) error { return c.restart(ctx, restarted) }},
		to(cookies[1]),
		reshuffle,
		to(hashes[1]),
	}
}

// migrateScheme is the scenario.
func (r *runner) migrateScheme(ctx context.Context) error {
	c := r.churn()
	steps, err := r.chosen(c.migrateSteps())
	if err != nil {
		return err
	}
	return r.loaded(ctx, c, steps)
}

// migrateWait is longer than what was there before may take to end, twice (cookies of
// another form have scheme jet between them): a connection 20 s, a handshake whose client
// went elsewhere a minute.
const migrateWait = 3 * time.Minute

// migrate has all VIPs come to a scheme.
func (c *churn) migrate(ctx context.Context, scheme string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), migrateWait)
	defer cancel()
	var kept, all []VIP
	for i, v := range c.lab.VIPs {
		next := v
		next.Scheme, next.Policy, next.SeatBits = scheme, defaultPolicy(scheme), 0
		if all = append(all, next); c.lab.VIPs[i].Anew {
			next = v // when the others are there
		}
		kept = append(kept, next)
	}
	for {
		notes, err := c.apply(ctx, kept, false)
		if err != nil {
			return err
		}
		if c.migrated(ctx, scheme) {
			break
		}
		if err := sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("not all VIPs have come to scheme %s: %w (%s)", scheme, err, strings.Join(notes, "; "))
		}
	}
	gone := slices.DeleteFunc(slices.Clone(all), func(v VIP) bool { return v.Anew })
	if len(gone) < len(all) {
		for _, vips := range [][]VIP{gone, all} {
			if _, err := c.apply(ctx, vips, true); err != nil {
				return err
			}
		}
	}
	c.lab.VIPs = all
	return nil
}

// apply applies the lab's file with other VIPs. The notes say what migrations wait for.
func (c *churn) apply(ctx context.Context, vips []VIP, force bool) (notes []string, err error) {
	wanted := *c.lab
	wanted.VIPs = vips
	text := wanted.config(c.lab.secret)
	err = c.ask(ctx, func(ctx context.Context, client fairleadv1connect.ControlClient, without []string) (*answer, error) {
		done, err := client.Apply(ctx, connect.NewRequest(&fairleadv1.ApplyRequest{Text: text, Force: force, Without: without}))
		if err == nil {
			notes = done.Msg.Notes
		}
		return done, err
	})
	return notes, err
}

// migrated: every VIP that migrates has the scheme, and new connections are as it has them.
func (c *churn) migrated(ctx context.Context, scheme string) bool {
	for _, front := range c.lab.fronts() {
		if c.gone[front] {
			continue
		}
		status, err := c.lab.daemonStatus(ctx, front)
		if err != nil {
			return false // it may start again
		}
		for _, v := range status.Vips {
			i := slices.IndexFunc(c.lab.VIPs, func(o VIP) bool { return o.Name == v.Name })
			if i < 0 || c.lab.VIPs[i].Anew {
				continue
			}
			stage := v.Migration.GetStage()
			if v.Scheme != scheme || stage != "" && stage != "both" && stage != "ending" {
				return false
			}
		}
	}
	return true
}

// migrates: what a scheme's VIPs can be made of with their connections.
func migrates() (names []string) {
	for _, r := range vip.Schemes() {
		if !r.Chains() {
			names = append(names, string(r.Name))
		}
	}
	return names
}
