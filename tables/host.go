package tables

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/scheme/cheetah"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// HostPlan is what an assignment wants of a server, without what depends on the
// moment (Table).
type HostPlan struct {
	HostPeers
	Sources []bpf.HostSource
	Open    error // why tunnels are taken from anybody, if it is a reason of all
	Faild   bool  // frames for slots' MACs are to be accepted
	Chains  []*ChainVIP

	as     *controller.Assignment
	server string
}

// Host turns an assignment into what the maps of a server hold. VIPs in which it
// has no slot are none of its business.
func Host(as *controller.Assignment, server string) (*HostPlan, error) {
	as = as.AtAgents()
	p := &HostPlan{as: as, server: server, HostPeers: planPeers(as, server), Chains: chainVIPs(as, server)}
	p.Sources, p.Open = HostSources(as.Sources)
	for _, c := range p.Chains {
		p.Faild = p.Faild || c.Scheme.Switched
	}
	for _, c := range p.Chains {
		if c.Scheme.Hops {
			return p, p.Open
		}
	}
	return p, nil
}

// Offloads are the VIPs whose SYNs this server's agent answers: their names, by id.
func (p *HostPlan) Offloads() map[uint32]string {
	names := map[uint32]string{}
	for i := range p.as.VIPs {
		v := &p.as.VIPs[i]
		if slot, _ := HostSlots(v, p.server); slot != nil && v.Offloads() {
			names[v.ID] = v.Name
		}
	}
	return names
}

// HostTable is what one half of host_vips holds.
type HostTable struct {
	Entries map[Key]bpf.HostVIP
	// Refused is which tunnels the assignment's balancers do not send; what an
	// entry's flags refuse was refused in the version before, too.
	Refused map[Key]uint16
	// Open is the families of tunnels that are taken from anybody.
	Open map[bool]bool
}

// NewHostTable is empty.
func NewHostTable() *HostTable {
	return &HostTable{map[Key]bpf.HostVIP{}, map[Key]uint16{}, map[bool]bool{}}
}

// Clone is a copy whose entries may change.
func (t *HostTable) Clone() *HostTable { return &HostTable{maps.Clone(t.Entries), t.Refused, t.Open} }

// KeyOf is the key of an entry.
func KeyOf(v *bpf.HostVIP) Key {
	return Key{Addr: AddrOf(v.Addr), Port: bits.ReverseBytes16(v.Port), Proto: v.Proto}
}

// AddrOf undoes Key.Words.
func AddrOf(words [2]uint64) netip.Addr {
	var b [16]byte
	for w := range 2 {
		for i := range 8 {
			b[8*w+i] = byte(words[w] >> (8 * i))
		}
	}
	return netip.AddrFrom16(b).Unmap()
}

// HostView is what a host knows besides its plan.
type HostView struct {
	// At is the moment at which what is new in the table begins, CLOCK_MONOTONIC ms.
	At uint64
	// Before is the table in force; Former is what was refused in the version
	// before.
	Before *HostTable
	Former map[Key]uint16
	// MTU is the least of its devices, Unsettled whether its service's state is
	// not known well enough (FL_HOST_VIP_UNSETTLED).
	MTU       int
	Unsettled func(*ChainVIP) bool
}

// Table is the table of VIPs for the assignment that p was made of.
func (p *HostPlan) Table(view HostView) (*HostTable, error) {
	t, as := NewHostTable(), p.as
	known := knownSources(as)
	byID := map[uint32]*ChainVIP{}
	for _, c := range p.Chains {
		byID[c.ID] = c
	}
	for i := range as.VIPs {
		vip := &as.VIPs[i]
		slot, other := HostSlots(vip, p.server)
		if slot == nil {
			continue
		}
		v, key, err := hostEntry(as, vip, slot, view.MTU)
		if err != nil {
			return nil, err
		}
		if c := byID[vip.ID]; c != nil {
			c.fill(&v, vip)
			if view.Unsettled(c) {
				v.Flags = uint16(bpf.HostVIPUnsettled)
			}
		}
		switch six := slot.Address.Unmap().Is6(); {
		case known[six] && (other == nil || known[other.Address.Unmap().Is6()]):
			v.Flags |= uint16(bpf.HostVIPSources)
		case refusals(vip) != NoTunnel && !vip.Scheme.Row().Hops:
			t.Open[six] = true
		}
		// What was answered under the table before may yet be ended.
		v.Flags |= view.Before.Entries[key].Flags & uint16(bpf.HostVIPOffload)
		old := uint16(bpf.NoSlot)
		if other != nil {
			old = other.Number
			v.OldTunnel = Key{Addr: other.Address}.Words()
			if choices.SchemeOf(v.Scheme).Chains() {
				v.OldSlot = old
			}
		}
		begin(&v, view.Before.Entries[key], old, view.At)
		t.Entries[key] = v
		t.AddShared(key, v)
		t.refuse(key, vip)
	}
	for _, c := range p.Chains {
		if err := t.addJoins(c); err != nil {
			return nil, err
		}
	}
	t.close(view.Former)
	return t, nil
}

