package tracking

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// SchemeStateless remembers nothing.
const SchemeStateless = "stateless"

// Kinds of scenarios here.
var Kinds = []sim.Kind{{
	Name:  "jet",
	Short: "Connections broken by servers that fail and come back: JET's event simulation (slides, PCC Violations)",
	Long: `JET's event simulation ("PCC Violations" of its slides): connections arrive and
end, servers fail and come back, and the tracking table has room for a share of
the active connections. A connection is broken when a packet of it goes to
another server than its first: looked for after every change and at its end.
Connections of the failed server itself do not count.

Swept, each list while the others stay at their standard value (10 failures a
minute, a table of 0.1, a horizon of 47, 10,000 connections; where a list has
not got that, its first): --kills, --ratio, --horizon, --active. All schemes,
hashes and values see the same connections, and the same failures as far as the
same servers work.

Which entry gives way when the table is full (--evict): "rank" asks the hash.
Entries that it says nothing new with go first, then those that only a standby
server would take, then those that a failed server would take when it is back;
entries that alone hold a connection never go, and none goes for an entry of
its own rank. "state" is the program's own flow table, which knows no ranks:
what fades or is new goes, a confirmed connection never. "lru" takes the one
used longest ago.

After each change every connection sends a packet (--speak same), so that a
table that is too small for all has lost each entry before its connection speaks
again. "never" is the other end: connections are silent between their first
packet and their last one. The tables' sizes are swept under both.`,
	Example: `  fairlead sim jet --plot jet.svg
  fairlead sim jet --hash anchor --kills 40 --ratio 0.1,0.15,0.25 -o json
  fairlead sim jet --scheme jet --evict rank,lru,state --active 10000 --horizon 47
  fairlead sim jet --speak never --hash table-hrw --plot silent.svg`,
	Seeds: 3,
	New:   func() sim.Scenario { return NewJet() },
}}

// Jet is JET's event simulation (slides "PCC Violations") with its options;
// NewJet has what they have.
type Jet struct {
	Schemes []string // jet, full-ct, stateless
	Hashes  []string
	// Evict says which entry gives way: rank, state, lru; empty: rank for
	// jet, lru for full-ct.
	Evict   []string
	Servers int // that work at first; at least 2
	Seconds int // of simulated time
	// WarmUp is for how many seconds a server that comes back after it fell
	// out of the horizon is in it before it works. JET only.
	WarmUp int
	// Lifetimes of connections, Downtimes of servers.
	Lifetimes, Downtimes workload.Flag
	// Speak is what the live connections do after a change: SpeakSame,
	// SpeakRandom, SpeakNever.
	Speak string

	// Swept are: kills of a server a minute, in the mean; the ratio of the
	// tracking table's entries to the active connections; servers in JET's
	// horizon; connections that live at a time in the mean, once that has
	// settled.
	Kills    []float64
	Ratios   []float64
	Horizons []int
	Actives  []int
}

// What live connections do after a change of the pool.
const (
	// SpeakSame has each send a packet, in an order that is the same from
	// change to change, but for who comes and goes.
	SpeakSame = "same"
	// SpeakRandom draws the order anew for each change.
	SpeakRandom = "random"
	// SpeakNever has none send a packet before its last one. Whether one is
	// broken is seen all the same.
	SpeakNever = "never"
)

// The values at which what is not swept stays.
const (
	standardKills   = 10.0
	standardRatio   = 0.1
	standardHorizon = 47
	standardActive  = 10_000
	standardServers = 468
	standardSeconds = 1000
)

// NewJet is the simulation of the slides and its authors' sweeps.
func NewJet() *Jet {
	return &Jet{
		Schemes: []string{SchemeJET, SchemeFullCT, SchemeStateless},
		Hashes:  []string{string(chash.KindAnchor), string(chash.KindTableHRW)},
		Servers: standardServers, Seconds: standardSeconds, WarmUp: 60, Speak: SpeakSame,
		Lifetimes: workload.Flag{Distribution: workload.Hadoop}, Downtimes: workload.Flag{Distribution: workload.Downtime},
		Kills:    []float64{1, 2, 5, 10, 20, 40},
		Ratios:   []float64{.1, .25, .5, .75, 1, 1.25, 1.5},
		Horizons: []int{5, 12, 24, 47},
		Actives:  []int{10_000, 20_000, 100_000, 220_000},
	}
}

