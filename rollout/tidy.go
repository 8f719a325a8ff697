package rollout

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// Election is the prefix of keys by which controllers choose the one that leads.
const Election = "leader/"

// Lead tidies while candidate leads, and is a candidate until ctx ends. Several may:
// what two of them would do at once the store refuses to one.
func (c *Coordinator) Lead(ctx context.Context, s store.Store, candidate string, quiet time.Duration, log *slog.Logger) error {
	for ctx.Err() == nil {
		err := c.lead(ctx, s, candidate, quiet, log)
		if err != nil && ctx.Err() == nil {
			log.Warn("this controller does not lead; it tries again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (c *Coordinator) lead(ctx context.Context, s store.Store, candidate string, quiet time.Duration, log *slog.Logger) error {
	granting, cancel := context.WithTimeout(ctx, storeTimeout)
	lease, err := s.Grant(granting, leaderTime)
	cancel()
	if err != nil {
		return err
	}
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = lease.Close(ending)
	})
	defer stop()
	go func() {
		defer cancel()
		select {
		case <-lease.Done():
		case <-ctx.Done():
		}
	}()
	if _, err := s.Campaign(ctx, Election, candidate, lease); err != nil {
		return err
	}
	log.Info("this controller leads")
	c.tidy(ctx, quiet, log)
	return store.ErrLost
}

// leaderTime is how long a leader that is gone is waited for.
const leaderTime = 5 * time.Second

// tidy finishes what nobody else does: a version whose operator is gone before all
// had their turn, and slots whose rest is over. It waits until the head has stood
// still for quiet, which is longer than any step of a change takes.
func (c *Coordinator) tidy(ctx context.Context, quiet time.Duration, log *slog.Logger) {
	heads := make(chan ledger.Head)
	go func() {
		for ctx.Err() == nil {
			for head, err := range c.Ledger.Heads(ctx) {
				if err != nil {
					break
				}
				select {
				case heads <- head:
				case <-ctx.Done():
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	var head ledger.Head
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case head = <-heads:
			continue // and wait anew
		case <-time.After(quiet):
		}
		done, err := c.tidyOnce(ctx, head)
		switch {
		case err != nil && ctx.Err() == nil && told != err.Error() && !errors.Is(err, controller.ErrConflict):
			told = err.Error()
			log.Warn("what is left to do cannot be done yet; trying on", "error", err)
		case err == nil:
			told = ""
		}
		for _, line := range done {
			log.Info("assignment changed", "change", line)
		}
	}
}

// tidyOnce looks once, at a head that stands still.
func (c *Coordinator) tidyOnce(ctx context.Context, head ledger.Head) (done []string, err error) {
	if head.Version == 0 {
		return nil, nil
	}
	reading, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if c.Have, err = c.Ledger.Read(reading, head.Version, c.Have); err != nil {
		return nil, err
	}
	rested := slices.ContainsFunc(c.Have.VIPs, func(v controller.VIP) bool {
		return slices.ContainsFunc(v.Slots, func(s controller.Slot) bool {
			return s.State == controller.Resting && !s.RestUntil.After(time.Now())
		})
	})
	if head.Turn >= int(kinds) && !head.Open && !rested {
		return nil, nil
	}
	ch, err := c.Do(ctx, Options{})
	if ch != nil {
		done = ch.Lines
	}
	return done, err
}
