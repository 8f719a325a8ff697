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

// Names lists all schemes that New makes, in the order in which they are shown.
func Names() []string {
	return []string{Hash, "ring", "table-hrw", "maglev", "anchor", AnchorTable, "hrw", "dx", Beamer1, Beamer1Any, Beamer3, Faild1, JET, JETTableHRW, FullCT, FullCTECMP, Cheetah}
}

// New makes a scheme by its name.
func New(name string, s Setup) (Scheme, error) {
	switch name {
	case Hash:
		return &modulo{}, nil
	case Beamer1:
		return newBeamer(s, 1), nil
	case Beamer3:
		return newBeamer(s, 3), nil
	case Beamer1Any:
		return newAnyBeamer(s), nil
	case Faild1:
		return newFaild(s)
	case AnchorTable:
		return newPlaced(s, chash.KindAnchor), nil
	case JET:
		return newTracking(s, true, chash.KindAnchor), nil
	case JETTableHRW:
		return newTracking(s, true, chash.KindTableHRW), nil
	case FullCT, FullCTECMP:
		return newTracking(s, false, chash.KindAnchor), nil
	case Cheetah:
		return newCookies(s), nil
	case "ring", "table-hrw", "maglev", "anchor", "hrw", "dx":
		return newStateless(s, chash.Kind(name)), nil
	}
	return nil, fmt.Errorf("scheme %q: there are %s", name, strings.Join(Names(), ", "))
}

// serverName is a server's for hashes that go by names.
func (s Setup) serverName(n int) string { return fmt.Sprintf("server %d of seed %d", n, s.Seed) }
