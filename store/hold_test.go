package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestHold: work goes on under a lease for as long as that lives, which ends with the work;
// whoever was not heard is told so, and not what became of his work.
func TestHold(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	c, other := m.Client(), m.Client()
	there := func() bool {
		entries, _, err := other.Read(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries) > 0
	}
	say := func(ctx context.Context, lease Lease) error {
		_, err := c.Commit(ctx, nil, Op{Key: "k", Lease: lease})
		if err == nil && !there() {
			t.Error("it is not said")
		}
		return err
	}
	mine := errors.New("mine")
	err := Hold(t.Context(), c, time.Minute, time.Minute, func(ctx context.Context, lease Lease) error {
		return errors.Join(say(ctx, lease), mine)
	})
	if !errors.Is(err, mine) || there() {
		t.Errorf("%v, and its key is there %v", err, there())
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = Hold(ctx, c, time.Minute, time.Minute, func(ctx context.Context, lease Lease) error {
		cancel()
		<-ctx.Done()
		return mine
	})
	if !errors.Is(err, mine) {
		t.Errorf("its caller's time is over: %v", err)
	}
	err = Hold(t.Context(), c, 10*time.Millisecond, time.Minute, func(ctx context.Context, lease Lease) error {
		err := say(ctx, lease)
		c.Cut(true)
		<-ctx.Done()
		return err
	})
	if !errors.Is(err, ErrLost) || there() {
		t.Errorf("cut off: %v, and its key is there %v", err, there())
	}
	if err := Hold(t.Context(), c, time.Minute, time.Minute, func(context.Context, Lease) error { return nil }); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a store: %v", err)
	}
}
