// Package chash is the family of consistent hashes. What a table or a hash
// built from scratch looks like is a pure function of the servers' names (or
// numbers) and weights: every balancer that holds the same servers computes
// the same, whatever their order and the machine (integers only: floating
// point may differ between processors).
//
// Two ways to use it. The data plane takes flat tables: Compile makes one of
// every kind, NewAnchorTable one that is walked. Simulators and other
// programs take a Hash, which changes one server at a time.
//
// docs/hashes.md compares the kinds by cost, memory, balance and disruption.
package chash

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind names a consistent hash, as the configuration does.
type Kind string

// The kinds. Their types' comments say what each costs and promises.
const (
	KindAnchor   Kind = "anchor"
	KindTableHRW Kind = "table-hrw"
	KindRing     Kind = "ring"
	KindHRW      Kind = "hrw"
	KindMaglev   Kind = "maglev"
	KindBucket   Kind = "bucket"
	KindDx       Kind = "dx"
)

// Kinds lists all kinds, in the order in which documentation and plots show
// them.
func Kinds() []Kind {
	return []Kind{KindTableHRW, KindAnchor, KindRing, KindHRW, KindMaglev, KindBucket, KindDx}
}

// Weighted tells whether servers may differ in weight. Anchor and Dx choose
// among buckets that are all alike.
func (k Kind) Weighted() bool { return k != KindAnchor && k != KindDx }

// Buckets tells whether the kind places keys on servers' numbers, all alike
// and as many as the capacity, so that both are fixed for life.
func (k Kind) Buckets() bool { return !k.Weighted() }

// SpareNumbers tells whether the horizon may have numbers that no server is
// named for yet, in a VIP's table.
func (k Kind) SpareNumbers() bool { return k == KindAnchor }

// DefaultCapacity is the number of buckets (anchor, dx) for so many servers
// and a horizon of spare ones where nobody says another: room for a quarter
// more and at least 16, since the number of a removed server rests before it
// is free again, and for the horizon.
func DefaultCapacity(servers, horizon int) int {
	return servers + max(16, servers/4, horizon)
}

// Minimal tells whether a change moves only keys that leave or join the
// changed server, whatever the order of changes. JET needs that to say in
// advance which keys a change will move. Maglev moves some others too, and
// bucket's table depends on its history.
func (k Kind) Minimal() bool { return k != KindMaglev && k != KindBucket }

// Errors of New, Compile, NewAnchorTable and the methods of a Hash, which
// wrap them with the value and the remedy. After an error nothing has changed.
var (
	ErrUnknown   = errors.New("chash: unknown")
	ErrDuplicate = errors.New("chash: duplicate")
	ErrWeight    = errors.New("chash: weight out of range")
	ErrCapacity  = errors.New("chash: capacity exhausted")
	ErrHorizon   = errors.New("chash: horizon too large")
	ErrRows      = errors.New("chash: number of rows")
)

// Limits of a server's weight.
const (
	MinWeight = 1
	MaxWeight = 65535
)

// Node is the handle of a server within one Hash: stable while the server is
// known there (working or in the horizon), reused afterwards.
type Node int32

// NoNode is what Lookup returns while no server is working.
const NoNode Node = -1

// Server is a server and its share.
type Server struct {
	Name   string
	Weight int // MinWeight to MaxWeight; all equal where the kind is not Weighted
}

// Hash places keys on the working servers, and tells which keys the horizon
// would take: the servers that may be added next (JET, §2). It is built for
// changes of one server; look-ups may run side by side, changes may not run
// beside anything.
type Hash interface {
	// Lookup returns the working server for a key, NoNode if there is none.
	// A key is a well mixed 64-bit hash of the connection.
	Lookup(key uint64) Node
	// Track is Lookup, and tells whether the key would go elsewhere if the
	// whole horizon were added: JET's condition for remembering a connection.
	Track(key uint64) (n Node, track bool)
	// Add puts a server into the working set, from the horizon or new.
	// ErrDuplicate if it works already, ErrWeight, ErrCapacity.
	Add(name string, weight int) error
	// Remove forgets a server of the working set or of the horizon.
	// ErrUnknown if it is in neither.
	Remove(name string) error
	// Park puts a server into the horizon: one that works, fails or drains
	// and is expected back, or a new one on standby. ErrDuplicate if it is
	// there already, ErrWeight, ErrCapacity, ErrHorizon.
	Park(name string, weight int) error
	// SetWeight changes the weight of a server in either set. ErrUnknown,
	// ErrWeight.
	SetWeight(name string, weight int) error
	// Name returns the server behind a handle, "" if it stands for none.
	Name(n Node) string
	// Len returns the number of servers that work, and in the horizon, spare
	// buckets (Options.Horizon) included.
	Len() (working, horizon int)
}

