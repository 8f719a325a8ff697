package pathsel

import (
	"fmt"
	"math"
)

// MaxHops is how many equal next hops a group holds.
const MaxHops = 64

// NoHop marks a port number that is none of the group's hops.
const NoHop = 0xff

// Hop is one of the equal next hops of a route, alive.
type Hop struct {
	// Port is the number that a digit names; any that is no digit (-1, or the
	// radix and more): the hop is reached by the hash only.
	Port int
	// Weight is its share beside the others', 1 to 65,536.
	Weight int
}

// Group is a set of equal next hops, made ready for choosing. It is the same
// in memory as C's struct fl_pathsel_group.
type Group struct {
	// Ports has a bit for each port number that is a hop of the group, Known
	// one for each that the router has at all, alive or not.
	Ports, Known uint64
	// Count of hops, 1 to MaxHops.
	Count uint32
	// Even: the hash takes every hop with the same chance, and Last is not read.
	Even uint32
	// Hop is the hop that has a port number; NoHop: none.
	Hop [MaxRadix]uint8
	// Last are the greatest values of the hash, 32 bits, that take each hop.
	Last [MaxHops]uint32
}

// Group makes hops ready; a hop's index stays what it is here. known are the
// numbers of all ports of the router, as bits.
//
// Traffic that nobody steered is shared by weight whatever its digits say.
// Its digits name each of the radix ports with the same chance, so a hop that
// has a number gets 1/radix without the hash; the hash shares out the rest:
//
//	f = (weight - [numbered]/radix) / (1 - numbered hops/radix)
//
// which is 1/N for N hops of equal weight and numbers. Where a numbered hop
// shall get less than 1/radix, there is no such share; then the nearest is
// taken, and Fits says so. Where every digit names a hop, those without a number
// get nothing.
func (s *Selector) Group(hops []Hop, known uint64) (*Group, error) {
	if len(hops) < 1 || len(hops) > MaxHops {
		return nil, fmt.Errorf("%d next hops: a group has 1 to %d", len(hops), MaxHops)
	}
	g := &Group{Known: known, Count: uint32(len(hops))}
	for i := range g.Hop {
		g.Hop[i] = NoHop
	}
	for i, h := range hops {
		if h.Weight < 1 || h.Weight > 1<<16 {
			return nil, fmt.Errorf("next hop %d: weight %d is not one of 1 to %d", i, h.Weight, 1<<16)
		}
		if !s.numbered(h) {
			continue
		}
		if g.Hop[h.Port] != NoHop {
			return nil, fmt.Errorf("next hops %d and %d both have port number %d; numbers are a router's own and differ", g.Hop[h.Port], i, h.Port)
		}
		g.Hop[h.Port] = uint8(i)
		g.Ports |= 1 << h.Port
	}
	g.Known |= g.Ports
	g.share(s.shares(hops))
	return g, nil
}

// numbered says whether a digit can name the hop.
func (s *Selector) numbered(h Hop) bool {
	return s.selects() && h.Port >= 0 && h.Port < s.config.Radix
}

// shares are the hops' parts of what the hash shares out, summing up to 1,
// negative ones included.
func (s *Selector) shares(hops []Hop) []float64 {
	total, numbered := 0, 0
	for _, h := range hops {
		total += h.Weight
		if s.numbered(h) {
			numbered++
		}
	}
	radix := float64(s.config.Radix)
	rest := 1 - float64(numbered)/radix
	out := make([]float64, len(hops))
	for i, h := range hops {
		out[i] = float64(h.Weight) / float64(total)
		if numbered == s.config.Radix {
			continue // every digit is a hop: the hash shares out nothing
		}
		if s.numbered(h) {
			out[i] -= 1 / radix
		}
		out[i] /= rest
	}
	return out
}

// share lays the bounds of the hash.
func (g *Group) share(shares []float64) {
	g.Even = 1
	sum := 0.0
	for i, f := range shares {
		if math.Abs(f-shares[0]) > 1e-12 {
			g.Even = 0
		}
		shares[i] = max(f, 0)
		sum += shares[i]
	}
	for i := range g.Last {
		g.Last[i] = math.MaxUint32
	}
	end := 0.0
	for i := range len(shares) - 1 {
		end += shares[i] / sum
		g.Last[i] = uint32(max(min(math.Round(end*(1<<32)), 1<<32), 1) - 1)
	}
}

// Fits says that these hops cannot be shared by their weights, and what
// radix could; nil: they can.
func (s *Selector) Fits(hops []Hop) error {
	total, least, numbered := 0, math.MaxInt, 0
	even := true
	for _, h := range hops {
		total += h.Weight
		even = even && h.Weight == hops[0].Weight
		if s.numbered(h) {
			least = min(least, h.Weight)
			numbered++
		}
	}
	if numbered == 0 || least*s.config.Radix >= total && (numbered < s.config.Radix || even) {
		return nil
	}
	if bare := len(hops) - numbered; bare > 0 && numbered == s.config.Radix {
		return fmt.Errorf("%d of %d next hops get no traffic: they have no number, and all %d digits of the radix name others; use a larger radix, up to %d, or at most %d next hops",
			bare, len(hops), s.config.Radix, MaxRadix, s.config.Radix)
	}
	remedy := "use weights nearer to each other"
	if enough := max((total+least-1)/least, s.config.Radix+1); enough <= MaxRadix {
		remedy = fmt.Sprintf("use a radix of %d to %d, or weights nearer to each other", enough, MaxRadix)
	}
	return fmt.Errorf("radix %d is too small for weights of which one is %d of %d: unsteered traffic gives every numbered port 1/%d at least; %s",
		s.config.Radix, least, total, s.config.Radix, remedy)
}

// hashed is the hop that a hash of 32 bits takes.
func (g *Group) hashed(h uint32) int {
	if g.Even == 1 {
		return int(uint64(h) * uint64(g.Count) >> 32)
	}
	at := 0
	for step := MaxHops / 2; step > 0; step /= 2 {
		if h > g.Last[at+step-1] {
			at += step
		}
	}
	return at
}
