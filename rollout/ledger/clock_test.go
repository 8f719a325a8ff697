package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/store"
)

// TestClock: of many that fix it at once one does, and all have what it fixed; nobody
// takes over what is damaged, another deployment's, or of another place.
func TestClock(t *testing.T) {
	memory := store.NewMemory()
	if c, err := open(t, memory.Client(), secret).Clock(t.Context()); c != nil || err != nil {
		t.Fatal(c, err)
	}
	var wg sync.WaitGroup
	var mine, sum atomic.Uint64
	for i := range uint32(16) {
		l := open(t, memory.Client(), secret)
		wg.Go(func() {
			c, won, err := l.FixClock(t.Context(), 1<<31+i, fmt.Sprint("d", i))
			if err != nil || c.By != fmt.Sprint("d", c.AheadMS-1<<31) || c.At.IsZero() {
				t.Error(c, err)
				return
			}
			if won {
				mine.Add(1)
			}
			sum.Add(uint64(c.AheadMS))
		})
	}
	wg.Wait()
	client := memory.Client()
	l := open(t, client, secret)
	c, err := l.Clock(t.Context())
	if err != nil || mine.Load() != 1 || sum.Load() != 16*uint64(c.AheadMS) {
		t.Fatalf("%d fixed it, %v %v", mine.Load(), c, err)
	}
	if c, won, err := l.FixClock(t.Context(), 5, "late"); err != nil || won || c.AheadMS == 5 {
		t.Error(c, won, err)
	}
	if _, err := open(t, client, bytes.Repeat([]byte{9, 8}, 16)).Clock(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("another deployment's: %v", err)
	}
	entries, _, err := client.Read(t.Context(), ClockKey)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	put := func(value []byte) {
		if _, err := client.Commit(t.Context(), nil, store.Op{Key: ClockKey, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	for at := range entries[0].Value {
		damaged := bytes.Clone(entries[0].Value)
		damaged[at] ^= 1
		put(damaged)
		if c, err := l.Clock(t.Context()); !errors.Is(err, ErrDamaged) || c != nil {
			t.Errorf("byte %d: %v %v", at, c, err)
		}
	}
	for name, content := range map[string]string{"clock": "{}", "elsewhere": `{"ahead_ms":1,"by":"d"}`} {
		sealed, err := l.seal.close([]byte(content), nil, name)
		if err != nil {
			t.Fatal(err)
		}
		put(sealed)
		if c, err := l.Clock(t.Context()); !errors.Is(err, ErrDamaged) || c != nil {
			t.Errorf("%s: %v %v", content, c, err)
		}
	}
}
