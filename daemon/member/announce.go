package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/bgp/gobgp"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
)

// A balancer or switch whose entry has bgp announces the addresses of its VIPs. What
// /ready says and what status says of servers is all that it goes by, so that the
// three never differ. Packets do not depend on it.

// openSpeaker is Options.OpenSpeaker's default.
func openSpeaker(o gobgp.Options) (bgp.Speaker, error) { return gobgp.Open(o) }

// announce begins to, if the file wants it.
func (m *Member) announce() error {
	speaker := m.Self.Speaker()
	if speaker == nil {
		return nil
	}
	common := m.Config.BGP
	o := gobgp.Options{LocalAS: common.LocalAS, RouterID: speaker.RouterID, HoldTime: common.HoldTime, Restart: common.GracefulRestart, Log: m.Log}
	for _, n := range speaker.Neighbours {
		password, err := m.Config.Password(n)
		if err != nil {
			return fmt.Errorf("neighbour %s: %w", n.Address, err)
		}
		o.Neighbours = append(o.Neighbours, gobgp.Neighbour{Address: n.Address, AS: n.AS, Password: password, Multihop: n.Multihop, BFD: n.BFD})
	}
	s, err := m.Options.OpenSpeaker(o)
	if err != nil {
		return err
	}
	a := bgp.New(s, m.node, bgp.Options{Log: m.Log, Restart: common.GracefulRestart,
		Common: bgp.Common{Communities: common.Communities, MED: common.MED}})
	m.announcer.Store(a)
	m.Go(a.Run)
	return nil
}

// Run lives the daemon's life until ctx ends, and for as long after it as routers are
// given to go elsewhere: nothing ends here before they were told.
func (m *Member) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	m.life = ctx
	go func() {
		defer end()
		select {
		case <-life.Done():
		case <-ctx.Done():
			m.leave(life)
		}
	}()
	err := m.Daemon.Run(life)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // it waited to be told who it is
	}
	return err
}

// leave withdraws what is announced, and waits; addresses that are held it hands over.
func (m *Member) leave(life context.Context) {
	a, k := m.announcer.Load(), m.keeper.Load()
	m.leaving.Store(a != nil || k != nil)
	if k != nil {
		k.Leave(life)
		m.Log.Info("no address is held here any more")
	}
	if a == nil {
		return
	}
	a.Leave()
	m.Log.Info("routes are withdrawn; stopping when routers had time to go elsewhere", "drain_time", m.Config.BGP.DrainTime)
	daemon.Sleep(life, m.Config.BGP.DrainTime)
}

// AnnounceSoon has what is announced looked at, as something has changed.
func (m *Member) AnnounceSoon() {
	if a := m.announcer.Load(); a != nil {
		a.Poke()
	}
	if k := m.keeper.Load(); k != nil {
		k.Poke()
	}
}

// node is this daemon as it stands.
func (m *Member) node() (bgp.Node, error) {
	s, err := m.status()
	if err != nil {
		return bgp.Node{}, err
	}
	return node(m.force.Load().Assignment, s), nil
}

// node is a daemon's that has status s and a in force.
func node(a *controller.Assignment, s *fairleadv1.GetStatusResponse) bgp.Node {
	n := bgp.Node{Name: s.Name, NotReady: s.NotReady}
	for _, status := range s.Vips {
		v, ok := a.VIP(status.Name)
		if !ok {
			continue // it went away a moment ago
		}
		out := bgp.VIP{Name: v.Name, Address: v.Address, Announce: v.Announces(), Communities: v.Communities, MED: v.MED}
		for _, slot := range status.Slots {
			// With buckets those that drain take new connections where all do.
			if slot.State != fairleadv1.SlotState_SLOT_STATE_ACTIVE && !slot.TakesNew {
				continue
			}
			out.Servers++
			// A switch that is locked believes nobody's health, and has reason to.
			if slot.Health != fairleadv1.Health_HEALTH_DOWN || s.Switch.GetLocked() && slot.TakesNew {
				out.Healthy++
			}
		}
		n.VIPs = append(n.VIPs, out)
	}
	return n
}

// describeBGP fills in what is announced, and warns of neighbours that hear nothing.
func (m *Member) describeBGP(s *fairleadv1.GetStatusResponse) {
	a := m.announcer.Load()
	if a == nil {
		return
	}
	r := a.Report()
	s.Bgp = &fairleadv1.BGP{Error: r.Failed}
	if r.Failed != "" {
		s.Warnings = append(s.Warnings, "BGP: "+r.Failed)
	}
	for _, n := range r.Neighbours {
		s.Bgp.Neighbours = append(s.Bgp.Neighbours, &fairleadv1.BGPNeighbour{Address: n.Address.String(), As: uint32(n.AS), State: n.State,
			Established: n.Established, SinceUnixMs: daemon.UnixMS(n.Since), Error: n.Error, Bfd: n.BFD})
		if !n.Established && n.State != bgp.Waiting {
			s.Warnings = append(s.Warnings, fmt.Sprintf("BGP: neighbour %s is not established, so it sends nothing here: %s; see fairlead bgp", n.Address, cmp.Or(n.Error, n.State)))
		}
	}
	for _, d := range r.Addresses {
		out := &fairleadv1.BGPAddress{Address: d.Address.String(), Vips: d.VIPs, Announced: d.Announced, SinceUnixMs: daemon.UnixMS(d.Since),
			HeardBy: texts(d.HeardBy), Why: d.Why, Communities: d.Communities, Med: uint32(d.MED)}
		s.Bgp.Addresses = append(s.Bgp.Addresses, out)
	}
}

func texts(addresses []netip.Addr) (all []string) {
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return all
}

// emitBGP emits what of a status is about BGP.
func emitBGP(emit daemon.Emitter, s *fairleadv1.BGP) {
	for _, n := range s.GetNeighbours() {
		emit(mBGPNeighbourUp, daemon.Truth(n.Established), n.Address)
	}
	for _, a := range s.GetAddresses() {
		emit(mBGPAnnounced, daemon.Truth(a.Announced), a.Address)
	}
}

// bgpSetting is what of the file takes a restart here.
func bgpSetting(cfg *config.Config, self config.Self) Setting {
	if self.Speaker() == nil {
		return Setting{"bgp", nil}
	}
	return Setting{"bgp", []any{cfg.BGP, self.Speaker()}}
}