// Options are a Hash's sizes; what a kind has no use for is ignored. Zero
// takes the default.
type Options struct {
	// Capacity is the number of buckets of anchor and dx: the most servers
	// that can ever be in it together, horizon included, fixed for life.
	// Default: DefaultCapacity.
	Capacity int
	// Rows is the number of rows of table-hrw (a power of two), maglev (a
	// prime) and bucket. Default: by Rows, or the kind's own.
	Rows int
	// Replicas is the number of ring's points a server of weight 1 has.
	Replicas int
	// AnchorFull keeps the paper's arrays W and L: 8 bytes more a bucket for
	// removals in constant time.
	AnchorFull bool
	// Horizon is the number of spare buckets of anchor and dx that count as
	// horizon though no server is named for them yet.
	Horizon int
}

// New builds a Hash over servers that work, whose order does not matter.
func New(k Kind, o Options, working ...Server) (Hash, error) {
	impl, err := lookupKind(k)
	if err != nil {
		return nil, err
	}
	if o.Capacity < 0 || o.Rows < 0 || o.Replicas < 0 || o.Horizon < 0 {
		return nil, fmt.Errorf("%w: %+v: sizes must not be negative", ErrCapacity, o)
	}
	seen := make(map[string]bool, len(working))
	for _, s := range working {
		if seen[s.Name] {
			return nil, fmt.Errorf("%w: server %q is given twice; give each once, with its whole weight", ErrDuplicate, s.Name)
		}
		seen[s.Name] = true
		if err := checkWeight(s.Name, s.Weight); err != nil {
			return nil, err
		}
		if !k.Weighted() && s.Weight != working[0].Weight {
			return nil, unequal(k, s.Name, s.Weight, working[0].Name, working[0].Weight)
		}
	}
	return impl.new(o, inNameOrder(working))
}

// inNameOrder returns the servers ordered by the hash of their names (then
// by name), so that no outcome depends on the order in which they were given.
func inNameOrder(servers []Server) []Server {
	type hashed struct {
		hash uint64
		s    Server
	}
	order := make([]hashed, len(servers))
	for i, s := range servers {
		order[i] = hashed{nameHash(s.Name), s}
	}
	slices.SortFunc(order, func(a, b hashed) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.s.Name, b.s.Name))
	})
	out := make([]Server, len(order))
	for i, h := range order {
		out[i] = h.s
	}
	return out
}

func checkWeight(name string, weight int) error {
	if weight < MinWeight || weight > MaxWeight {
		return fmt.Errorf("%w: server %q: weight %d, want %d to %d; park or remove a server that should take nothing",
			ErrWeight, name, weight, MinWeight, MaxWeight)
	}
	return nil
}

func unequal(k Kind, a string, wa int, b string, wb int) error {
	return fmt.Errorf("%w: server %q has %d and %q has %d, but %s cannot tell servers apart; give all the same or take %s",
		ErrWeight, a, wa, b, wb, k, KindTableHRW)
}

func unknown(name string) error {
	return fmt.Errorf("%w: server %q is neither in the working set nor in the horizon; add or park it first", ErrUnknown, name)
}

func working(name string) error {
	return fmt.Errorf("%w: server %q works already; remove or park it first, or set its weight", ErrDuplicate, name)
}

func parked(name string) error {
	return fmt.Errorf("%w: server %q is in the horizon already; set its weight, add or remove it", ErrDuplicate, name)
}

// An implementation is what a kind brings. new gets checked servers in name
// order. owners tells for each row the index (in members) of the one it
// belongs to, -1 for nobody; members have a weight of at least 1, distinct
// names and are ordered by Number. compile, if set, takes all three sets in
// one go instead.
type implementation struct {
	new     func(o Options, servers []Server) (Hash, error)
	owners  func(s Spec, members []weighed) ([]int32, error)
	compile func(s Spec, members []Member) (*Table, error)
}

// weighed is a member of one of the three sets that Compile places.
type weighed struct {
	Name   string
	Number int
	Weight int
}

var implementations = map[Kind]implementation{}

// register is called by the file of each kind, in a variable's initializer.
func register(k Kind, i implementation) bool {
	implementations[k] = i
	return true
}

func lookupKind(k Kind) (implementation, error) {
	impl, ok := implementations[k]
	if !ok {
		return impl, fmt.Errorf("%w: hash %q; there are %v", ErrUnknown, k, slices.Sorted(maps.Keys(implementations)))
	}
	return impl, nil
}
