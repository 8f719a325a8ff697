package tracking

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// SchemeStateless remembers nothing.
const SchemeStateless = "stateless"

// JetEventsOptions of JET's event simulation (slides "PCC Violations");
// DefaultJetEvents has what they have.
type JetEventsOptions struct {
	Scheme  string // jet, full-ct, stateless
	Hash    chash.Kind
	Servers int // that work at first; at least 2
	Horizon int // servers in JET's horizon
	Seconds int // of simulated time
	// Active is how many connections live at a time in the mean, once that
	// has settled.
	Active int
	// Kills of a server a minute, in the mean.
	Kills float64
	// Ratio of the tracking table's entries to Active.
	Ratio float64
	// Evict says which entry gives way: rank, state or lru; empty: rank for
	// jet, lru for full-ct.
	Evict string
	// WarmUp is for how many seconds a server that comes back after it fell
	// out of the horizon is in it before it works. JET only.
	WarmUp int
	// Seeds is how many seeds are run, from Seed on.
	Seeds int
	Seed  uint64
	// Progress is called now and then. May be nil.
	Progress func(run, runs int, done float64)
}

// DefaultJetEvents is the simulation of the paper with a tracking table of a
// tenth of the active connections.
func DefaultJetEvents() JetEventsOptions {
	return JetEventsOptions{
		Scheme: SchemeJET, Hash: chash.KindAnchor, Servers: 468, Horizon: 47, Seconds: 1000,
		Active: 10_000, Kills: 10, Ratio: 0.1, WarmUp: 60, Seeds: 1, Seed: 1,
	}
}

// evict is Evict with its default.
func (o *JetEventsOptions) evict() string {
	switch {
	case o.Evict != "":
		return o.Evict
	case o.Scheme == SchemeJET:
		return EvictRank
	}
	return EvictLRU
}

// Check says what is wrong with the options, if anything.
func (o *JetEventsOptions) Check() error {
	evict := o.evict()
	switch {
	case !slices.Contains([]string{SchemeJET, SchemeFullCT, SchemeStateless}, o.Scheme):
		return fmt.Errorf("scheme %q: must be %s, %s or %s", o.Scheme, SchemeJET, SchemeFullCT, SchemeStateless)
	case !slices.Contains(chash.Kinds(), o.Hash):
		return fmt.Errorf("hash %q: there are %v", o.Hash, chash.Kinds())
	case o.Scheme == SchemeJET && noJET(o.Hash) != "":
		return fmt.Errorf("hash %q: %s; take %s or %s", o.Hash, noJET(o.Hash), chash.KindAnchor, chash.KindTableHRW)
	case o.Servers < 2 || o.Horizon < 0 || o.Servers > MaxServers || o.Horizon > MaxServers-o.Servers:
		return fmt.Errorf("servers %d and a horizon of %d: must be at least 2, at least 0, and together at most %d", o.Servers, o.Horizon, MaxServers)
	case o.Seconds < 1 || o.Seconds > 1_000_000:
		return fmt.Errorf("seconds %d: must be 1 to 1,000,000", o.Seconds)
	case o.Active < 1 || o.Active > 10_000_000:
		return fmt.Errorf("active %d: must be 1 to 10,000,000 connections", o.Active)
	case !(o.Kills >= 0 && o.Kills <= 6000):
		return fmt.Errorf("kills %g: must be 0 to 6000 a minute", o.Kills)
	case !(o.Ratio >= 0 && o.Ratio <= 1000):
		return fmt.Errorf("ratio %g: must be 0 to 1000", o.Ratio)
	case !slices.Contains([]string{EvictRank, EvictLRU, EvictState}, evict):
		return fmt.Errorf("evict %q: must be %s, %s or %s", evict, EvictRank, EvictState, EvictLRU)
	case evict == EvictRank && o.Scheme != SchemeJET:
		return fmt.Errorf("evict %q: ranks come from the horizon, which only jet has; take %s or %s", evict, EvictLRU, EvictState)
	case o.WarmUp < 0 || o.WarmUp > 1_000_000:
		return fmt.Errorf("warm-up %d: must be 0 to 1,000,000 seconds", o.WarmUp)
	case o.Seeds < 1 || o.Seeds > 10_000:
		return fmt.Errorf("seeds %d: must be 1 to 10,000", o.Seeds)
	}
	return nil
}