// addJoins adds the entries by which MPTCP's joins to this server find a VIP.
func (t *HostTable) addJoins(c *ChainVIP) error {
	service := Key{Addr: c.Service.Addr(), Port: c.Service.Port(), Proto: c.Proto}
	v := t.Entries[service]
	v.Flags |= uint16(bpf.HostVIPJoin)
	for _, port := range c.Joins {
		k := Key{Addr: c.Service.Addr(), Port: port, Proto: c.Proto}
		if _, ok := t.Entries[k]; ok {
			return fmt.Errorf("vip %s: port %d, where MPTCP's joins to this server come, is another VIP's; ports of VIPs at an address with mptcp are below %d",
				c.Name, port, bpf.JoinPort)
		}
		v.Port = k.PortBE()
		t.Entries[k], t.Refused[k] = v, t.Refused[service]
	}
	return nil
}

// rank says which of a server's slots in a VIP stands for it: the one with
// which balancers send it new connections, if any.
var rank = map[controller.State]int{controller.Active: 4, controller.Draining: 3, controller.Standby: 2, controller.Joining: 2, controller.Resting: 1}

// HostSlots finds the server's slot in a VIP, and the best of others that it has
// there: one that it had before, or will have after its address moved. Their
// connections live on, or come, as well.
func HostSlots(vip *controller.VIP, server string) (slot, other *controller.Slot) {
	for i := range vip.Slots {
		s := &vip.Slots[i]
		switch {
		case s.Server != server:
		case slot == nil || rank[s.State] >= rank[slot.State]:
			slot, other = s, slot
		case other == nil || rank[s.State] >= rank[other.State]:
			other = s
		}
	}
	return slot, other
}

// hostEntry is the VIP's entry without what depends on time.
func hostEntry(as *controller.Assignment, vip *controller.VIP, slot *controller.Slot, mtu int) (bpf.HostVIP, Key, error) {
	key := Key{Addr: vip.Address.Unmap(), Port: vip.Port, Proto: vip.Proto()}
	if vip.ID >= bpf.HostVIPIDS {
		return bpf.HostVIP{}, key, fmt.Errorf("vip %s: id %d: ids are below %d", vip.Name, vip.ID, bpf.HostVIPIDS)
	}
	v := bpf.HostVIP{
		Addr: key.Words(), Port: key.PortBE(), Proto: key.Proto, Used: 1, Id: vip.ID,
		Slot: slot.Number, OldSlot: bpf.NoSlot,
		Tunnel: Key{Addr: slot.Address}.Words(),
	}
	if vip.MSSClamp && key.Proto == wire.ProtoTCP {
		v.Mss = mss(vip, slot, mtu)
	}
	if !vip.Cookies() {
		return v, key, nil
	}
	layout := vip.Layout()
	if err := layout.Validate(); err != nil {
		return v, key, fmt.Errorf("vip %s: %w", vip.Name, err)
	}
	for _, k := range as.Keys {
		parity := k.Epoch & 1
		v.Key[parity] = cheetah.VIPKey(k.Secret, key.Addr, vip.Port, key.Proto)
		v.Epochs |= 1 << parity
	}
	v.Scheme = vip.Scheme.Row().Number
	v.Generation = uint32(layout.SeatBits | layout.TierBits<<8) // FL_HOST_SEAT_BITS, FL_HOST_TIER_BITS
	v.StampEpoch = uint8(as.StampEpoch & 1)
	if vip.Unstamps() {
		v.StampEpoch |= bpf.HostUnstamps
	}
	v.Shift = uint8(layout.Shift())
	v.Flags |= uint16(vip.Carries().Number) * uint16(bpf.HostVIPCarrier)
	if vip.Offloads() {
		v.Flags |= uint16(bpf.HostVIPOffload)
	}
	v.KeepaliveMs = uint32(layout.Keepalive().Milliseconds())
	return v, key, nil
}

