package pathsel

// How a router came to its choice.
type How uint8

// The ways of choosing. Of flows that nobody steered, the digits name ports
// by chance: some of them count as Selected or Gone.
const (
	Selected How = iota // the digit names a hop of the group
	Gone                // it names a port of the router that is none of the group's: hashed
	Hashed              // it names no port, or the packet has none
	Single              // there was nothing to choose
)

// String is the word that counters and tables use.
func (h How) String() string {
	return [...]string{"selected", "gone", "hashed", "single"}[h]
}

// Router is one router's way of choosing: the fabric's selector and a hash of
// its own, so that routers in a row share out traffic independently.
type Router struct {
	selector *Selector
	seed     [2]uint64
}

// NewRouter is the router of this name: the same name has the same hash, so
// that a path service can say where unsteered flows go.
func NewRouter(s *Selector, name string) *Router {
	seed := derive(s.config.Key, "router "+name, 2)
	return &Router{selector: s, seed: [2]uint64{seed[0], seed[1] | 1}}
}

// Seed is what C's programs need of a router.
func (r *Router) Seed() [2]uint64 { return r.seed }

// Choose takes one of a group's hops for a packet received with this time to
// live (algorithm 1), by its index. bpf/include/pathsel.h does the same.
//
// A packet without a selector is given a random digit by the router's hash and
// goes on like the others, so that weights hold for every kind of traffic.
func (r *Router) Choose(f Flow, ttl uint8, g *Group) (hop int, how How) {
	if g.Count == 1 {
		return 0, Single
	}
	s, fam := r.selector, r.selector.of(f.six())
	fields := f.field(fam.field)
	sum := s.hash.uncontrolled(&f, fam.field)
	own := s.hash.own(sum, fields, r.seed)
	digit, how := -1, Hashed
	if !s.selects() {
		return g.hashed(uint32(own >> 32)), Hashed
	}
	if fields != 0 {
		if p := fam.permutation.back(fields); uint64(p) < fam.limit {
			digit, how = s.digit(fam, p, sum, ttl), Selected
		}
	}
	if digit < 0 {
		digit = int(uint64(s.hash.again(own)) * uint64(s.config.Radix) >> 32)
	}
	if g.Ports>>digit&1 == 1 {
		return int(g.Hop[digit]), how
	}
	if how == Selected {
		how = Hashed
		if g.Known>>digit&1 == 1 {
			how = Gone
		}
	}
	return g.hashed(uint32(own >> 32)), how
}
