package host

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
)

// Apply makes the programs follow an assignment: for packets all at once, for
// connections that live on not at all. VIPs in which this server has no slot
// are none of its business. It takes two seconds at most, where the machine
// is busy. An error that is controller.ErrInForce came after the flip.
//
// A handshake is stamped by the time of its SYN-ACK (fl_host_vip), so a new
// slot or epoch is announced for a moment that lies just ahead of the flip.
// Where filling the table took longer than that, it is filled again for a
// later moment; where the flip itself came late, once more for the moment
// when it came.
func (a *Agent) Apply(as *controller.Assignment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.ClockBase(); !ok {
		return errors.New("host agent: the shared clock is not set yet (SetClock comes before Apply)")
	}
	own, err := a.planOwn(as)
	if err == nil {
		err = a.prepare(own)
	}
	if err != nil {
		return fmt.Errorf("host agent: apply version %d: %w", as.Version, err)
	}
	before := a.table
	if as.Version != a.version {
		a.former, a.version = before.refused, as.Version
	}
	var next *table
	var at uint64
	for margin := firstMargin; ; margin *= 4 {
		var err error
		at = kernel.MonotonicMS() + uint64(margin)
		if next, err = a.fill(as, at); err != nil {
			return fmt.Errorf("host agent: apply version %d: %w", as.Version, err)
		}
		if kernel.MonotonicMS() < at || margin >= lastMargin {
			break
		}
	}
	flipped := a.flip()
	err = a.finish(as, next, at, flipped)
	if err = errors.Join(err, a.settle(own, before)); err != nil {
		return fmt.Errorf("host agent: version %d is %w: %w", as.Version, controller.ErrInForce, err)
	}
	return nil
}

// fill writes the table for an assignment to the half that is not in use. The
// VIPs' addresses come first: a packet that is decapsulated finds its own.
func (a *Agent) fill(as *controller.Assignment, at uint64) (*table, error) {
	next, err := a.plan(as, at)
	if err != nil {
		return nil, err
	}
	if err := a.putVIPs(next); err != nil {
		return nil, err
	}
	// Packets may still read the half that is to be written: they have left it
	// for good since the last flip.
	if err := kernel.WaitForReaders(); err != nil {
		return nil, err
	}
	return next, next.write(a.set.HostVips, a.control)
}

// flip makes packets go by the half that is filled. It returns when that was
// done, CLOCK_MONOTONIC ms.
func (a *Agent) flip() uint64 {
	a.control.store(offActive, 1-a.control.load(offActive)&1)
	return kernel.MonotonicMS()
}

// finish is what follows the flip at `flipped` to next, planned for `at`.
func (a *Agent) finish(as *controller.Assignment, next *table, at, flipped uint64) error {
	var late error
	if flipped >= at {
		var exact *table
		if exact, late = a.fill(as, flipped); late == nil {
			a.flip()
			next, at = exact, flipped
		}
	}
	a.table = next
	a.epochs(as)
	if late != nil {
		return late
	}
	// Whoever waited for Apply finds what it began in force, for SYN cookies
	// too, whose time is in steps of 64 ms.
	time.Sleep(time.Duration(at-flipped+64) * time.Millisecond)
	return a.dropVIPs(next)
}

// epochs notes which epoch each parity stands for.
func (a *Agent) epochs(as *controller.Assignment) {
	for _, k := range as.Keys {
		a.epoch[k.Epoch&1] = k.Epoch
	}
}

// plan is the table for an assignment. What is new in it begins at `at`
// (CLOCK_MONOTONIC ms).
func (a *Agent) plan(as *controller.Assignment, at uint64) (*table, error) {
	t := newTable()
	known, chains, now := knownSources(as), chainVIPs(as, a.o.Server), time.Now()
	byID := map[uint32]*chainVIP{}
	for _, c := range chains {
		byID[c.id] = c
	}
	for i := range as.VIPs {
		vip := &as.VIPs[i]
		slot, other := slots(vip, a.o.Server)
		if slot == nil {
			continue
		}
		v, key, err := a.entry(as, vip, slot)
		if err != nil {
			return nil, err
		}
		if c := byID[vip.ID]; c != nil {
			c.fill(&v, vip)
			v.Flags = a.flags(c, now)
		}
		switch six := slot.Address.Unmap().Is6(); {
		case known[six] && (other == nil || known[other.Address.Unmap().Is6()]):
			v.Flags |= vipSources
		case refusals(vip) != vipNoTunnel && !vip.Scheme.Row().Hops:
			t.open[six] = true
		}
		old := uint16(noSlot)
		if other != nil {
			old = other.Number
			v.OldTunnel = tables.Key{Addr: other.Address}.Words()
			if choices.SchemeOf(v.Scheme).Chains() {
				v.OldSlot = old
			}
		}
		begin(&v, a.table.entries[key], old, at)
		t.entries[key] = v
		addShared(t, key, v)
		t.refuse(key, vip)
	}
	for _, c := range chains {
		if err := a.addJoins(t, c); err != nil {
			return nil, err
		}
	}
	t.close(a.former)
	return t, nil
}

// addJoins adds the entries by which MPTCP's joins to this server find a VIP.
func (a *Agent) addJoins(t *table, c *chainVIP) error {
	service := tables.Key{Addr: c.service.Addr(), Port: c.service.Port(), Proto: c.proto}
	v := t.entries[service]
	v.Flags |= vipJoin
	for _, port := range c.joins {
		k := tables.Key{Addr: c.service.Addr(), Port: port, Proto: c.proto}
		if _, ok := t.entries[k]; ok {
			return fmt.Errorf("vip %s: port %d, where MPTCP's joins to this server come, is another VIP's; ports of VIPs at an address with mptcp are below %d",
				c.name, port, joinPortFirst)
		}
		v.Port = k.PortBE()
		t.entries[k], t.refused[k] = v, t.refused[service]
	}
	return nil
}

