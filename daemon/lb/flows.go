package lb

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/kernel/lb"
)

const (
	// sweepInterval is how often expired entries are cleared and live ones
	// counted. Packets need no sweep: they take the places of expired ones.
	sweepInterval = 30 * time.Second
	// fullShown is how long status warns of entries that were refused.
	fullShown = 10 * time.Minute
)

// flowWatch is what is known of a balancer's flow table between sweeps.
type flowWatch struct {
	mu    sync.Mutex
	stats lb.FlowStats
	swept bool
	// full is each VIP's counter of refused entries as it was last seen, and
	// grew the refusals seen lately.
	full map[uint32]uint64
	grew map[uint32]refusals
}

// refusals are entries refused until a moment.
type refusals struct {
	n     uint64
	until time.Time
}

// watchFlows sweeps the flow table from time to time until ctx ends.
func (b *balancer) watchFlows(ctx context.Context) error {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		stats, err := b.lb.FlowSweep(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			b.log.Error("clear expired flow entries; trying again", "error", err)
		} else {
			b.table.sweep(stats)
		}
		if counters, err := b.lb.Counters(); err != nil {
			b.log.Error("read counters of the flow table; trying again", "error", err)
		} else {
			b.table.count(counters.VIPs, time.Now())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *flowWatch) sweep(stats lb.FlowStats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats, w.swept = stats, true
}

// count compares the counters with what they were.
func (w *flowWatch) count(vips []lb.VIPCounters, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	full := map[uint32]uint64{}
	if w.grew == nil {
		w.grew = map[uint32]refusals{}
	}
	for id, r := range w.grew {
		if now.After(r.until) {
			delete(w.grew, id)
		}
	}
	for _, v := range vips {
		full[v.ID] = v.FlowFull
		// What was counted before this daemon began is not news.
		if before, known := w.full[v.ID]; known && v.FlowFull > before {
			w.grew[v.ID] = refusals{w.grew[v.ID].n + v.FlowFull - before, now.Add(fullShown)}
		}
	}
	w.full = full
}

// describe fills in what status and metrics show of the table.
func (w *flowWatch) describe(s *fairleadv1.GetStatusResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.swept {
		s.Flows = &fairleadv1.Flows{Confirmed: w.stats.Confirmed, Unconfirmed: w.stats.Used - w.stats.Confirmed}
		if w.stats.Confirmed*2 > w.stats.Limit {
			s.Warnings = append(s.Warnings, fmt.Sprintf("flows: live connections hold %d of %d places, so that sets of places begin to be full: "+
				"raise limits.flows in the configuration (docs/jet.md says how far) and restart", w.stats.Confirmed, w.stats.Limit))
		}
	}
	now := time.Now()
	for _, v := range s.Vips {
		if r := w.grew[v.Id]; now.Before(r.until) {
			s.Warnings = append(s.Warnings, fmt.Sprintf("VIP %s: the flow table refused an entry %d times lately, its sets being full of live connections: "+
				"those that were to be tracked may break with the next change; raise limits.flows in the configuration (docs/jet.md says how far) and restart", v.Name, r.n))
		}
	}
}