// Flags implements sim.Scenario.
func (j *Jet) Flags(f *sim.Flags) {
	f.Add("scheme", &j.Schemes, "`schemes`: jet, full-ct, stateless")
	f.Add("hash", &j.Hashes, "consistent `hashes`: "+kindNames())
	f.Add("servers", &j.Servers, "servers that work at first")
	f.Add("seconds", &j.Seconds, "simulated seconds")
	f.Add("kills", &j.Kills, "`rates`: servers that fail a minute, in the mean")
	f.Add("ratio", &j.Ratios, "`ratios`: entries of the tracking table for each active connection")
	f.Add("horizon", &j.Horizons, "`sizes` of the horizon, in servers")
	f.Add("active", &j.Actives, "`numbers` of connections that live at a time, in the mean")
	f.Add("evict", &j.Evict, "`rules` of what gives way when the table is full: rank (default of jet), state, lru (default of full-ct)")
	f.Add("warm-up", &j.WarmUp, "seconds that a server is in the horizon before it works, if it had fallen out")
	f.Add("lifetimes", &j.Lifetimes, workload.LifetimesUsage)
	f.Add("downtimes", &j.Downtimes, "how long servers stay away: downtime or a file (fairlead sim workloads)")
	f.Add("speak", &j.Speak, "what connections do after a change: send a packet in the same order each time, in a random one, or never")
}

func kindNames() string {
	var names []string
	for _, k := range chash.Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// numbers writes a list with no more digits than there are.
func numbers(list []float64, between string) string {
	var texts []string
	for _, x := range list {
		texts = append(texts, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strings.Join(texts, between)
}

// Check implements sim.Scenario.
func (j *Jet) Check() error {
	if err := j.checkNames(); err != nil {
		return err
	}
	for _, lengths := range []struct {
		flag string
		n    int
	}{{"kills", len(j.Kills)}, {"ratio", len(j.Ratios)}, {"horizon", len(j.Horizons)}, {"active", len(j.Actives)}} {
		if lengths.n == 0 {
			return fmt.Errorf("--%s is empty: give at least one value", lengths.flag)
		}
	}
	for _, x := range j.Kills {
		if !(x >= 0 && x <= 6000) {
			return fmt.Errorf("--kills %g: must be 0 to 6000 a minute", x)
		}
	}
	for _, x := range j.Ratios {
		if !(x >= 0 && x <= 1000) {
			return fmt.Errorf("--ratio %g: must be 0 to 1000", x)
		}
	}
	for _, n := range j.Actives {
		if n < 1 || n > 10_000_000 {
			return fmt.Errorf("--active %d: must be 1 to 10,000,000 connections", n)
		}
	}
	return j.checkSizes()
}

func (j *Jet) checkSizes() error {
	if j.Servers < 2 || j.Servers > MaxServers {
		return fmt.Errorf("--servers %d: must be 2 to %d", j.Servers, MaxServers)
	}
	for _, h := range j.Horizons {
		if h < 0 || h > MaxServers-j.Servers {
			return fmt.Errorf("--horizon %d: must be at least 0, and with --servers %d at most %d", h, j.Servers, MaxServers)
		}
	}
	switch {
	case j.Seconds < 1 || j.Seconds > 1_000_000:
		return fmt.Errorf("--seconds %d: must be 1 to 1,000,000", j.Seconds)
	case j.WarmUp < 0 || j.WarmUp > 1_000_000:
		return fmt.Errorf("--warm-up %d: must be 0 to 1,000,000 seconds", j.WarmUp)
	case j.Lifetimes.Mean() < 1:
		return fmt.Errorf("--lifetimes %s: the mean is 0; give one in which some connections live", j.Lifetimes.Name)
	}
	return nil
}

func (j *Jet) checkNames() error {
	if len(j.Schemes) == 0 || len(j.Hashes) == 0 {
		return fmt.Errorf("--scheme %v, --hash %v: give at least one of each", j.Schemes, j.Hashes)
	}
	for _, s := range j.Schemes {
		if !slices.Contains([]string{SchemeJET, SchemeFullCT, SchemeStateless}, s) {
			return fmt.Errorf("--scheme %q: must be %s, %s or %s", s, SchemeJET, SchemeFullCT, SchemeStateless)
		}
	}
	jets := slices.Contains(j.Schemes, SchemeJET)
	for _, name := range j.Hashes {
		k := chash.Kind(name)
		if !slices.Contains(chash.Kinds(), k) {
			return fmt.Errorf("--hash %q: there are %s", name, kindNames())
		}
		if why := noJET(k); jets && why != "" {
			return fmt.Errorf("--hash %q: %s; take %s or %s, or leave %s out of --scheme", name, why, chash.KindAnchor, chash.KindTableHRW, SchemeJET)
		}
	}
	for _, e := range j.Evict {
		switch {
		case !slices.Contains([]string{EvictRank, EvictLRU, EvictState}, e):
			return fmt.Errorf("--evict %q: must be %s, %s or %s", e, EvictRank, EvictState, EvictLRU)
		case e == EvictRank && !jets:
			return fmt.Errorf("--evict %q: ranks come from the horizon, which only %s has; take %s or %s", e, SchemeJET, EvictLRU, EvictState)
		}
	}
	if !slices.Contains([]string{SpeakSame, SpeakRandom, SpeakNever}, j.Speak) {
		return fmt.Errorf("--speak %q: must be %s, %s or %s", j.Speak, SpeakSame, SpeakRandom, SpeakNever)
	}
	return nil
}
