// Package l2test is an Ethernet in memory, for tests of those that hold addresses on
// one.
package l2test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/wire"
)

// Ether is what ends are plugged into. The zero one has none.
type Ether struct {
	mu   sync.Mutex
	ends []*End
}

// End is a machine's; it is an l2.Wire.
type End struct {
	// Plugged: frames reach it and leave it.
	Plugged atomic.Bool
	// Announced counts its announcements.
	Announced atomic.Int64

	e     *Ether
	mac   wire.MAC
	holds func(netip.Addr) bool
	heard func(netip.Addr, wire.MAC)
}

// Plug adds a machine: holds says what it answers for, heard what others say.
func (e *Ether) Plug(mac wire.MAC, holds func(netip.Addr) bool, heard func(netip.Addr, wire.MAC)) *End {
	n := &End{e: e, mac: mac, holds: holds, heard: heard}
	n.Plugged.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends = append(e.ends, n)
	return n
}

// Holders counts who answers for an address.
func (e *Ether) Holders(a netip.Addr) (n int) {
	e.mu.Lock()
	ends := slices.Clone(e.ends)
	e.mu.Unlock() // who is asked may hold a lock, and announce
	for _, end := range ends {
		if end.Plugged.Load() && end.holds(a) {
			n++
		}
	}
	return n
}

func (n *End) others() (all []*End) {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	for _, o := range n.e.ends {
		if o != n && o.Plugged.Load() && n.Plugged.Load() {
			all = append(all, o)
		}
	}
	return all
}

// Announce implements l2.Wire, as all that follow.
func (n *End) Announce(a netip.Addr) error {
	n.Announced.Add(1)
	for _, o := range n.others() {
		go o.heard(a, n.mac) // who announces may hold a lock
	}
	return nil
}

func (n *End) Ask(a netip.Addr, at ...wire.MAC) error {
	for _, o := range n.others() {
		if (len(at) == 0 || slices.Contains(at, o.mac)) && o.holds(a) {
			go n.heard(a, o.mac)
		}
	}
	return nil
}

func (n *End) MACs() []wire.MAC { return []wire.MAC{n.mac} }

func (n *End) Join([]netip.Addr) error { return nil }

// Faults has none where it is not plugged in: it is the network that fails.
func (n *End) Faults() []string { return nil }

func (n *End) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (n *End) Close() error { return nil }
