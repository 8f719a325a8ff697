package tables

import (
	"math"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/faild"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// ChainVIP is what is needed of a VIP of scheme beamer or faild between
// assignments.
type ChainVIP struct {
	ID         uint32
	Name       string
	Scheme     choices.SchemeRow
	Service    netip.AddrPort // port 0: all
	Proto      uint8
	Slot       uint16
	Buckets    int
	Seed       uint32 // of the switches' hash; scheme faild
	Ports      bool
	Generation uint32
	HashKey    hash.Key
	Disabled   bool
	Health     *choices.Health
	// Joins are the ports of MPTCP joins that end here, by slot.
	Joins map[uint16]uint16
}

// chainVIPs are the assignment's VIPs of schemes beamer and faild that server
// is in.
func chainVIPs(as *controller.Assignment, server string) []*ChainVIP {
	var all []*ChainVIP
	for i := range as.VIPs {
		vip := &as.VIPs[i]
		slot, other := HostSlots(vip, server)
		if slot == nil || !vip.Bucketed() {
			continue
		}
		v := &ChainVIP{
			ID: vip.ID, Name: vip.Name, Scheme: vip.Scheme.Row(), Proto: vip.Proto(), Slot: slot.Number,
			Service:    netip.AddrPortFrom(vip.Address.Unmap(), vip.Port),
			Ports:      vip.Affinity != choices.Address && vip.Fragments != choices.Addresses,
			Generation: vip.Buckets.Generation, HashKey: as.HashKey, Health: vip.Health,
			Disabled: slot.State != controller.Active && slot.State != controller.Joining,
		}
		v.Buckets = len(vip.Buckets.Current)
		if v.Scheme.Switched {
			v.Seed = faild.Seed(as.HashKey)
		}
		if vip.MPTCP {
			v.Joins = map[uint16]uint16{}
			for _, s := range []*controller.Slot{slot, other} {
				if s != nil {
					v.Joins[s.Number] = JoinPort(as.HashKey, v.Service, s.Number)
				}
			}
		}
		all = append(all, v)
	}
	return all
}

// fill sets what schemes beamer and faild have in the table of VIPs.
func (v *ChainVIP) fill(e *bpf.HostVIP, vip *controller.VIP) {
	e.Scheme = v.Scheme.Number
	e.Generation = v.Generation
	e.ChainMs = uint32(min(vip.ChainTime.Milliseconds(), math.MaxInt32))
}

// Bucket is the bucket of a client's connection to port: by fl_vip's hash_key
// and fl_scale, the same everywhere, or as a switch hashes it.
func (v *ChainVIP) Bucket(client netip.AddrPort, port uint16) int {
	if v.Scheme.Switched {
		return wire.FaildBucket(v.Seed, client, netip.AddrPortFrom(v.Service.Addr(), port), v.Proto, v.Buckets)
	}
	return hash.Row(hash.Flow(v.HashKey, client, port, v.Ports), v.Buckets)
}

// JoinPort is the port of service's joins to slot.
func JoinPort(key hash.Key, service netip.AddrPort, slot uint16) uint16 {
	return beamer.JoinPort(joinHash(key, service), uint32(slot))
}

// joinHash is fl_vip.join_hash.
func joinHash(key hash.Key, service netip.AddrPort) uint64 {
	k := Key{Addr: service.Addr(), Port: service.Port()}
	w := k.Words()
	return hash.IPv6(&key, w[0], w[1], uint32(k.PortBE())<<16)
}
