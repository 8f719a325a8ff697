package rollout

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// heard is a log that a test may read.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) has(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Contains(h.text.String(), text)
}

// TestRotates: keys are rotated when they are old enough, by whoever leads, whose time
// goes on over a change of leaders; never while connections of the epoch that would go
// live, which is said; and a rotation that stopped half way is finished.
func TestRotates(t *testing.T) {
	const period = 600 * time.Millisecond
	s := newFleet(t, three)
	s.cfg.RotateKeys = period
	said := new(heard)
	lead := func(name string) (stop func()) {
		c, link := s.linked()
		c.Who = name
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Lead(ctx, link, name, 20*time.Millisecond, slog.New(slog.NewTextHandler(said, nil))) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	c, link := s.linked()
	// A verb: the store has no text, and the period is the file's, which no text may have.
	if _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); err != nil {
		t.Fatal(err)
	}
	epoch := func() uint32 {
		s.mu.Lock()
		defer s.mu.Unlock()
		least := s.get("lb1").cur.StampEpoch
		for _, d := range s.daemons {
			least = min(least, d.cur.StampEpoch)
		}
		return least
	}
	began := time.Now()
	stop := lead("c1")
	s.eventually(t, "c1 has noted the epoch", func() bool {
		entries, _, err := link.Read(t.Context(), "epoch")
		return err == nil && len(entries) == 1
	})
	stop()
	stop = lead("c2") // which does not begin anew
	s.eventually(t, "epoch 1", func() bool { return epoch() == 1 })
	if took := time.Since(began); took < period {
		t.Errorf("rotated after %v, and not %v", took, period)
	}
	s.mu.Lock()
	web, _ := s.get("s1").cur.VIP("web")
	s.get("s1").live = []*fairleadv1.LiveVIP{{Id: web.ID, Server: "s1", Epochs: []*fairleadv1.EpochLive{{Epoch: 0, Connections: 3}}}}
	s.mu.Unlock()
	s.eventually(t, "the refusal is said", func() bool { return said.has("still live under epoch 0, which would be dropped") })
	if epoch() != 1 {
		t.Fatal("connections of epoch 0 were dropped")
	}
	s.mu.Lock()
	s.get("s1").live = nil
	s.mu.Unlock()
	s.eventually(t, "epoch 2, as they have ended", func() bool { return epoch() >= 2 })
	stop()
	// A controller that dies half way, and one that does not rotate by itself.
	s.mu.Lock()
	s.cfg.RotateKeys = 0
	s.mu.Unlock()
	if _, err := c.Do(t.Context(), Options{}); err != nil { // what c2 was at
		t.Fatal(err)
	}
	at := epoch()
	head, err := c.Ledger.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	base, err := c.Ledger.Read(t.Context(), head.Version, nil)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err := controller.Change(base, controller.LiveCounts{}, time.Now(), false, controller.Op{Kind: controller.Rotate, Key: bytes.Repeat([]byte{7}, 32)})
	if err != nil || len(steps) != 2 {
		t.Fatal(len(steps), err)
	}
	if head, err = c.Ledger.Append(t.Context(), head, base, steps[0], ledger.Change{Who: "who dies"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ledger.Turn(t.Context(), head, int(kinds)); err != nil {
		t.Fatal(err)
	}
	stop = lead("c3")
	s.eventually(t, "it is finished", func() bool { return epoch() == at+1 })
	stop()
	if err := s.bad(); err != nil {
		t.Error(err)
	}
}

// TestEpochSince: what is noted stays, of another epoch or of the future it does not,
// and of two that note it one is told.
func TestEpochSince(t *testing.T) {
	memory := store.NewMemory()
	l, err := ledger.New(memory.Client(), bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0).UTC()
	for _, c := range []struct {
		epoch   uint32
		at, was time.Duration
	}{{0, 0, 0}, {0, time.Hour, 0}, {1, 2 * time.Hour, 2 * time.Hour}, {1, 3 * time.Hour, 2 * time.Hour},
		{1, time.Hour, time.Hour}, {1, 4 * time.Hour, time.Hour}} {
		if since, err := l.EpochSince(t.Context(), c.epoch, now.Add(c.at)); err != nil || !since.Equal(now.Add(c.was)) {
			t.Errorf("epoch %d at %v: since %v, %v", c.epoch, c.at, since.Sub(now), err)
		}
	}
	client := memory.Client()
	if _, err := client.Commit(t.Context(), nil, store.Op{Key: "epoch", Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	if since, err := l.EpochSince(t.Context(), 1, now.Add(5*time.Hour)); err != nil || !since.Equal(now.Add(5*time.Hour)) {
		t.Errorf("damaged: %v %v", since.Sub(now), err)
	}
	client.Cut(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if l, err = ledger.New(client, bytes.Repeat([]byte{1}, 32)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.EpochSince(ctx, 1, now); err == nil || errors.Is(err, store.ErrConflict) {
		t.Errorf("without the store: %v", err)
	}
}
