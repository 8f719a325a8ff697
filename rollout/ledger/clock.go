package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/store"
)

// Clock is how far the deployment's shared clock is ahead of wall clocks, as they were
// when it was fixed: once, by whoever comes first, and for good.
type Clock struct {
	AheadMS uint32    `json:"ahead_ms"` // modulo 2^32
	By      string    `json:"by"`       // the daemon that fixed it
	At      time.Time `json:"at"`
}

// Clock is the one that is fixed; nil: none is. Of another deployment, and damaged, it
// is ErrDamaged.
func (l *Ledger) Clock(ctx context.Context) (*Clock, error) {
	entries, _, err := l.store.Read(ctx, ClockKey)
	if err != nil || len(entries) == 0 || entries[0].Key != ClockKey {
		return nil, err
	}
	content, err := l.seal.open(entries[0].Value, nil, ClockKey)
	if err != nil {
		return nil, fmt.Errorf("the shared clock in the store: %w", err)
	}
	c := new(Clock)
	if err := json.Unmarshal(content, c); err != nil || c.By == "" {
		return nil, fmt.Errorf("%w: the shared clock: %s", ErrDamaged, content)
	}
	return c, nil
}

// FixClock fixes the clock unless it is fixed, and is the one that is; mine: it is now
// as the caller has it.
func (l *Ledger) FixClock(ctx context.Context, aheadMS uint32, by string) (c *Clock, mine bool, err error) {
	c = &Clock{AheadMS: aheadMS, By: by, At: time.Now().UTC()}
	content, err := json.Marshal(c)
	if err != nil {
		return nil, false, err
	}
	data, err := l.seal.close(content, nil, ClockKey)
	if err != nil {
		return nil, false, err
	}
	_, err = l.store.Commit(ctx, []store.If{{Key: ClockKey}}, store.Op{Key: ClockKey, Value: data})
	switch {
	case err == nil:
		return c, true, nil
	case errors.Is(err, store.ErrConflict):
		c, err = l.Clock(ctx)
		if err == nil && c == nil {
			err = errors.New("the shared clock is in the store no longer")
		}
		return c, false, err
	}
	return nil, false, err
}
