package ledger

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/store"
)

const controllersKey = "controllers/"

// Controller is what a living controller says of itself.
type Controller struct {
	API string `json:"api"`
	// Program is the version of the fairlead program.
	Program string    `json:"program"`
	Started time.Time `json:"started"`
	// StoreBytes is what its member of the store takes on disk; 0: it keeps none.
	StoreBytes uint64   `json:"store_bytes,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
}

// Attend keeps what a controller says for as long as its lease lives.
func (l *Ledger) Attend(ctx context.Context, lease store.Lease, name string, c Controller) error {
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = l.store.Commit(ctx, nil, store.Op{Key: controllersKey + name, Value: value, Lease: lease})
	return err
}

// Controllers are those that live, by name. What cannot be read is none.
func (l *Ledger) Controllers(ctx context.Context) (all map[string]Controller, err error) {
	err = l.AwaitControllers(ctx, func(said map[string]Controller) bool {
		all = said
		return true
	})
	return all, err
}

// AwaitControllers is Await of what living controllers say.
func (l *Ledger) AwaitControllers(ctx context.Context, done func(map[string]Controller) bool) error {
	return await(ctx, l.store, controllersKey, done)
}