// stamps: connections carry cookies.
func stamps(v *bpf.HostVIP) bool {
	return choices.SchemeOf(v.Scheme).Finds == choices.ByCookie && v.Shift != 0
}

// begin sets from when on v's slot and epoch hold, given the entry before it
// (the zero value where there was none).
func begin(v *bpf.HostVIP, before bpf.HostVIP, old uint16, at uint64) {
	if !stamps(v) {
		return
	}
	v.OldSlot = old
	v.SlotSince = at
	if before.Used == 0 || !stamps(&before) {
		return // handshakes from before carry no cookie
	}
	if before.Slot == v.Slot {
		v.SlotSince = before.SlotSince
	} else {
		v.OldSlot = before.Slot
	}
	v.StampSince = before.StampSince
	if before.StampEpoch != v.StampEpoch {
		v.StampSince = at
	}
}

// Begins says whether a slot or an epoch of t holds from the moment at on.
func (t *HostTable) Begins(at uint64) bool {
	for _, v := range t.Entries {
		if stamps(&v) && (v.SlotSince == at || v.StampSince == at) {
			return true
		}
	}
	return false
}

// sharedKeys are where packets without ports are found: ICMP errors, and
// fragments of the service's protocol.
func sharedKeys(service Key) (icmp, fragment Key) {
	proto := uint8(wire.ProtoICMP)
	if service.Addr.Is6() {
		proto = wire.ProtoICMPv6
	}
	return Key{Addr: service.Addr, Proto: proto}, Key{Addr: service.Addr, Proto: service.Proto | bpf.ProtoFrag}
}

// AddShared adds the entries of sharedKeys. They are decapsulated only; the
// first service at the address stands for all.
func (t *HostTable) AddShared(service Key, v bpf.HostVIP) {
	icmp, fragment := sharedKeys(service)
	for _, k := range []Key{icmp, fragment} {
		if _, ok := t.Entries[k]; ok {
			continue
		}
		t.Entries[k] = bpf.HostVIP{
			Addr: k.Words(), Proto: k.Proto, Used: 1, Id: v.Id, Slot: v.Slot, OldSlot: bpf.NoSlot,
			Tunnel: v.Tunnel, OldTunnel: v.OldTunnel, Flags: v.Flags & uint16(bpf.HostVIPSources),
		}
		if choices.SchemeOf(v.Scheme).Chains() {
			e := t.Entries[k]
			e.Scheme, e.OldSlot, e.Flags, e.Generation, e.ChainMs = v.Scheme, v.OldSlot, v.Flags, v.Generation, v.ChainMs
			t.Entries[k] = e
		}
	}
}

// mss is the largest segment that a client may send so that it still reaches
// this server with the tunnel's headers before it; 0 leaves the stack's.
func mss(vip *controller.VIP, slot *controller.Slot, mtu int) uint16 {
	tunnel := choices.Overhead(vip.Scheme, vip.Forwarding, slot.Address)
	if vip.TierBits() > 0 { // its packets are in one tunnel, then in the other
		for _, s := range vip.TierTwo {
			tunnel = max(tunnel, choices.Overhead(vip.Scheme, vip.Tiers.Forwarding, s.Address))
		}
	}
	if tunnel == 0 {
		return 0
	}
	headers := 20 + 20
	if vip.Address.Unmap().Is6() {
		headers = 40 + 20
	}
	return uint16(max(mtu-tunnel-headers, 536))
}

// VIPs are the addresses that this server serves.
func (t *HostTable) VIPs() map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	for k := range t.Entries {
		vips[k.Addr] = true
	}
	return vips
}

// Half is what one half of host_vips holds, by line, and the seed under which the
// programs find it.
func (t *HostTable) Half(random *rand.Rand) (lines []bpf.HostVIP, seed uint64, err error) {
	keys := slices.Collect(maps.Keys(t.Entries))
	at, seed, err := Build(keys, random)
	if err != nil {
		return nil, 0, err
	}
	lines = make([]bpf.HostVIP, bpf.VIPLines)
	for i, k := range keys {
		lines[at[i]] = t.Entries[k]
	}
	return lines, seed, nil
}
