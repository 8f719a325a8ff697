package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/store"
)

// epochSince is since when connections are stamped under an epoch, as the controller
// that led saw it.
type epochSince struct {
	Epoch uint32    `json:"epoch"`
	Since time.Time `json:"since"`
}

// EpochSince is since when connections are stamped under epoch. Of one that nobody has
// told of yet, and where what was told cannot be, that is noted as since now: keys are
// never thought older than they are. It is for the controller that leads;
// store.ErrConflict: somebody else does.
func (l *Ledger) EpochSince(ctx context.Context, epoch uint32, now time.Time) (time.Time, error) {
	entries, _, err := l.store.Read(ctx, epochKey)
	if err != nil {
		return time.Time{}, err
	}
	var e epochSince
	rev := int64(0)
	if len(entries) > 0 && entries[0].Key == epochKey {
		rev = entries[0].Rev
		if json.Unmarshal(entries[0].Value, &e) == nil && e.Epoch == epoch && !e.Since.IsZero() && !e.Since.After(now) {
			return e.Since, nil
		}
	}
	e = epochSince{epoch, now.UTC()}
	value, err := json.Marshal(e)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := l.store.Commit(ctx, []store.If{{Key: epochKey, Rev: rev}}, store.Op{Key: epochKey, Value: value}); err != nil {
		return time.Time{}, fmt.Errorf("note since when epoch %d is: %w", epoch, err)
	}
	return e.Since, nil
}
