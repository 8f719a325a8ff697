package config

import (
	"fmt"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/vip"
)

// MaxNumbers is how many numbers v could have for its servers: what its
// cookie can name, or what the data plane can.
func (v *VIP) MaxNumbers() int {
	if l := (cheetah.Layout{Bits: v.CookieBits}); v.Cookies() && l.Validate() == nil {
		return l.Slots()
	}
	if v.MPTCP && v.Scheme.Row().Hops {
		return vip.JoinSlots
	}
	return or(v.Scheme.Row().Slots, chash.MaxSlots)
}

// DefaultHorizon is how many servers a VIP of n servers may get at once
// without a warm-up, if the file does not say (hash anchor): a tenth, at
// least 1.
func DefaultHorizon(n int) int { return max(1, n/10) }

// foresees tells whether the scheme tracks what the horizon would move: jet,
// and cheetah for what carries no cookie.
func (v *VIP) foresees() bool { return v.Scheme.Row().Foresees() }

// fillHash fills in what is about the consistent hash, except for the
// capacity: an existing VIP keeps the one it has.
func (v *VIP) fillHash(at positions, path string) {
	if v.Chains() {
		// Buckets stand in for a consistent hash: nothing is tracked or held.
		if v.Horizon == nil {
			v.Horizon = new(0)
		}
		if v.Share == nil {
			v.Share = new(false)
		}
		return
	}
	v.Hash = or(v.Hash, chash.KindTableHRW)
	if v.Horizon == nil {
		v.Horizon = new(0)
		if v.Hash.SpareNumbers() && v.foresees() {
			*v.Horizon = DefaultHorizon(len(v.Servers))
		}
	}
	if at[path+".warm_up"] == nil && v.WarmUp == 0 {
		v.WarmUp = vip.MaxWarmUp(v.Protocol)
	}
	if v.Share == nil {
		v.Share = new(v.foresees())
	}
}

// checkHash refuses hashes that the scheme cannot work with, and settings
// that the scheme or the hash has no use for.
func (c *Config) checkHash(path string, v *VIP) {
	written := func(key string) bool { return c.origin.At[path+"."+key] != nil }

	hashKnown := checkOneOf(c, path+".hash", v.Hash, chash.KindTableHRW, chash.KindAnchor, chash.KindRing, chash.KindHRW, chash.KindDx, chash.KindMaglev, chash.KindBucket)
	if hashKnown && v.foresees() && !v.Hash.Minimal() {
		who := "scheme jet"
		if v.Scheme == vip.Cheetah {
			who = "what carries no cookie goes as in scheme jet, which"
		}
		c.problem(path+".hash", v.Hash, who+" tracks what a change will move, and with "+string(v.Hash)+" a change also moves connections between servers that stay",
			"write hash: table-hrw or anchor, or scheme: full-ct")
	}
	if hashKnown && !v.Hash.Weighted() {
		for j := range v.Servers {
			if a, b := v.Servers[0].Weight, v.Servers[j].Weight; a != b {
				c.problem(fmt.Sprintf("%s.servers[%d].weight", path, j), fmt.Sprint(b),
					fmt.Sprintf("servers[0] has %d, and hash %s gives every server the same", a, v.Hash), "write the same weight for all, or hash: table-hrw")
				break
			}
		}
	}
	unused := func(key, value string) {
		switch v.Scheme {
		case vip.FullCT:
			c.problem(path+"."+key, value, "scheme full-ct tracks every connection, whatever is to come", "remove it, or write scheme: jet")
		case vip.Stateless:
			c.problem(path+"."+key, value, "scheme stateless tracks no connection", "remove it, or write scheme: jet")
		}
	}
	if h := *v.Horizon; h != 0 || written("horizon") {
		switch {
		case h < 0 || h > chash.MaxSlots:
			c.problem(path+".horizon", h, "out of range", fmt.Sprintf("write how many servers may be added at once, 0 to %d", chash.MaxSlots))
		case hashKnown && !v.Hash.SpareNumbers() && h > 0:
			c.problem(path+".horizon", h, "hash "+string(v.Hash)+" needs the names of the servers that may come",
				"list them with standby: true, or write hash: anchor")
		case written("horizon") && h > 0:
			unused("horizon", fmt.Sprint(h))
		}
	}
	if longest := vip.MaxWarmUp(v.Protocol); v.WarmUp < vip.MinWarmUp {
		c.problem(path+".warm_up", v.WarmUp.String(), "out of range", fmt.Sprintf("write %s to %s: longer than connections are silent", vip.MinWarmUp, longest))
	} else if v.WarmUp > longest {
		c.problem(path+".warm_up", v.WarmUp.String(), fmt.Sprintf("the flow table forgets a connection of %s that is silent for %s, so nothing is held for longer", v.Protocol, longest),
			fmt.Sprintf("write %s to %s, or remove it: the default is %s", vip.MinWarmUp, longest, longest))
	} else if written("warm_up") {
		unused("warm_up", v.WarmUp.String())
	}
	if *v.Share && v.Scheme == vip.Stateless {
		unused("share", "true")
	}
}

// checkCapacity: the servers, and those that may be added at once, need
// numbers.
func (c *Config) checkCapacity(path string, v *VIP) {
	n, horizon, limit := len(v.Servers), *v.Horizon, v.MaxNumbers()
	if horizon < 0 || horizon > chash.MaxSlots {
		horizon = 0 // said by checkHash
	}
	buckets := v.Hash.Buckets()
	enough := min(chash.DefaultCapacity(n, horizon), limit)
	written := c.origin.At[path+".capacity"] != nil || v.Capacity != 0
	switch {
	case !written && !buckets:
	case !buckets:
		c.problem(path+".capacity", v.Capacity, "hash "+string(v.Hash)+" has no capacity: its rows take any number of servers", "remove it, or write hash: anchor")
	case written && (v.Capacity < 1 || v.Capacity > limit):
		why := "write %d to %d"
		if limit < chash.MaxSlots {
			why = "write %d to %d, what the cookie can name, or cookie_bits: " + fmt.Sprint(min(v.CookieBits+1, cheetah.MaxBits))
		}
		c.problem(path+".capacity", v.Capacity, "out of range", fmt.Sprintf(why, min(n+horizon, limit), limit))
	case written && v.Capacity < n:
		c.problem(path+".capacity", v.Capacity, fmt.Sprintf("the VIP has %d servers", n),
			fmt.Sprintf("write %d: it is fixed for the VIP's life, and numbers of removed servers rest before they are free again", enough))
	case written && v.Capacity < n+horizon && c.origin.At[path+".horizon"] != nil:
		remedy := fmt.Sprintf("write horizon: %d", v.Capacity-n)
		if enough >= n+horizon {
			remedy = fmt.Sprintf("write %d, or horizon: %d", enough, v.Capacity-n)
		}
		c.problem(path+".capacity", v.Capacity, fmt.Sprintf("%d servers and a horizon of %d need more", n, horizon), remedy)
	case n+horizon > limit && c.origin.At[path+".horizon"] != nil:
		c.problem(path+".horizon", horizon, fmt.Sprintf("the VIP's servers take %d of the %d numbers that there can be", n, limit), fmt.Sprintf("write horizon: %d", limit-n))
	}
}
