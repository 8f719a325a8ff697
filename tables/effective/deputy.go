package effective

import (
	"sort"

	"github.com/fairlead/fairlead/controller/buckets"
)

// deputy is who has bucket b while the table's server takes none: that server
// itself if no other does. With Fewest it is to be asked for all such buckets
// in ascending order.
func (u *update) deputy(b int) uint16 {
	if u.takers == nil {
		u.muster()
	}
	if len(u.takers) == 0 {
		return u.t.Current[b]
	}
	// Drawn anew until one will do; then, where few will, the next that does.
	const draws = 32
	for k := range draws {
		n := int(mix(uint64(b)<<8|uint64(k)) % uint64(u.weights[len(u.weights)-1]))
		i := sort.SearchInts(u.weights, n+1)
		if k < draws-1 && !u.does(u.takers[i]) {
			continue
		}
		for j := range u.takers {
			if s := u.takers[(i+j)%len(u.takers)]; u.does(s) {
				if u.room != nil {
					u.room[s]--
				}
				return s
			}
		}
	}
	return u.t.Current[b]
}

// does: s may be a deputy.
func (u *update) does(s uint16) bool { return !u.out.has(s) && (u.room == nil || u.room[s] > 0) }

// muster finds who may be a deputy.
func (u *update) muster() {
	u.takers = []uint16{}
	sum, up := 0, 0
	for _, s := range u.servers {
		if s.Weight > 0 {
			sum += s.Weight
			u.takers, u.weights = append(u.takers, s.Number), append(u.weights, sum)
			if !u.out.has(s.Number) {
				up += s.Weight
			}
		}
	}
	if !u.v.Fewest || up == 0 {
		return
	}
	u.room = make([]int, buckets.MaxServers)
	copy(u.room, u.t.Loads())
	n := u.t.Len()
	for _, s := range u.servers {
		u.room[s.Number] = (n*s.Weight+up-1)/up - u.room[s.Number]
	}
}

// mix spreads x over 64 bits (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
