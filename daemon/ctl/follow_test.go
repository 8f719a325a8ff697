package ctl

import (
	"context"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// TestReported: refusals are told of although a follower saw neither the report nor the
// next, and what is in force although a daemon waits.
func TestReported(t *testing.T) {
	t.Parallel()
	head := ledger.Head{Version: 2, Turn: rollout.Kinds}
	w := &watcher{}
	at := func(tries, refused uint64) map[string]ledger.Report {
		return map[string]ledger.Report{"s1": {Version: 2 - min(refused, 1), Tries: tries, Refused: refused, Error: "no room"}, "s9": {Waits: true}}
	}
	for i, c := range []struct {
		said map[string]ledger.Report
		want string // kinds that matter
	}{
		{at(0, 0), "IN_FORCE"},
		{at(1, 2), "REFUSED"},
		{at(1, 2), ""},
		{at(3, 0), "REFUSED"},
		{at(3, 0), ""},
	} {
		var got []string
		for _, e := range w.reported(head, c.said) {
			if e.Kind != fairleadv1.Event_KIND_DAEMON_CAME {
				got = append(got, strings.TrimPrefix(strings.TrimPrefix(e.Kind.String(), "KIND_"), "DAEMON_"))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
	if got := waiting(at(0, 0)); len(got) != 1 || !strings.HasPrefix(got[0], "s9 waits: the configuration in the store does not name it under servers; ") {
		t.Errorf("%q", got)
	}
	if inForce(head, at(1, 2)) || !inForce(head, at(0, 0)) || inForce(ledger.Head{Version: 2, Turn: 1}, at(0, 0)) {
		t.Error("who waits keeps a version from being in force, or who is behind does not")
	}
}

// TestWarned: what a controller warns of is told once, though it is away for a moment.
func TestWarned(t *testing.T) {
	t.Parallel()
	w := &watcher{}
	for i, c := range []struct {
		says string // "": it is away
		news int
	}{{"a", 1}, {"a", 0}, {"", 0}, {"a", 0}, {"b", 1}, {"a", 1}} {
		there := map[string]ledger.Controller{}
		if c.says != "" {
			there["c1"] = ledger.Controller{Warnings: []string{c.says}}
		}
		if got := w.warned(there); len(got) != c.news {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// stepped is a store that says of each change below daemons/ when a watch has taken it.
type stepped struct {
	store.Store
	took chan bool
}

func (s stepped) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[[]store.Event, error] {
	return func(yield func([]store.Event, error) bool) {
		for events, err := range s.Store.Watch(ctx, prefix, after) {
			if !yield(events, err) {
				return
			}
			if strings.HasPrefix(prefix, "daemons/") {
				s.took <- true
			}
		}
	}
}

// TestFollowerThatDoesNotRead takes no more memory the longer he does not, and is told
// what is so when he reads again.
func TestFollowerThatDoesNotRead(t *testing.T) { // not beside others, whose memory it would count
	client := store.NewMemory().Client()
	defer client.Close()
	steps := stepped{client, make(chan bool)}
	l, err := ledger.New(steps, []byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	say := func(name string, tries uint64) {
		t.Helper()
		if _, err := l.Say(t.Context(), lease, name, ledger.Report{Tries: tries, Error: strings.Repeat("x", 1<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	const daemons, times = 1000, 1000 // as many maps of as many are 100 MiB and more
	for i := range daemons {
		say(strings.Repeat("s", 1+i), 0)
	}
	w := &watcher{ctl: &ctl{ledger: l, store: client, stopping: context.Background()}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reads, last := make(chan bool), make(chan string, 4*daemons)
	go func() {
		_ = w.follow(ctx, ledger.Head{}, func(e *fairleadv1.Event) error {
			<-reads
			last <- e.Kind.String() + e.Daemon
			return nil
		})
	}()
	reads <- true // it follows
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	for i := range times {
		say("s", uint64(1+i))
		<-steps.took
	}
	if after := memory(); after > before+32<<20 {
		t.Errorf("%d MiB more", (after-before)>>20)
	}
	close(reads)
	deadline := time.After(daemontest.Patience)
	for {
		select {
		case got := <-last:
			if got == "KIND_DAEMON_REFUSEDs" {
				return
			}
		case <-deadline:
			t.Fatal("what was refused meanwhile is never told")
		}
	}
}
