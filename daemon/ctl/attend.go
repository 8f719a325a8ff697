package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/version"
)

const (
	// attendTime is how long the store keeps what a controller said that is gone.
	attendTime = 10 * time.Second
	// attendEvery is how often it is said anew.
	attendEvery = 15 * time.Second
)

// attend says in the store that this controller is there, until ctx ends.
func (c *ctl) attend(ctx context.Context) error {
	told := ""
	for ctx.Err() == nil {
		err := c.attendOnce(ctx)
		if err != nil && ctx.Err() == nil && told != err.Error() {
			told = err.Error()
			c.Log.Warn("the store does not hear that this controller is there; it tries on", "error", err)
		}
		daemon.Sleep(ctx, time.Second)
	}
	return nil
}

// attendOnce does so for as long as one lease lives.
func (c *ctl) attendOnce(ctx context.Context) error {
	return store.Hold(ctx, c.store, attendTime, lookTimeout, func(ctx context.Context, lease store.Lease) error {
		for {
			saying, cancel := context.WithTimeout(ctx, lookTimeout)
			err := c.ledger.Attend(saying, lease, c.Name, c.report())
			cancel()
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-c.say:
			case <-time.After(attendEvery):
			}
		}
	})
}

func (c *ctl) report() ledger.Controller {
	r := ledger.Controller{API: c.self.API, Program: version.String(), Started: c.Started().UTC(), Warnings: c.Warnings()}
	if undone := c.undone.Load(); undone != nil {
		r.Warnings = append(r.Warnings, *undone...)
	}
	if c.server != nil {
		r.StoreBytes = c.server.Bytes()
		r.Warnings = append(r.Warnings, c.full()...)
	}
	return r
}

// warns takes what is left to do and cannot be done, for who looks.
func (c *ctl) warns(all []string) {
	if was := c.undone.Swap(&all); was == nil && len(all) > 0 || was != nil && !slices.Equal(*was, all) {
		daemon.Poke(c.say)
	}
}

// full warns of a store that takes nothing more, or soon will not.
func (c *ctl) full() (warnings []string) {
	if alarms := c.server.Alarms(); len(alarms) > 0 {
		warnings = append(warnings, fmt.Sprintf("the store raised %s: changes are refused, and what runs goes on; controllers make room in a full one by themselves, and docs/store.md says what else to do", strings.Join(alarms, ", ")))
	} else if quota := c.server.Quota(); c.server.Bytes() > quota/10*9 { // how much is in its figures: each text is told once
		warnings = append(warnings, fmt.Sprintf("the store takes more than nine tenths of the %d MiB that it may: soon it takes no change; docs/store.md says how to make room", quota>>20))
	}
	return warnings
}
