package pathsel

import "fmt"

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
	words := [...]string{"selected", "gone", "hashed", "single"}
	if int(h) >= len(words) {
		return fmt.Sprint("how ", uint8(h))
	}
	return words[h]
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

// Choice is what a router makes of a packet before its route is known.
type Choice struct {
	own   uint64 // the router's hash; its upper 32 bits are good
	digit int
	how   How // Selected, or Hashed: the digit was drawn
}

// Choose takes one of a group's hops for a packet received with this time to
// live (algorithm 1), by its index. bpf/include/pathsel.h does the same.
func (r *Router) Choose(f Flow, ttl uint8, g *Group) (hop int, how How) {
	if g.Count == 1 {
		return 0, Single
	}
	return g.Choose(r.Read(f, ttl))
}

// Read is the part of Choose that does not need the group.
//
// A packet without a selector is given a random digit by the router's hash and
// goes on like the others, so that weights hold for every kind of traffic.
func (r *Router) Read(f Flow, ttl uint8) Choice {
	s, fam := r.selector, r.selector.of(f.six())
	fields := f.field(fam.field)
	sum := s.hash.uncontrolled(&f, fam.field)
	c := Choice{own: s.hash.own(sum, fields, r.seed), how: Hashed}
	if !s.selects() {
		return c
	}
	if fields != 0 {
		if p := fam.permutation.back(fields); uint64(p) < fam.limit {
			c.digit, c.how = s.digit(fam, p, sum, ttl), Selected
			return c
		}
	}
	c.digit = int(uint64(s.hash.again(c.own)) * uint64(s.config.Radix) >> 32)
	return c
}

// Choose takes one of the group's hops.
func (g *Group) Choose(c Choice) (hop int, how How) {
	if g.Count == 1 {
		return 0, Single
	}
	if g.Ports>>c.digit&1 == 1 {
		return int(g.Hop[c.digit]), c.how
	}
	how = Hashed
	if c.how == Selected && g.Known>>c.digit&1 == 1 {
		how = Gone
	}
	return g.hashed(uint32(c.own >> 32)), how
}
