package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller"
)

// The controller that leads rotates keys when the epoch that stamps is older than the
// file's rotate_keys:
//
//	stamped under epoch n, since ─rotate_keys─▶ Rotate, as `fairlead rotate` does
//	                              ▲                │ refused: connections of n-1 live
//	                              └───rotateRest───┘
//
// Since when it is stands in the store, so that another that leads goes on counting.

// rotateRest is how long a rotation that was refused is not tried again.
func rotateRest(period time.Duration) time.Duration { return min(period/24, time.Hour) }

// half says that a rotation stopped half way: all have the newest key, and nobody stamps
// under it.
func half(a *controller.Assignment) bool {
	return len(a.Keys) > 0 && a.Keys[len(a.Keys)-1].Epoch != a.StampEpoch
}

// rotate is the verb that is due, nil: none is.
func (c *Coordinator) rotate(ctx context.Context, a *controller.Assignment, p *pace) ([]controller.Op, error) {
	cfg, err := c.Wanted(ctx)
	if err != nil {
		return nil, err
	}
	period, now := cfg.RotateKeys, time.Now()
	p.period = period
	if period <= 0 {
		p.unrotated = ""
	}
	if period <= 0 || now.Before(p.rotation) || !slices.ContainsFunc(a.VIPs, func(v controller.VIP) bool { return v.Cookies() }) {
		return nil, nil
	}
	since, err := c.Ledger.EpochSince(ctx, a.StampEpoch, now)
	if err != nil || now.Sub(since) < period {
		if err == nil {
			p.unrotated = "" // somebody else did it
		}
		return nil, err
	}
	return []controller.Op{{Kind: controller.Rotate}}, nil
}

// rotated takes what became of a rotation.
func (c *Coordinator) rotated(err error, p *pace) {
	p.unrotated = ""
	if refused := (controller.Refusal)(nil); errors.As(err, &refused) {
		p.rotation = time.Now().Add(rotateRest(p.period))
		p.unrotated = fmt.Sprintf("keys are older than rotate_keys (%v), and are not rotated yet: %v", p.period, refused)
	}
}
