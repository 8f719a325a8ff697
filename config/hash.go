package config

import (
	"cmp"

	"github.com/fairlead/fairlead/vip"
)

// DefaultHorizon is how many servers a VIP of n servers may get at once
// without a warm-up, if the file does not say (hash anchor): a tenth, at
// least 1.
func DefaultHorizon(n int) int { return max(1, n/10) }

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
	v.Hash = cmp.Or(v.Hash, vip.DefaultHash)
	if v.Horizon == nil {
		v.Horizon = new(0)
		if v.Hash.SpareNumbers() && v.Scheme.Row().Foresees() {
			*v.Horizon = DefaultHorizon(len(v.Servers))
		}
	}
	if at[path+".warm_up"] == nil && v.WarmUp == 0 {
		v.WarmUp = vip.MaxWarmUp(v.Protocol)
	}
	if v.Share == nil {
		v.Share = new(v.Scheme.Row().Foresees())
	}
}
