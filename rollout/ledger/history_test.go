package ledger

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/store"
)

// counting counts what is read.
type counting struct {
	store.Store
	reads, entries int
}

func (c *counting) Read(ctx context.Context, prefix string) ([]store.Entry, int64, error) {
	all, rev, err := c.Store.Read(ctx, prefix)
	c.reads++
	c.entries += len(all)
	return all, rev, err
}

// TestHistory: from any version to any other comes what is there, in order, and nothing
// else is read for it.
func TestHistory(t *testing.T) {
	memory := store.NewMemory()
	c := &counting{Store: memory.Client()}
	l := open(t, c, secret)
	const oldest, newest = 95, 2345 // what is older is forgotten
	for v := uint64(oldest); v <= newest; v++ {
		value, err := json.Marshal(Record{Version: v})
		if err == nil {
			_, err = c.Commit(t.Context(), nil, store.Op{Key: recordsKey + versionKey(v), Value: value})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		first, last := rapid.Uint64Range(0, 2*newest).Draw(t, "first"), rapid.Uint64Range(0, 2*newest).Draw(t, "last")
		c.reads, c.entries = 0, 0
		records, err := l.History(context.Background(), first, last)
		want := max(0, int(min(last, newest))-int(max(first, oldest))+1)
		if err != nil || len(records) != want || c.entries != want || c.reads > 9*2*4 {
			t.Fatalf("%d to %d: %d records of %d, of %d entries in %d reads, %v", first, last, len(records), want, c.entries, c.reads, err)
		}
		for i, r := range records {
			if r.Version != max(first, oldest)+uint64(i) {
				t.Fatalf("%d to %d: record %d is of version %d", first, last, i, r.Version)
			}
		}
	})
}

// TestDamagedRecord: a record that cannot be read, or is another's, says so in its place;
// the others are there.
func TestDamagedRecord(t *testing.T) {
	c := store.NewMemory().Client()
	l := open(t, c, secret)
	for v, value := range map[uint64]string{1: `{"version": 1, "who": "ann"}`, 2: `{`, 3: `{"version": 4}`, 4: `{"version": 4, "who": "ann"}`} {
		if _, err := c.Commit(t.Context(), nil, store.Op{Key: recordsKey + versionKey(v), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := l.History(t.Context(), 1, 4)
	if err != nil || len(all) != 4 {
		t.Fatal(all, err)
	}
	for i, r := range all {
		damaged := i == 1 || i == 2
		says := len(r.What) == 1 && strings.Contains(r.What[0], ErrDamaged.Error()) && strings.Contains(r.What[0], versionKey(r.Version))
		if r.Version != uint64(i)+1 || damaged != says || damaged == (r.Who == "ann") {
			t.Errorf("record %d: %+v", i+1, r)
		}
	}
}
