package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// RunPart is a process that watches, until in ends: it says what each version took, a
// line of JSON each.
func RunPart(ctx context.Context, text string, in io.Reader, out io.Writer) error {
	var p Part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	var mu sync.Mutex
	say := func(t Took) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(out).Encode(t)
	}
	if p.Watchers == 0 {
		return runBalancer(ctx, p, say)
	}
	// As many unpack at a time as there are processors: of the hundred machines that
	// they stand for each has its own.
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	var first atomic.Pointer[controller.Assignment]
	all, ctx := errgroup.WithContext(ctx)
	for n := range p.Watchers {
		w := &watcher{name: fmt.Sprintf("watcher%d", n), at: p.Address, room: room, shared: &first, watcher: true, say: say}
		all.Go(func() error { return w.run(ctx) })
	}
	return all.Wait()
}

// watcher goes by the store as a balancer does (daemon/member).
type watcher struct {
	name    string
	at      Address
	watcher bool
	room    chan struct{}
	// shared is what all of a process begin a version with, so that a hundred tables
	// need not be in one machine's memory: they are equal, and nobody changes one.
	shared *atomic.Pointer[controller.Assignment]
	// install puts a in force, nil: nothing does.
	install func(a *controller.Assignment, t *Took) error
	say     func(Took)

	force  *controller.Assignment
	digest string
}

func (w *watcher) run(ctx context.Context) error {
	err := w.follow(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		w.say(Took{Watcher: w.watcher, Error: fmt.Sprintf("%s: %v", w.name, err)})
	}
	return err
}

// counted counts what is waited for, and read.
type counted struct {
	store.Store
	bytes atomic.Uint64
	waits atomic.Int64
}

func (c *counted) Read(ctx context.Context, prefix string) ([]store.Entry, int64, error) {
	begun := time.Now()
	entries, rev, err := c.Store.Read(ctx, prefix)
	c.waits.Add(int64(time.Since(begun)))
	for _, e := range entries {
		c.bytes.Add(uint64(len(e.Key) + len(e.Value)))
	}
	return entries, rev, err
}

func (w *watcher) follow(ctx context.Context) error {
	opened, _, err := w.at.open()
	if err != nil {
		return err
	}
	defer opened.Close()
	s := &counted{Store: opened}
	l, err := ledger.New(s, secretBytes())
	if err != nil {
		return err
	}
	lease, err := opened.Grant(ctx, 30*time.Second)
	if err != nil {
		return err
	}
	for head, err := range l.Heads(ctx) {
		if err != nil {
			return err
		}
		version := head.Of(int(rollout.Balancer))
		if w.force != nil && version <= w.force.Version || version == 0 {
			continue
		}
		t := Took{Watcher: w.watcher, Version: version}
		noticed := time.Now()
		bytes, waits := s.bytes.Load(), s.waits.Load()
		reader := l
		if w.shared != nil { // one that remembers no assignment of its own
			if reader, err = ledger.New(s, secretBytes()); err != nil {
				return err
			}
		}
		if err := w.take(ctx, reader, version, &t, noticed); err != nil {
			return err
		}
		t.Bytes, t.Fetch = s.bytes.Load()-bytes, ms(time.Duration(s.waits.Load()-waits))
		w.say(t)
		if _, err := l.Say(ctx, lease, w.name, ledger.Report{Kind: int(rollout.Balancer), Version: version, Digest: w.digest}); err != nil {
			return err
		}
	}
	return nil
}

// take fetches, verifies and accepts a version, and puts it in force.
func (w *watcher) take(ctx context.Context, l *ledger.Ledger, version uint64, t *Took, noticed time.Time) error {
	if w.room != nil {
		w.room <- struct{}{}
		defer func() { <-w.room }()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	begun, cpu := time.Now(), w.cpu()
	a, err := l.Read(ctx, version, w.force)
	if err != nil {
		return err
	}
	t.Read = ms(time.Since(begun))
	begun = time.Now()
	if w.force != nil {
		if err := controller.AcceptValid(w.force, a, w.force.Version, false); err != nil {
			return err
		}
	}
	t.Accept, t.ReadCPU = ms(time.Since(begun)), ms(w.cpu()-cpu)
	begun = time.Now()
	if w.install != nil {
		if err := w.install(a, t); err != nil {
			return err
		}
	}
	t.Apply = ms(time.Since(begun))
	if t.inForce.IsZero() {
		t.inForce = time.Now()
	}
	t.InForce = ms(t.inForce.Sub(noticed))
	t.CPU = ms(w.cpu() - cpu)
	w.digest = l.Digest(a)
	if w.shared != nil {
		if was := w.shared.Load(); was != nil && was.Version == a.Version {
			a = was
		} else {
			w.shared.Store(a)
		}
	}
	w.force = a
	return nil
}

// cpu is what the process has taken, or the thread where there are many watchers: what
// other threads do for it (the digest of a large table, the collector) is not counted.
func (w *watcher) cpu() time.Duration {
	if w.room == nil {
		return processCPU()
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
