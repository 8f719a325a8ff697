package member

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/l2"
	"github.com/fairlead/fairlead/l2/segment"
)

// A balancer whose entry has l2 holds addresses of its VIPs on its Ethernet. What it
// may hold is decided by what BGP announces by (announce.go). Packets do not depend on
// it.

// openWire is Options.OpenWire's default.
func openWire(o segment.Options) (l2.Wire, error) { return segment.Open(o) }

// hold begins to, if the file wants it.
func (m *Member) hold() error {
	own := m.Self.Layer2()
	if own == nil {
		return nil
	}
	k := l2.New(l2.Options{Name: m.Name, Store: m.stored.store, Node: m.node, Log: m.Log})
	w, err := m.Options.OpenWire(segment.Options{Interfaces: own.Interfaces, Holds: k.Holds, Heard: k.Heard, Log: m.Log})
	if err != nil {
		return fmt.Errorf("l2: %w", err)
	}
	m.keeper.Store(k)
	m.Go(func(ctx context.Context) error { return k.Run(ctx, w) })
	return nil
}

// describeL2 fills in who holds what, and warns of what is wrong.
func (m *Member) describeL2(s *fairleadv1.GetStatusResponse) {
	k := m.keeper.Load()
	if k == nil {
		return
	}
	r := k.Report()
	s.L2 = &fairleadv1.L2{Interfaces: m.Self.Layer2().Interfaces, Error: r.Silent}
	for _, a := range r.Addresses {
		s.L2.Addresses = append(s.L2.Addresses, &fairleadv1.L2Address{Address: a.Address.String(), Vips: a.VIPs, Held: a.Held,
			SinceUnixMs: daemon.UnixMS(a.Since), Holder: a.Holder, Why: a.Why})
		if a.Held && len(a.Why) > 0 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("address %s is held here: %s", a.Address, strings.Join(a.Why, "; ")))
		}
	}
}

// emitL2 emits what of a status is about addresses on the Ethernet.
func emitL2(emit daemon.Emitter, s *fairleadv1.L2) {
	for _, a := range s.GetAddresses() {
		emit(mL2Held, daemon.Truth(a.Held), a.Address)
	}
}

// l2Setting is what of the file takes a restart here.
func l2Setting(self config.Self) Setting {
	if own := self.Layer2(); own != nil {
		return Setting{"l2", own.Interfaces}
	}
	return Setting{"l2", nil}
}
