package tables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/faild"
	"github.com/fairlead/fairlead/tables/effective"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// SwitchServer is one of the pool.
type SwitchServer struct {
	// Number is its slot, at most wire.FaildMaxSlot.
	Number  uint16
	Name    string
	Address netip.Addr
	// Weight: 0 takes no buckets (it drains, joins or rests).
	Weight int
}

// SwitchPlan is what a switch shall have in the kernel.
type SwitchPlan struct {
	// Version is the assignment's, for Status.
	Version uint64
	// VIPs are the served addresses.
	VIPs []netip.Addr
	// Datagrams and Streams: a VIP among them is of protocol udp, or tcp.
	Datagrams, Streams bool
	// Table is the bucket table of all of them.
	Table *buckets.Table
	// ChainTime is how long after a move packets are passed on to a bucket's
	// previous servers at least, in whole seconds.
	ChainTime time.Duration
	Servers   []SwitchServer
	// Seed is the kernel's hash seed, the same at all switches; not 0.
	Seed uint32
}

// Switch is what a switch of assignment a shall have: the addresses of the
// VIPs of scheme faild, which share one pool and one table (that of the VIP
// with the lowest id). It refuses pools whose servers' numbers differ, and
// what MAC addresses and the kernel's groups cannot hold. ok is false where a
// has no such VIP.
func Switch(a *controller.Assignment) (d SwitchPlan, ok bool, err error) {
	d.Version = a.Version
	d.Seed = faild.Seed(a.HashKey)
	var first *controller.VIP
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !v.Scheme.Row().Switched {
			continue
		}
		if !slices.Contains(d.VIPs, v.Address) {
			d.VIPs = append(d.VIPs, v.Address)
		}
		udp := v.Protocol == vip.UDP
		d.Datagrams, d.Streams = d.Datagrams || udp, d.Streams || !udp
		if first == nil || v.ID < first.ID {
			first = v
		}
	}
	if first == nil {
		return d, false, nil
	}
	// A VIP that is going away has all of its servers drained: who takes new
	// connections in any may stand in for others.
	weights := map[uint16]int{}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !v.Scheme.Row().Switched {
			continue
		}
		if err := samePool(first, v); err != nil {
			return d, true, err
		}
		for _, b := range v.BucketServers() {
			weights[b.Number] = max(weights[b.Number], b.Weight)
		}
	}
	slices.SortFunc(d.VIPs, netip.Addr.Compare)
	d.Table, d.ChainTime = first.Buckets, time.Duration(first.ChainSeconds())*time.Second
	for i, b := range first.BucketServers() {
		s := &first.Slots[i]
		d.Servers = append(d.Servers, SwitchServer{Number: b.Number, Name: s.Server, Address: s.Address, Weight: weights[b.Number]})
	}
	return d, true, d.Check()
}

// samePool: a MAC address names a server by its number, whatever the VIP.
func samePool(a, b *controller.VIP) error {
	numbers := map[uint16]string{}
	for i := range a.Slots {
		numbers[a.Slots[i].Number] = a.Slots[i].Server
	}
	for i := range b.Slots {
		s := &b.Slots[i]
		if name, ok := numbers[s.Number]; ok && name != s.Server {
			return fmt.Errorf("VIPs %s and %s: number %d is %s in one and %s in the other, but a switch tells servers by number: give all VIPs of scheme faild the same pool", a.Name, b.Name, s.Number, name, s.Server)
		}
	}
	if len(a.Slots) != len(b.Slots) {
		return fmt.Errorf("VIPs %s and %s: pools of %d and %d servers, but a switch has one table: give all VIPs of scheme faild the same pool", a.Name, b.Name, len(a.Slots), len(b.Slots))
	}
	return nil
}

// Check refuses what cannot be put into the kernel.
func (d *SwitchPlan) Check() error {
	if d.Table == nil {
		return fmt.Errorf("there is no bucket table: was this assignment made by an older version?")
	}
	n := d.Table.Len()
	if n < 1 || n > vip.MaxNexthops {
		return fmt.Errorf("buckets: %d, but a group of the kernel has 1 to %d nexthops", n, vip.MaxNexthops)
	}
	if err := d.Table.Validate(); err != nil {
		return err
	}
	if d.Seed == 0 {
		return fmt.Errorf("seed: 0 has the kernel draw one of its own, but all switches must have the same")
	}
	known := map[uint16]bool{}
	for _, s := range d.Servers {
		if s.Number > wire.FaildMaxSlot {
			return fmt.Errorf("server %s: number %d is over %d, the largest that a MAC address has room for", s.Name, s.Number, wire.FaildMaxSlot)
		}
		if known[s.Number] {
			return fmt.Errorf("server %s: number %d is another's, too", s.Name, s.Number)
		}
		known[s.Number] = true
	}
	for b, s := range d.Table.Current {
		if s != wire.FaildNone && !known[s] {
			return fmt.Errorf("bucket %d: server number %d is not among the %d servers", b, s, len(d.Servers))
		}
	}
	return nil
}

// Serves: there is a VIP.
func (d *SwitchPlan) Serves() bool { return len(d.VIPs) > 0 }

// NextHops are the MACs of a switch's virtual nexthops, one a bucket, nil where
// there never was a server: no route, so that clients hear of it. used are all
// that frames may have: those, what hosts make of them on their way along the
// chain, and copies for each server.
func (d *SwitchPlan) NextHops(rows *effective.Table) (macs []wire.MAC, used map[wire.MAC]bool, err error) {
	used = map[wire.MAC]bool{}
	if rows.Len() > 0 && rows.Current[0] != buckets.None {
		macs = make([]wire.MAC, rows.Len())
	}
	for b := range macs {
		// effective.Table keeps rows free of what MACs cannot say.
		if macs[b], err = faild.MAC(beamer.Row{Current: rows.Current[b], Previous: rows.Previous[b]}); err != nil {
			return nil, nil, err
		}
		if !used[macs[b]] {
			d.passedOn(used, macs[b])
		}
	}
	for _, s := range d.Servers {
		used[CopyMAC(s.Number)] = true
	}
	return macs, used, nil
}

// passedOn marks the MAC and all that hosts make of it on its way along the
// chain.
func (d *SwitchPlan) passedOn(used map[wire.MAC]bool, mac wire.MAC) {
	f, _, _ := wire.DecodeFaild(mac)
	back, comesBack := f.Back()
	for ok := true; ok; f, ok = f.Next() {
		mark(used, f)
	}
	for ok := comesBack && d.Datagrams; ok; back, ok = back.Next() {
		mark(used, back)
	}
}

func mark(used map[wire.MAC]bool, f wire.Faild) {
	if mac, err := wire.EncodeFaild(f); err == nil {
		used[mac] = true
	}
}

// CopyMAC is where a host sends a copy of what it cannot resolve, for one
// server (scheme faild's ICMP errors).
func CopyMAC(number uint16) wire.MAC {
	mac, err := wire.EncodeFaild(wire.Faild{Kind: wire.FaildCopy, Current: number, Previous: noPrevious})
	if err != nil {
		panic(err) // Check refuses such numbers
	}
	return mac
}

var noPrevious = [wire.FaildChain]uint16{wire.FaildNone, wire.FaildNone, wire.FaildNone}
