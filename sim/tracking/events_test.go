package tracking

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/chash"
)

func TestTracking(t *testing.T) {
	ct := newTracking(4)
	placed := ct.insert(1, rankPlaced)
	standby := ct.insert(2, rankStandby)
	returning := ct.insert(3, rankReturning)
	moved := ct.insert(4, rankMoved)
	if !ct.full() {
		t.Fatal("four entries of four: not full")
	}
	if v := ct.victim(rankStandby, true); v != placed {
		t.Errorf("victim %d, want the entry that says nothing new", v)
	}
	if v := ct.victim(rankPlaced, true); v != none {
		t.Errorf("victim %d for the lowest rank, want none", v)
	}
	ct.setRank(placed, rankMoved)
	if v := ct.victim(rankReturning, true); v != standby {
		t.Errorf("victim %d, want that of the standby server", v)
	}
	ct.remove(standby)
	ct.insert(5, rankReturning)
	if v := ct.victim(rankReturning, true); v != none {
		t.Errorf("victim %d, want none: one of the same rank never goes", v)
	}
	if v := ct.victim(rankReturning, false); v != returning {
		t.Errorf("victim %d, want the one used longest ago", v)
	}
	ct.touch(returning)
	if v := ct.victim(rankReturning, false); v == returning {
		t.Error("an entry just used goes before an older one")
	}
	ct.remove(moved)
	if ct.used != 3 {
		t.Errorf("%d used, want 3", ct.used)
	}
}

// little is a run of the events that takes some milliseconds.
func little() JetEventsOptions {
	o := DefaultJetEvents()
	o.Servers, o.Horizon, o.Active, o.Seconds, o.Kills = 60, 6, 500, 600, 4
	return o
}

