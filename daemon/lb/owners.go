package lb

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout"
)

// A balancer asks the agents of previous servers which buckets they own
// connections of (scheme beamer). A chain whose previous servers own nothing
// ends at once; one whose previous servers still do is renewed, past its time.
// Beamer's muxes go by time alone (NSDI'18, section 4.2).

// ownerTables is what is asked of the data plane.
type ownerTables interface {
	// chained is the slots to ask of each VIP, by VIP id: those that chains name.
	chained() map[uint32][]uint16
	SetOwned(vip uint32, slot uint16, owned []byte, at time.Time)
}

// ownerWatch asks agents what they own, from time to time.
type ownerWatch struct {
	log    *slog.Logger
	tls    config.TLS
	tables ownerTables
	dial   func(endpoint string, t config.TLS) (fairleadv1connect.FairleadClient, error)
	wake   func() // what was reported is to be applied

	mu      sync.Mutex
	version uint64            // of the assignment in force
	agents  map[string]*owner // its own, by server
	begun   bool              // a first round is over
	spent   time.Duration     // by the last application
	news    bool              // something was heard that is not applied yet
	next    time.Time         // it is not applied before
	again   chan struct{}
}

// owner is an agent that may be asked.
type owner struct {
	endpoint string
	client   fairleadv1connect.FairleadClient
	err      error               // there is no way to ask it
	slots    map[uint32][]uint16 // its server's, by VIP id
	sizes    map[uint32]int      // buckets, by VIP id
	silent   bool                // it did not answer last time
}

const (
	ownersInterval = 2 * time.Second
	ownersTimeout  = 1500 * time.Millisecond
	ownersAtOnce   = 128
	// ownersShare: applying what is reported takes at most one part in so many
	// of the time.
	ownersShare = 20
)

func newOwnerWatch(log *slog.Logger, tls config.TLS, tables ownerTables, wake func()) *ownerWatch {
	return &ownerWatch{log: log, tls: tls, tables: tables, dial: api.Dial, wake: wake,
		again: make(chan struct{}, 1)}
}

// follow makes the agents of a's VIPs of scheme beamer those that may be
// asked; spent is how long a took to be put in force.
func (w *ownerWatch) follow(a *controller.Assignment, spent time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spent = spent; a.Version == w.version {
		return // applied once more
	}
	w.version = a.Version
	before := w.agents
	w.agents = map[string]*owner{}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !v.Scheme.Row().Hops || !v.Bucketed() {
			continue
		}
		for _, s := range v.Slots {
			o := w.agents[s.Server]
			if o == nil {
				o = &owner{endpoint: s.API, slots: map[uint32][]uint16{}, sizes: map[uint32]int{}}
				if was := before[s.Server]; was != nil && was.endpoint == s.API {
					o.client, o.err, o.silent = was.client, was.err, was.silent
				} else {
					o.client, o.err = w.dial(s.API, w.tls)
				}
				w.agents[s.Server] = o
			}
			o.slots[v.ID] = append(o.slots[v.ID], s.Number)
			o.sizes[v.ID] = v.Buckets.Len()
		}
	}
	daemon.Poke(w.again)
}

// asked says that every previous server was asked at least once.
func (w *ownerWatch) asked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

func (w *ownerWatch) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-w.again:
		}
		timer.Reset(ownersInterval)
		w.round(ctx)
	}
}

// round asks those who may own something once.
func (w *ownerWatch) round(ctx context.Context) {
	ask, known := w.due()
	if !known {
		return // no assignment is in force yet
	}
	var heard atomic.Bool
	askAll(ctx, w.order(ask), ownersAtOnce, ownersTimeout, func(ctx context.Context, name string) {
		if w.ask(ctx, name, ask[name]) {
			heard.Store(true)
		}
	})
	if ctx.Err() != nil {
		return // not all were really asked
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	w.news = w.news || heard.Load()
	w.apply()
}

// order is whom to ask when: those that were silent the last time come last,
// so that nobody waits for them.
func (w *ownerWatch) order(ask map[string]*owner) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := slices.Sorted(maps.Keys(ask))
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case ask[a].silent == ask[b].silent:
			return 0
		case ask[b].silent:
			return -1
		}
		return 1
	})
	return names
}

// applySoon has what was learned applied, as soon as that takes no more than
// its share of the time.
func (w *ownerWatch) applySoon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news = true
	w.apply()
}

// apply has news applied, unless the last application was too short a time
// ago: then a later round does. The caller holds mu.
func (w *ownerWatch) apply() {
	if now := time.Now(); w.news && !now.Before(w.next) {
		w.news, w.next = false, now.Add(w.spent*ownersShare)
		w.wake()
	}
}

// due is the agents to ask: of servers that chains name, or of all while this
// balancer is new. known is false before the first assignment.
func (w *ownerWatch) due() (ask map[string]*owner, known bool) {
	named := w.tables.chained()
	w.mu.Lock()
	defer w.mu.Unlock()
	ask = map[string]*owner{}
	for name, o := range w.agents {
		for id, slots := range o.slots {
			if slices.ContainsFunc(slots, func(s uint16) bool { return slices.Contains(named[id], s) }) {
				ask[name] = o
			}
		}
	}
	return ask, w.agents != nil
}

// ask hands on what one agent owns; false if it says nothing.
func (w *ownerWatch) ask(ctx context.Context, name string, o *owner) bool {
	if o.err != nil {
		return false
	}
	owned, err := rollout.Owned(ctx, o.client)
	w.mu.Lock()
	was := o.silent
	o.silent = err != nil
	w.mu.Unlock()
	if err != nil {
		if !was && !errors.Is(ctx.Err(), context.Canceled) {
			w.log.Warn("a previous server's agent does not say what it owns: its chains end by time alone", "server", name, "error", api.ErrorText(err))
		}
		return false
	}
	heard := false
	for id, slots := range o.slots {
		report, ok := owned[id]
		if !ok || report.Buckets != o.sizes[id] {
			continue // it does not have this VIP, or not this table
		}
		for _, slot := range slots {
			w.tables.SetOwned(id, slot, report.Bitmap, report.At)
			heard = true
		}
	}
	return heard
}
