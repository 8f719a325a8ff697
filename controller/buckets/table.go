// Package buckets is the bucket table of one VIP: which server takes which
// part of the clients' packets, and which servers took it before. Schemes
// beamer and faild both go by it. Everything here is a pure function of its
// arguments: no clock, no random numbers, no input or output.
//
// Beamer (NSDI 2018, section 4.3) has one previous server a bucket; here there
// are up to Chain, so that a connection survives three reassignments of its
// bucket within its life.
package buckets

import (
	"slices"

	"github.com/fairlead/fairlead/bpf"
)

const (
	// Chain is how many previous servers a bucket remembers.
	Chain = bpf.Chain
	// None stands where no server is.
	None = bpf.BucketNone
	// MaxServers bounds servers' numbers: 0 to MaxServers-1.
	MaxServers = None
	// Max is how many buckets a table may have.
	Max = 1 << 23
)

// Table is a VIP's bucket table as the controller hands it out. Its slices
// have one element a bucket and are not changed once others may have the
// table: Apply and ApplyDelta return a new one.
type Table struct {
	// Generation counts the tables of one VIP, beginning with 1. It is a
	// serial number: b is newer than a if int32(b-a) > 0.
	Generation uint32
	// Current is the number of the server that takes the bucket's packets;
	// None: no server ever took one.
	Current []uint16
	// Since is when Current took the bucket, in seconds since 1970; 0: it had
	// it from the beginning.
	Since []uint32
	// Previous are the servers that had it before, newest first, filled up
	// with None. Neither Current nor a server twice is among them.
	Previous [][Chain]uint16
}

// Row is what packets of a bucket go by.
type Row struct {
	Current  uint16
	Previous [Chain]uint16 // see Table.Previous; servers that are down stand last
	// Since is the time that its packets carry, in seconds since 1970: of the
	// last move, or when a previous server was last known to own one of its
	// connections.
	Since uint32
}

// NoPrevious is the chain of a settled bucket.
var NoPrevious = [Chain]uint16{None, None, None}

// Server is one that may have buckets.
type Server struct {
	Number uint16 // 0 to MaxServers-1
	// Weight is its share of the buckets beside the others' weights; 0: it
	// drains and takes none.
	Weight int
}

// Owns says what the agent of server number last reported of a bucket:
// whether a connection of it lives there, and when that was seen, in seconds
// since 1970; at 0: nothing is known.
type Owns func(number uint16, bucket int) (owned bool, at uint32)

// Options are what a change of a table goes by besides the servers.
type Options struct {
	// Now is the change's time, in seconds since 1970.
	Now uint32
	// ChainTime is for how many seconds after a move packets are passed on to
	// a server that had the bucket before and says nothing of it.
	ChainTime uint32
	// Owns is what agents reported; nil: nothing is known.
	Owns Owns
	// Owners are those that reported to own connections of a bucket, whether
	// the table names them or not (a daemon's deputies); nil: none.
	Owners func(bucket int) []uint16
	// EndAfter: reports from before, in seconds since 1970, that a server owns
	// nothing end no chain; 0: no bound.
	EndAfter uint32
}

// ReportAfter is how many seconds after a move a report must have been taken
// to say that a previous server has no connection of the bucket: until then
// a balancer may not have heard of the move and give it new ones.
const ReportAfter = 5

// Move gives a bucket to another server.
type Move struct {
	Bucket uint32
	To     uint16
}

// New is the first table, generation 1, of n buckets: one contiguous range a
// server, in the order of servers, as long as its weight says (to within one
// bucket). If all drain, all buckets are None.
func New(n int, servers []Server) *Table {
	t := &Table{
		Generation: 1,
		Current:    make([]uint16, n),
		Since:      make([]uint32, n),
		Previous:   make([][Chain]uint16, n),
	}
	total := 0
	for _, s := range servers {
		total += s.Weight
	}
	b, sum := 0, 0
	for _, s := range servers {
		sum += s.Weight
		for total > 0 && b < int(uint64(n)*uint64(sum)/uint64(total)) {
			t.Current[b] = s.Number
			b++
		}
	}
	for ; b < n; b++ {
		t.Current[b] = None
	}
	for b := range t.Previous {
		t.Previous[b] = NoPrevious
	}
	return t
}

// Len is how many buckets t has.
func (t *Table) Len() int { return len(t.Current) }

// Clone is a deep copy.
func (t *Table) Clone() *Table {
	return &Table{t.Generation, slices.Clone(t.Current), slices.Clone(t.Since), slices.Clone(t.Previous)}
}

// Loads is how many buckets each server has, by number, up to the highest one
// that has any.
func (t *Table) Loads() []int {
	loads := t.loads()
	n := MaxServers
	for n > 0 && loads[n-1] == 0 {
		n--
	}
	return slices.Clone(loads[:n])
}

// Newer: generation b comes after a.
func Newer(b, a uint32) bool { return int32(b-a) > 0 }