func TestJetEventsRepeat(t *testing.T) {
	for _, scheme := range []string{SchemeJET, SchemeFullCT, SchemeStateless} {
		var bytes [2][]byte
		for i := range bytes {
			o := little()
			o.Scheme, o.Seeds = scheme, 2
			r, err := JetEvents(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if bytes[i], err = json.Marshal(r); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(bytes[0], bytes[1]) {
			t.Errorf("%s: two runs of the same seeds differ:\n%s\n%s", scheme, bytes[0], bytes[1])
		}
	}
}

// Named streams: what the scheme does moves neither arrivals nor failures.
func TestJetEventsStreams(t *testing.T) {
	var runs []EventsRun
	for _, scheme := range []string{SchemeJET, SchemeFullCT, SchemeStateless} {
		o := little()
		o.Scheme = scheme
		r, err := JetEvents(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r.Runs[0])
	}
	for _, x := range runs[1:] {
		if x.Connections != runs[0].Connections || x.Kills != runs[0].Kills {
			t.Errorf("%d connections and %d kills, under another scheme %d and %d", x.Connections, x.Kills, runs[0].Connections, runs[0].Kills)
		}
	}
}

// Little's law: arrivals and lifetimes give the active connections asked for.
func TestJetEventsLoad(t *testing.T) {
	o := little()
	o.Active, o.Kills, o.Seconds = 2000, 0, 1000
	r, err := JetEvents(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := float64(o.Active) * 1000 / 21.334
	if got := float64(r.Connections); math.Abs(got-want) > 5*math.Sqrt(want) {
		t.Errorf("%.0f connections, want about %.0f", got, want)
	}
	if r.Broken != 0 || r.Runs[0].Checks != 0 {
		t.Errorf("%d broken, %d checks, though no server failed", r.Broken, r.Runs[0].Checks)
	}
}

// With a table that has room for all, tracking breaks nothing, whatever the
// hash; without any table, servers that come back do.
func TestJetEventsAllHashes(t *testing.T) {
	for _, k := range chash.Kinds() {
		for _, scheme := range []string{SchemeJET, SchemeFullCT, SchemeStateless} {
			if scheme == SchemeJET && !k.Minimal() {
				continue
			}
			o := little()
			o.Hash, o.Scheme, o.Ratio = k, scheme, 2
			r, err := JetEvents(context.Background(), o)
			if err != nil {
				t.Fatalf("%s, %s: %v", k, scheme, err)
			}
			if broken := r.Broken > 0; broken != (scheme == SchemeStateless) {
				t.Errorf("%s, %s: %d of %d broken", k, scheme, r.Broken, r.Connections)
			}
			if x := r.Runs[0]; x.Kills == 0 || x.Additions == 0 || x.Killed == 0 {
				t.Errorf("%s, %s: %+v: nothing happened", k, scheme, x)
			}
		}
	}
}

// More servers fail than the horizon has room for: those that it let go warm
// up before they work, and still nothing breaks.
func TestJetEventsUnforeseen(t *testing.T) {
	for _, k := range []chash.Kind{chash.KindAnchor, chash.KindTableHRW} {
		o := little()
		o.Hash, o.Kills, o.Horizon, o.Ratio = k, 12, 3, 2
		r, err := JetEvents(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Runs[0].Unforeseen == 0 || r.Broken > 0 {
			t.Errorf("%s: %d unforeseen, %d broken", k, r.Runs[0].Unforeseen, r.Broken)
		}
	}
}

// The program's own flow table breaks nothing where it has the size that
// docs/jet.md says, and refuses entries where it has a sixth of it.
func TestJetEventsProgramsTable(t *testing.T) {
	for ratio, fits := range map[float64]bool{0.7: true, 0.1: false} {
		o := DefaultJetEvents()
		o.Evict, o.Ratio = EvictState, ratio
		r, err := JetEvents(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if x := r.Runs[0]; (r.Broken == 0) != fits || !fits && x.Refused == 0 {
			t.Errorf("ratio %g: %d broken, %d refused", ratio, r.Broken, x.Refused)
		}
	}
}

// JET's slides, "PCC Violations", with a table of a tenth of the active
// connections and ten failures a minute: nothing breaks; full tracking with
// the same table breaks hundreds.
func TestJetEventsPaper(t *testing.T) {
	for scheme, broken := range map[string]bool{SchemeJET: false, SchemeFullCT: true} {
		o := DefaultJetEvents()
		o.Scheme, o.Seeds = scheme, 3
		r, err := JetEvents(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if (r.Broken > 0) != broken {
			t.Errorf("%s: %d of %d broken", scheme, r.Broken, r.Connections)
		}
	}
}

func TestJetEventsOptions(t *testing.T) {
	for want, change := range map[string]func(*JetEventsOptions){
		`scheme "x"`:    func(o *JetEventsOptions) { o.Scheme = "x" },
		`hash "x"`:      func(o *JetEventsOptions) { o.Hash = "x" },
		`hash "maglev"`: func(o *JetEventsOptions) { o.Hash = chash.KindMaglev },
		"servers 1 ":    func(o *JetEventsOptions) { o.Servers = 1 },
		"horizon of -1": func(o *JetEventsOptions) { o.Horizon = -1 },
		"seconds 0":     func(o *JetEventsOptions) { o.Seconds = 0 },
		"active 0":      func(o *JetEventsOptions) { o.Active = 0 },
		"kills -1":      func(o *JetEventsOptions) { o.Kills = -1 },
		"kills NaN":     func(o *JetEventsOptions) { o.Kills = math.NaN() },
		"ratio -0.1":    func(o *JetEventsOptions) { o.Ratio = -0.1 },
		`evict "x"`:     func(o *JetEventsOptions) { o.Evict = "x" },
		`evict "rank"`:  func(o *JetEventsOptions) { o.Scheme, o.Evict = SchemeFullCT, EvictRank },
		"warm-up -1":    func(o *JetEventsOptions) { o.WarmUp = -1 },
		"seeds 0":       func(o *JetEventsOptions) { o.Seeds = 0 },
	} {
		o := DefaultJetEvents()
		change(&o)
		if _, err := JetEvents(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := JetEvents(ctx, DefaultJetEvents()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
