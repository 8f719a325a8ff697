package tables

import (
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
)

// ResolveAll is up to how many servers a VIP may have for the way to each to
// be looked up at once. In larger pools only those are that a chain names or
// that are on their way out: a segment's neighbour tables are smaller than
// such pools.
const ResolveAll = 1024

// HostPeers is the peers of an assignment.
type HostPeers struct {
	Peers   map[bpf.HostPeerKey]netip.Addr
	Senders map[[16]byte]bool
	// Ways are to be looked up; Apply waits for those that are true.
	Ways map[netip.Addr]bool
}

func planPeers(as *controller.Assignment, server string) HostPeers {
	p := HostPeers{map[bpf.HostPeerKey]netip.Addr{}, map[[16]byte]bool{}, map[netip.Addr]bool{}}
	for i := range as.VIPs {
		vip := &as.VIPs[i]
		if mine, _ := HostSlots(vip, server); mine == nil || !vip.Bucketed() {
			continue
		}
		named := chained(vip)
		for _, s := range vip.Slots {
			if s.Server == server {
				continue
			}
			addr := s.Address.Unmap()
			p.Peers[bpf.HostPeerKey{VipId: vip.ID, Slot: s.Number}] = addr
			// Faild's packets go by the switch, to MAC addresses that name slots:
			// a way says no more than whether the server is silent.
			beamer := vip.Scheme.Row().Hops
			if beamer {
				p.Senders[addr.As16()] = true
			}
			if named == nil || named[s.Number] || s.State == controller.Draining || s.State == controller.Resting {
				p.Ways[addr] = p.Ways[addr] || beamer
			}
		}
	}
	return p
}

// chained is the numbers that the chains of a large pool's VIP name; nil: the
// pool is small, any may be.
func chained(vip *controller.VIP) map[uint16]bool {
	if len(vip.Slots) <= ResolveAll {
		return nil
	}
	named := map[uint16]bool{}
	for _, chain := range vip.Buckets.Previous {
		for _, number := range chain {
			if number != buckets.None {
				named[number] = true
			}
		}
	}
	return named
}
