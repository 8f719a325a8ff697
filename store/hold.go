package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// parting bounds how long a lease's end is told; else it ends after its time.
const parting = time.Second

// Hold has do work under a lease of ttl, which was granted within patience, and ends it
// when do returns. do's ctx ends with the lease; then Hold's error is ErrLost, whatever do
// says. It is tried again by whoever calls, at his pace.
func Hold(ctx context.Context, s Store, ttl, patience time.Duration, do func(context.Context, Lease) error) error {
	granting, cancel := context.WithTimeout(ctx, patience)
	lease, err := s.Grant(granting, ttl)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
		defer cancel()
		_ = lease.Close(ending)
	}()
	held, stop := during(ctx, lease)
	defer stop()
	err = do(held, lease)
	if ctx.Err() == nil && errors.Is(context.Cause(held), ErrLost) {
		return fmt.Errorf("%w: the store has not heard this process for %v", ErrLost, ttl)
	}
	return err
}