// JetEventsResult is what `fairlead sim jet-events -o json` prints.
type JetEventsResult struct {
	sim.Machine
	Scheme  string     `json:"scheme"`
	Hash    chash.Kind `json:"hash"`
	Servers int        `json:"servers"`
	Horizon int        `json:"horizon"`
	Seconds int        `json:"seconds"`
	Active  int        `json:"active"`
	Kills   float64    `json:"kills_per_minute"`
	Ratio   float64    `json:"ratio"`
	Entries int        `json:"entries"` // of the tracking table
	Evict   string     `json:"evict"`
	WarmUp  int        `json:"warm_up_s"`
	// Runs, one a seed, and what they come to.
	Runs        []EventsRun `json:"runs"`
	Connections int         `json:"connections"`
	Broken      int         `json:"broken"`
	BrokenShare float64     `json:"broken_share"`
}

// EventsRun is what happened under one seed.
type EventsRun struct {
	Seed        uint64 `json:"seed"`
	Connections int    `json:"connections"`
	// Kills and Additions of servers; Unforeseen is how many of these were
	// not in the horizon when they came back, and so warmed up.
	Kills      int `json:"kills"`
	Additions  int `json:"additions"`
	Unforeseen int `json:"unforeseen"`
	// Killed connections were on a server when it was killed.
	Killed int `json:"killed"`
	Broken int `json:"broken"`
	// Active and Used are the means over the checks of live connections and
	// of entries of the tracking table, Needed of those without which a
	// connection would be elsewhere already.
	Active float64 `json:"mean_active"`
	Used   float64 `json:"mean_used"`
	Needed float64 `json:"mean_needed"`
	// Checks is how many times all live connections were looked up.
	Checks int `json:"checks"`
	// Evicted entries by what the hash said of them or by the rule by which
	// they went, and insertions that found none that could go.
	EvictedPlaced    int `json:"evicted_placed"`
	EvictedStandby   int `json:"evicted_standby"`
	EvictedReturning int `json:"evicted_returning"`
	EvictedMoved     int `json:"evicted_moved"`
	EvictedLRU       int `json:"evicted_lru"`
	EvictedState     int `json:"evicted_state"`
	Refused          int `json:"refused"`
}

// JetEvents runs the simulation for every seed.
func JetEvents(ctx context.Context, o JetEventsOptions) (*JetEventsResult, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Evict = o.evict()
	entries := int(math.Round(o.Ratio * float64(o.Active)))
	if o.Scheme == SchemeStateless {
		entries = 0
	}
	r := &JetEventsResult{
		Machine: sim.ThisMachine(), Scheme: o.Scheme, Hash: o.Hash, Servers: o.Servers, Horizon: o.Horizon,
		Seconds: o.Seconds, Active: o.Active, Kills: o.Kills, Ratio: o.Ratio, Entries: entries, Evict: o.Evict, WarmUp: o.WarmUp,
	}
	for i := range o.Seeds {
		e, err := newEventsRun(o, o.Seed+uint64(i), entries)
		if err != nil {
			return nil, err
		}
		if o.Progress != nil {
			e.progress = func(done float64) { o.Progress(i+1, o.Seeds, done) }
		}
		if err := e.run(ctx); err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, e.result())
		r.Connections += e.sum.Connections
		r.Broken += e.sum.Broken
	}
	r.BrokenShare = float64(r.Broken) / float64(max(1, r.Connections))
	return r, nil
}
