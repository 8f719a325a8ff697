package pcc

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Setup is what schemes are made with.
type Setup struct {
	// Working and Standby servers, as in the Run.
	Working, Standby int
	// Seed of what schemes draw, and part of the servers' names, so that each
	// seed has other tables.
	Seed uint64
	// Buckets is how many buckets beamer and faild have for each working
	// server (at the start).
	Buckets int
	// ChainTime is for how long beamer's servers pass packets on after a
	// bucket's move.
	ChainTime sim.Time
	// Entries is how many entries the tables of jet and full-ct have for each
	// connection that is live at a time.
	Entries float64
	// Flood of SYNs that those tables suffer.
	Flood workload.Flood
}

// Defaults of a Setup. Beamer's authors have 100 buckets a server (§6.2) and
// four minutes of daisy chaining (their code). At as many entries as that, one
// line of a table in a million has more connections than places.
const (
	DefaultBuckets   = 100
	DefaultChainTime = 240 * sim.Second
	DefaultEntries   = 14
)

// Names of schemes. Those of consistent hashes are the hashes': nothing is
// remembered, each packet goes where the hash points.
const (
	Hash = "hash"
	// AnchorTable is AnchorHash as balancers of this program have it: the order
	// in which servers were removed follows from their numbers, not from
	// history, so that all balancers agree. That moves more connections than
	// "anchor", which removes the last and adds it first.
	AnchorTable = "anchor-table"
	Beamer1     = "beamer-1"
	Beamer3     = "beamer-3"
	// Beamer1Any is Beamer1 whose buckets are moved greedily.
	Beamer1Any = "beamer-1-any"
	Faild1     = "faild-1"
	// JET is on AnchorHash, JETTableHRW on highest random weight by a table.
	JET         = "jet"
	JETTableHRW = "jet-table-hrw"
	FullCT      = "full-ct"
	FullCTECMP  = "full-ct-ecmp"
	Cheetah     = "cheetah"
)

// schemes are all, in the order in which they are shown.
var schemes = []struct {
	name string
	make func(Setup) (Scheme, error)
}{
	{Hash, func(Setup) (Scheme, error) { return &modulo{}, nil }},
	{"ring", hashed(chash.KindRing)},
	{"table-hrw", hashed(chash.KindTableHRW)},
	{"maglev", hashed(chash.KindMaglev)},
	{"anchor", hashed(chash.KindAnchor)},
	{AnchorTable, func(s Setup) (Scheme, error) { return newPlaced(s, chash.KindAnchor), nil }},
	{"hrw", hashed(chash.KindHRW)},
	{"dx", hashed(chash.KindDx)},
	{Beamer1, func(s Setup) (Scheme, error) { return newBeamer(s, 1), nil }},
	{Beamer1Any, func(s Setup) (Scheme, error) { return newAnyBeamer(s), nil }},
	{Beamer3, func(s Setup) (Scheme, error) { return newBeamer(s, 3), nil }},
	{Faild1, func(s Setup) (Scheme, error) { return newFaild(s) }},
	{JET, tracked(true, chash.KindAnchor)},
	{JETTableHRW, tracked(true, chash.KindTableHRW)},
	{FullCT, tracked(false, chash.KindAnchor)},
	{FullCTECMP, tracked(false, chash.KindAnchor)},
	{Cheetah, func(s Setup) (Scheme, error) { return newCookies(s), nil }},
}

func hashed(k chash.Kind) func(Setup) (Scheme, error) {
	return func(s Setup) (Scheme, error) { return newStateless(s, k), nil }
}

func tracked(foreseen bool, k chash.Kind) func(Setup) (Scheme, error) {
	return func(s Setup) (Scheme, error) { return newTracking(s, foreseen, k), nil }
}

// Names lists all schemes that New makes, in the order in which they are shown.
func Names() (names []string) {
	for _, s := range schemes {
		names = append(names, s.name)
	}
	return names
}

// New makes a scheme by its name.
func New(name string, s Setup) (Scheme, error) {
	for _, known := range schemes {
		if known.name == name {
			return known.make(s)
		}
	}
	return nil, fmt.Errorf("scheme %q: there are %s", name, strings.Join(Names(), ", "))
}

// serverName is a server's for hashes that go by names.
func (s Setup) serverName(n int) string { return fmt.Sprintf("server %d of seed %d", n, s.Seed) }
