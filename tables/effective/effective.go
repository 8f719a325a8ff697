// Package effective is the bucket table by which one daemon's packets go: the
// controller's with the daemon's health checks and the agents' reports laid
// over. Like package buckets it is pure: no clock, no input or output.
package effective

import (
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// View is what one daemon knows besides the table.
type View struct {
	// Now is the time in seconds since 1970.
	Now uint32
	// ChainTime: see buckets.Options.
	ChainTime uint32
	// Servers are all that the daemon has a way to, by ascending number.
	// Those with weight 0 (joining, draining, resting) are no deputies.
	Servers []buckets.Server
	// Down are the servers that do not answer, nil: none. They stand last in
	// chains.
	Down func(number uint16) bool
	// Datagrams: the packets are UDP, so that one which nobody owns goes down
	// the whole chain before it is taken. A server that is down and has not
	// said since that it owns something would swallow it, and is left out.
	Datagrams bool
	// Disabled are those that take no new connections, but have theirs; nil:
	// none. Others take their buckets as those of servers that are down.
	Disabled func(number uint16) bool
	// Owns is what agents reported; nil: nothing is known.
	Owns buckets.Owns
	// Owners: see buckets.Options. Where it is given, whoever owns connections of a
	// bucket and has no place in its chain gets one: other daemons may have
	// had deputies that this one, which is new or missed tables (Missed), knows
	// nothing of. Every row is looked at then.
	Owners func(bucket int) []uint16
	// EndAfter is when everybody of this daemon's kind went by the newest
	// table, in seconds since 1970: a report from before, of a server that
	// owns nothing, ends no chain, since somebody may have given it new
	// connections after that. It still tells whom a full chain drops. 0: no
	// bound.
	EndAfter uint32
	// Fewest: deputies are chosen among those that have fewer buckets than
	// their share, so that no server gets more. Else they are drawn by weight,
	// whatever they have. Either way table, servers and health alone
	// determine them, the same at every daemon.
	Fewest bool
}

// Table is what one daemon's packets go by: the table with its health and
// the agents' reports laid over. Its slices have one element a bucket, are
// read only, and change with Update.
type Table struct {
	// Generation is the table's.
	Generation uint32
	Current    []uint16
	Since      []uint32
	Previous   [][buckets.Chain]uint16
	// Forgotten counts previous servers that found no place in a chain though
	// connections may be there.
	Forgotten uint64

	history
}

// history is what the last Update went by.
type history struct {
	table   *buckets.Table // nil: none yet
	come    *buckets.Table // table as far as its times have come (upTo)
	servers []buckets.Server
	known   set      // among servers
	down    set      // unreachable
	downAt  []uint32 // by number: since when, as seen here; 0: it is not
	out     set      // down or disabled
	// heard is what Learn took since the last Update.
	heard []BucketRow
	// open are the buckets that another Update may change without another
	// table and another health, ascending. All with a chain are among them.
	open []chained
}

// set is a set of servers, by number as far as it goes.
type set []bool

func (s set) has(number uint16) bool { return int(number) < len(s) && s[number] }

// equal: s and t have the same servers, however far they go.
func (s set) equal(t set) bool {
	n := min(len(s), len(t))
	return slices.Equal(s[:n], t[:n]) && !slices.Contains(s[n:], true) && !slices.Contains(t[n:], true)
}

// numbers are those in s, ascending.
func (s set) numbers() (numbers []uint16) {
	for n, has := range s {
		if has {
			numbers = append(numbers, uint16(n))
		}
	}
	return numbers
}

// chained is a bucket, and what its row does not say: when its last move was,
// which the time that its packets carry may have left behind, and when each of
// its previous servers had it last.
type chained struct {
	bucket, moved uint32
	left          [buckets.Chain]uint32
}

// grace is how many seconds a daemon without rows of its own, or that missed
// tables, keeps previous servers of which the table says nothing newer, so that
// their agents can report what they own.
const grace = 10

// Restore is a Table of rows that were in force before, so that their
// deputies and chains are kept (a daemon that starts anew). The slices become
// the Table's own; all must be of one length.
func Restore(generation uint32, current []uint16, since []uint32, previous [][buckets.Chain]uint16) *Table {
	return &Table{Generation: generation, Current: current, Since: since, Previous: previous}
}

// Missed: e has no rows yet, or tables between its own and t were never seen, so
// that others may have had servers, and chains that are renewed, of which e
// knows nothing.
func (e *Table) Missed(t *buckets.Table) bool {
	return len(e.Current) != t.Len() || t.Generation-e.Generation > 1
}

// Clone is a copy that Update brings on as it would e: it has the same
// history.
func (e *Table) Clone() *Table {
	c := *e
	c.Current, c.Since, c.Previous = slices.Clone(e.Current), slices.Clone(e.Since), slices.Clone(e.Previous)
	// What else there is is replaced as a whole, not changed, but for these.
	c.open, c.heard = slices.Clone(e.open), slices.Clone(e.heard)
	return &c
}

// At is bucket b's row.
func (e *Table) At(b int) buckets.Row {
	return buckets.Row{Current: e.Current[b], Previous: e.Previous[b], Since: e.Since[b]}
}

// Asked are the servers whose agents' reports may change a row, ascending:
// those in chains, and those that the table's chains name and that may come
// back since they own something after all.
func (e *Table) Asked() (servers []uint16) {
	asked := make([]bool, buckets.MaxServers+1)
	for _, c := range e.open {
		for _, chain := range [2]*[buckets.Chain]uint16{&e.Previous[c.bucket], &e.table.Previous[c.bucket]} {
			for _, s := range chain {
				asked[s] = true
			}
		}
	}
	for s, yes := range asked[:buckets.None] {
		if yes {
			servers = append(servers, uint16(s))
		}
	}
	return servers
}

// Renewed is how many buckets have a chain whose end was put off since a
// previous server owned a connection then.
func (e *Table) Renewed() (n int) {
	for _, c := range e.open {
		if e.Previous[c.bucket][0] != buckets.None && e.Since[c.bucket] > c.moved {
			n++
		}
	}
	return n
}

// Len is how many buckets e has.
func (e *Table) Len() int { return len(e.Current) }
