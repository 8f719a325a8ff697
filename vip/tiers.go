package vip

import (
	"fmt"
	"strings"
)

// Tiers is how a VIP's packets go through two tiers of balancers (docs/tiers.md): those
// of tier one keep nothing and send each to the balancer of tier two that its cookie
// names, which sends it to its server.
type Tiers struct {
	// Bits of a cookie's value name the balancer of tier two: 1 to 6 (default 4: 16 of
	// them at a time, those that rest included).
	Bits int `yaml:"bits" json:"bits"`
	// Forwarding is how packets get from tier one to tier two; default the VIP's.
	Forwarding Forwarding `yaml:"forwarding" json:"forwarding"`
}

// DefaultTierBits and MaxTierBits are of Tiers.Bits.
const (
	DefaultTierBits = 4
	MaxTierBits     = 6
)

// TierBits are those of a cookie that name its balancer of tier two, 0 in one tier.
func (s *Settings) TierBits() int {
	if s.Tiers == nil || !s.Cookies() {
		return 0
	}
	return s.Tiers.Bits
}

// Front are the settings that a balancer of tier one goes by: its servers are the
// balancers of tier two, and what a cookie names beside them is nothing to it.
func (s *Settings) Front() Settings {
	f := *s
	f.Scheme, f.SeatBits = Cheetah, s.CookieBits-1-s.TierBits()
	f.Forwarding, f.Steer, f.Tiers = s.Tiers.Forwarding, "", nil
	f.Hash, f.Capacity, f.Horizon = DefaultHash, 0, 0
	if f.Rates != nil && f.Rates.Source != nil { // what has seats counts connections
		f.Rates = &Rates{Source: f.Rates.Source}
	} else {
		f.Rates = nil
	}
	return f
}

// IsFront says that s are Front's of some settings.
func (s *Settings) IsFront() bool { return s.SeatBits > 0 && s.Scheme.Row().Seats == 0 }

// tiers looks at what of a cookie names a balancer.
func (c *check) tiers() {
	s := c.s
	switch {
	case s.Tiers == nil || !c.known("scheme", "protocol", "carrier"):
		return
	case !c.r.Tiers || !s.Cookies():
		c.problem("tiers", s.Scheme, fmt.Sprintf("scheme %s on %s has no cookie that could name a balancer of tier two", s.Scheme, s.Protocol),
			"remove it, or write scheme: cheetah or cheetah-stateful on tcp")
		return
	}
	if most := min(MaxTierBits, s.CookieBits-2-s.SeatBits); s.Tiers.Bits < 1 || s.Tiers.Bits > most {
		c.problem("tiers.bits", s.Tiers.Bits, "out of range", fmt.Sprintf("write 1 to %d: they are %d of the cookie's %d bits with the epoch's, and the rest has to name servers", most, s.Tiers.Bits, s.CookieBits))
	}
	if s.Tiers.Forwarding.Row().Name == "" {
		c.found = append(c.found, Problem{"tiers.forwarding", string(s.Tiers.Forwarding), "unknown", "write " + strings.Join(ForwardingNames(), ", "), ForwardingNames()})
	}
	if c.file && s.Health == nil {
		c.problem("health", "", "missing: tier one has to find out which balancers of tier two work", "write health: {type: tcp}")
	}
}
