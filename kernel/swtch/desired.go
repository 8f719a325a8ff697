package swtch

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/scheme/faild"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// DesiredOf is what a switch of assignment a shall have: the addresses of the
// VIPs of scheme faild, which share one pool and one table (that of the VIP
// with the lowest id). It refuses pools whose servers' numbers differ, and
// what MAC addresses and the kernel's groups cannot hold. ok is false where a
// has no such VIP.
func DesiredOf(a *controller.Assignment) (d Desired, ok bool, err error) {
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
		d.Servers = append(d.Servers, Server{Number: b.Number, Name: s.Server, Address: s.Address, Weight: weights[b.Number]})
	}
	return d, true, d.check()
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

// check refuses what cannot be put into the kernel.
func (d *Desired) check() error {
	if d.Table == nil {
		return fmt.Errorf("there is no bucket table: was this assignment made by an older version?")
	}
	n := d.Table.Len()
	if n < 1 || n > MaxNexthops {
		return fmt.Errorf("buckets: %d, but a group of the kernel has 1 to %d nexthops", n, MaxNexthops)
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
