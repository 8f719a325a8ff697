package config

import (
	"net/netip"

	"github.com/fairlead/fairlead/vip"
)

// most is how many items the file's lists may have, looked at before one of them is filled
// in or held against others. Of VIPs there may be no more; the others are far above what
// the largest deployment has.
var most = map[string]int{
	"vips":                       vip.MaxVIPs,
	"vips[].servers":             1 << 16,
	"vips[].communities":         1 << 8,
	"servers":                    1 << 16,
	"servers[].interfaces":       1 << 8,
	"balancers":                  1 << 10,
	"balancers[].interfaces":     1 << 8,
	"balancers[].l2.interfaces":  1 << 8,
	"balancers[].bgp.neighbours": 1 << 8,
	"switches":                   1 << 10,
	"switches[].bgp.neighbours":  1 << 8,
	"controllers":                1 << 6,
	"store.etcd":                 1 << 6,
	"tunnel_sources":             1 << 12,
	"bgp.communities":            1 << 8,
}

// pool is the servers, to be looked up by each VIP.
type pool struct {
	names []string
	named map[string]*Server
	at    map[netip.Addr]string // names by address
}

func newPool(servers []Server) *pool {
	p := &pool{named: map[string]*Server{}, at: map[netip.Addr]string{}}
	for i := range servers {
		s := &servers[i]
		p.names = append(p.names, s.Name)
		p.named[s.Name] = s
		if s.Address.IsValid() {
			p.at[s.Address] = s.Name
		}
	}
	return p
}
