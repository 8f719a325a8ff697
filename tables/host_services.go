package tables

import (
	"net/netip"
)

// HostService is where a server serves a VIP.
type HostService struct {
	ID    uint32
	Name  string
	At    netip.AddrPort
	Proto uint8
}

// Services are the VIPs of p's server whose health anybody goes by and that are at
// one port, in the assignment's order.
func (p *HostPlan) Services() (all []HostService) {
	for i := range p.as.VIPs {
		v := &p.as.VIPs[i]
		if slot, _ := HostSlots(v, p.server); slot == nil || v.Port == 0 || v.Health == nil && !v.Bucketed() {
			continue
		}
		all = append(all, HostService{v.ID, v.Name, netip.AddrPortFrom(v.Address.Unmap(), v.Port), v.Proto()})
	}
	return all
}
