package ctl

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout/ledger"
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
	granting, cancel := context.WithTimeout(ctx, lookTimeout)
	lease, err := c.store.Grant(granting, attendTime)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = lease.Close(ending) // else it ends after its time
	}()
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
		case <-lease.Done():
			return nil
		case <-time.After(attendEvery):
		}
	}
}

func (c *ctl) report() ledger.Controller {
	r := ledger.Controller{API: c.self.API, Program: version.String(), Started: c.Started().UTC(), Warnings: c.Warnings()}
	if c.server != nil {
		r.StoreBytes = c.server.Bytes()
	}
	return r
}
