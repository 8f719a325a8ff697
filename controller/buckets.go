package controller

import "github.com/fairlead/fairlead/controller/buckets"

// Bucketed: v's packets go by a bucket table (schemes beamer and faild).
func (v *VIP) Bucketed() bool { return v.Buckets != nil }

// BucketServers are v's slots as its bucket table sees them, by ascending
// number: those that take no new connections have weight 0.
func (v *VIP) BucketServers() []buckets.Server {
	servers := make([]buckets.Server, len(v.Slots))
	for i, s := range v.Slots {
		servers[i].Number = s.Number
		if s.State == Active {
			servers[i].Weight = s.Weight
		}
	}
	return servers
}