// rank says which of a server's slots in a VIP stands for it: the one with
// which balancers send it new connections, if any.
var rank = map[controller.State]int{controller.Active: 4, controller.Draining: 3, controller.Standby: 2, controller.Joining: 2, controller.Resting: 1}

// slots finds the server's slot in a VIP, and the best of others that it has
// there: one that it had before, or will have after its address moved. Their
// connections live on, or come, as well.
func slots(vip *controller.VIP, server string) (slot, other *controller.Slot) {
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

// maxKeepalive is after how much silence a connection is probed at the latest:
// soon enough for the state that firewalls and NAT keep of it.
const maxKeepalive = 2 * time.Minute

// entry is the VIP's entry without what depends on time.
func (a *Agent) entry(as *controller.Assignment, vip *controller.VIP, slot *controller.Slot) (bpf.HostVIP, tables.Key, error) {
	key := tables.Key{Addr: vip.Address.Unmap(), Port: vip.Port, Proto: protoTCP}
	if vip.Protocol == choices.UDP {
		key.Proto = protoUDP
	}
	if vip.ID >= maxVIPID {
		return bpf.HostVIP{}, key, fmt.Errorf("vip %s: id %d: ids are below %d", vip.Name, vip.ID, maxVIPID)
	}
	v := bpf.HostVIP{
		Addr: key.Words(), Port: key.PortBE(), Proto: key.Proto, Used: 1, Id: vip.ID,
		Slot: slot.Number, OldSlot: noSlot,
		Tunnel: tables.Key{Addr: slot.Address}.Words(),
	}
	if vip.MSSClamp && key.Proto == protoTCP {
		v.Mss = a.mss(vip, slot)
	}
	if vip.Scheme.Row().Carrier(vip.Protocol) == "" {
		return v, key, nil
	}
	layout := cheetah.Layout{Bits: vip.CookieBits}
	if err := layout.Validate(); err != nil {
		return v, key, fmt.Errorf("vip %s: %w", vip.Name, err)
	}
	for _, k := range as.Keys {
		parity := k.Epoch & 1
		v.Key[parity] = cheetah.VIPKey(k.Secret, key.Addr, vip.Port, key.Proto)
		v.Epochs |= 1 << parity
	}
	v.Scheme = schemeCheetah
	v.StampEpoch = uint8(as.StampEpoch & 1)
	v.Shift = uint8(layout.Shift())
	// A quarter of the idle limit leaves room for probes that get lost.
	v.KeepaliveMs = uint32(min(layout.IdleLimit()/4, maxKeepalive).Milliseconds())
	return v, key, nil
}

// begin sets from when on v's slot and epoch hold, given the entry before it
// (the zero value where there was none).
func begin(v *bpf.HostVIP, before bpf.HostVIP, old uint16, at uint64) {
	if v.Scheme != schemeCheetah {
		return
	}
	v.OldSlot = old
	v.SlotSince = at
	if before.Used == 0 || before.Scheme != schemeCheetah {
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

// sharedKeys are where packets without ports are found: ICMP errors, and
// fragments of the service's protocol.
func sharedKeys(service tables.Key) (icmp, fragment tables.Key) {
	proto := uint8(protoICMP)
	if service.Addr.Is6() {
		proto = protoICMPv6
	}
	return tables.Key{Addr: service.Addr, Proto: proto}, tables.Key{Addr: service.Addr, Proto: service.Proto | protoFrag}
}

// addShared adds the entries of sharedKeys. They are decapsulated only; the
// first service at the address stands for all.
func addShared(t *table, service tables.Key, v bpf.HostVIP) {
	icmp, fragment := sharedKeys(service)
	for _, k := range []tables.Key{icmp, fragment} {
		if _, ok := t.entries[k]; ok {
			continue
		}
		t.entries[k] = bpf.HostVIP{
			Addr: k.Words(), Proto: k.Proto, Used: 1, Id: v.Id, Slot: v.Slot, OldSlot: noSlot,
			Tunnel: v.Tunnel, OldTunnel: v.OldTunnel, Flags: v.Flags & vipSources,
		}
		if choices.SchemeOf(v.Scheme).Chains() {
			e := t.entries[k]
			e.Scheme, e.OldSlot, e.Flags, e.Generation, e.ChainMs = v.Scheme, v.OldSlot, v.Flags, v.Generation, v.ChainMs
			t.entries[k] = e
		}
	}
}

// mss is the largest segment that a client may send so that it still reaches
// this server with the tunnel's headers before it; 0 leaves the stack's.
func (a *Agent) mss(vip *controller.VIP, slot *controller.Slot) uint16 {
	tunnel := choices.Overhead(vip.Scheme, vip.Forwarding, slot.Address)
	if tunnel == 0 {
		return 0
	}
	headers := 20 + 20
	if vip.Address.Unmap().Is6() {
		headers = 40 + 20
	}
	mtu := 0
	for _, d := range a.devices {
		if mtu == 0 || d.MTU < mtu {
			mtu = d.MTU
		}
	}
	return uint16(max(mtu-tunnel-headers, 536))
}

// VIPs are the addresses that this server serves.
func (t *table) VIPs() map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	for k := range t.entries {
		vips[k.Addr] = true
	}
	return vips
}
