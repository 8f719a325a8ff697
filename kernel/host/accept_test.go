package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// card is the server's interface as the kernel has it.
func (r *rig) card() (attrs *netlink.LinkAttrs) {
	r.t.Helper()
	err := r.Server.Do(func() error {
		l, err := netlink.LinkByName(hosttest.ServerInterface)
		if err == nil {
			attrs = l.Attrs()
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return attrs
}

func (r *rig) promiscuous() bool { return r.card().RawFlags&unix.IFF_PROMISC != 0 }

// ingress lists what is attached to the server's tc ingress by the agent.
func (r *rig) ingress() (names []string) {
	r.t.Helper()
	err := r.Server.Do(func() error {
		l, err := netlink.LinkByName(hosttest.ServerInterface)
		if err != nil {
			return err
		}
		q, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		for _, p := range q.Programs {
			names = append(names, fmt.Sprint("tcx program ", p.ID))
		}
		filters, err := netlink.FilterList(l, classicAccept.parent)
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok {
				names = append(names, b.Name)
			}
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return names
}

func without(as *controller.Assignment, schemes ...choices.Scheme) *controller.Assignment {
	next := *as
	next.Version++
	next.VIPs = slices.DeleteFunc(slices.Clone(as.VIPs), func(v controller.VIP) bool { return slices.Contains(schemes, v.Scheme) })
	return &next
}

// Frames for slots' MACs are accepted while a VIP of scheme faild is there,
// and not before or after; a killed agent's successor cleans up for it.
func TestAcceptFollowsFaild(t *testing.T) {
	t.Parallel()
	all := chainAssignment(choices.Faild)
	none := without(all, choices.Faild)
	r := newChainRig(t, none)
	is := func(want bool) {
		t.Helper()
		if got := r.promiscuous(); got != want {
			t.Errorf("promiscuous: %v, want %v", got, want)
		}
		if got := len(r.ingress()); (got == 1) != want || got > 1 {
			t.Errorf("%d programs at ingress, want it: %v", got, want)
		}
	}
	apply := func(as *controller.Assignment) {
		t.Helper()
		if err := r.agent.Apply(as); err != nil {
			t.Fatal(err)
		}
	}
	is(false)
	apply(all)
	is(true)
	r.reopen(all)
	is(true)
	apply(none)
	is(false)
	apply(all)
	r.reopen(none) // killed, and started with another assignment
	is(false)
	apply(all)
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	if r.promiscuous() {
		t.Error("promiscuous after unload")
	}
	r.open()
}

// A card that somebody else made promiscuous stays so.
func TestPromiscuousByOthers(t *testing.T) {
	t.Parallel()
	all := chainAssignment(choices.Faild)
	r := newChainRig(t, without(all, choices.Faild))
	err := r.Server.Do(func() error {
		l, err := netlink.LinkByName(hosttest.ServerInterface)
		if err == nil {
			err = netlink.SetPromiscOn(l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, as := range []*controller.Assignment{all, without(all, choices.Faild)} {
		if err := r.agent.Apply(as); err != nil {
			t.Fatal(err)
		}
		if !r.promiscuous() {
			t.Error("not promiscuous any more")
		}
	}
}

// Frames to the server's slot are delivered, also where tc has filters alone;
// those to other slots are not.
func TestFaildFramesAreDelivered(t *testing.T) {
	t.Parallel()
	for _, classic := range []bool{false, true} {
		name := map[bool]string{false: "tcx", true: "clsact"}[classic]
		t.Run(name, func(t *testing.T) {
			as := chainAssignment(choices.Faild)
			r := newChainRig(t, without(as, choices.Faild))
			if classic {
				r.agent.Close()
				err := r.Server.Do(func() (err error) {
					if err = Unload(r.pin); err == nil {
						r.agent, err = Open(Options{Name: "s", PinDir: r.pin, Interfaces: []string{hosttest.ServerInterface}, classic: true}, r.agent.log)
					}
					return err
				})
				if err == nil {
					err = r.agent.SetClock(r.now)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := r.agent.Apply(as); err != nil {
				t.Fatal(err)
			}
			if got := r.agent.Status().Interfaces[0].Ingress; got != name {
				t.Errorf("ingress by %q, want %q", got, name)
			}
			r.listenOn(":80")
			// The client's frames for the VIPs go to the slot's MAC, as a switch
			// would send them.
			none := uint16(wire.FaildNone)
			mac, err := wire.EncodeFaild(wire.Faild{Kind: wire.FaildPass, Current: 5, Previous: [wire.FaildChain]uint16{none, none, none}})
			if err != nil {
				t.Fatal(err)
			}
			for _, addr := range []netip.Addr{hosttest.Server4, hosttest.Server6} {
				r.clientSendsTo(addr, mac)
			}
			for _, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
				r.echo(r.dial(vip), 10000)
			}
			before := r.reason("drop_not_mine")
			other, err := wire.EncodeFaild(wire.Faild{Kind: wire.FaildPass, Current: 3, Previous: [wire.FaildChain]uint16{none, none, none}})
			if err != nil {
				t.Fatal(err)
			}
			frame := wire.Link{Dst: other, Src: wire.MAC(r.clientMAC())}.Frame(stray(hosttest.VIP4).Packet())
			if err := r.Client.Send(hosttest.ClientInterface, frame); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a frame for another slot is dropped", func() bool { return r.reason("drop_not_mine") == before+1 })
		})
	}
}

// clientSendsTo has the client send what is for addr to a MAC.
func (r *rig) clientSendsTo(addr netip.Addr, mac wire.MAC) {
	r.t.Helper()
	err := r.Client.Do(func() error {
		l, err := netlink.LinkByName(hosttest.ClientInterface)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: addr.AsSlice(),
			State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr(mac[:])})
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// An ICMP error about nobody's connection goes to each other server of the VIP
// once, as a copy, and a copy to nobody.
func TestErrorsAreCopied(t *testing.T) {
	t.Parallel()
	as := chainAssignment(choices.Faild)
	as.VIPs[0].Slots = append(as.VIPs[0].Slots, controller.Slot{Number: 9, Server: "third", Address: netip.MustParseAddr("10.99.0.9"), State: controller.Draining})
	r := newChainRig(t, as)
	r.run()
	none := uint16(wire.FaildNone)
	frame := func(kind wire.FaildKind) []byte {
		to, err := wire.EncodeFaild(wire.Faild{Kind: kind, Current: 5, Previous: [wire.FaildChain]uint16{none, none, none}})
		if err != nil {
			t.Fatal(err)
		}
		quoted := wire.TCP{Src: netip.AddrPortFrom(hosttest.VIP4, 80), Dst: netip.MustParseAddrPort("198.51.100.7:4000"), Flags: wire.ACK}
		e := wire.ICMPError{Src: netip.MustParseAddr("198.51.100.254"), Dst: hosttest.VIP4, Type: 3, Code: 4, MTU: 1400, Quoted: quoted.Packet()}
		return wire.Link{Dst: to, Src: wire.MAC(r.clientMAC())}.Frame(e.Packet())
	}
	seen := r.watchFrames(func(p *wire.Parsed) bool {
		return p.Protocol == wire.ProtoICMP && p.Src == netip.MustParseAddr("198.51.100.254")
	})
	if err := r.Client.Send(hosttest.ClientInterface, frame(wire.FaildPass)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two copies", func() bool { return len(seen()) >= 2 })
	var slots []uint16
	for _, f := range seen() {
		to, ok, err := wire.DecodeFaild(wire.MAC(f[:6]))
		if !ok || err != nil || to.Kind != wire.FaildCopy || !to.Settled() {
			t.Errorf("a copy to %x: %+v, %v", f[:6], to, err)
		}
		slots = append(slots, to.Current)
	}
	slices.Sort(slots)
	if !slices.Equal(slots, []uint16{3, 9}) {
		t.Errorf("copies to slots %v, want 3 and 9", slots)
	}
	if got := r.agent.Status().Copies; got != 2 {
		t.Errorf("%d copies are counted, want 2", got)
	}
	// A copy that comes here is ignored: nobody's connection, nobody asked.
	before := r.reason("drop_not_mine")
	if err := r.Client.Send(hosttest.ClientInterface, frame(wire.FaildCopy)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy is ignored", func() bool { return r.reason("drop_not_mine") == before+1 })
	if n := r.agent.Status().Copies; n != 2 {
		t.Errorf("%d copies after a copy, want 2", n)
	}
}

// host_accept and the card that is open to all frames come back, also where
// attaching fails at first.
func TestAcceptComesBack(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Faild))
	pin := filepath.Join(r.pin, kernel.DirLinks, linkName(linkAccept, hosttest.ServerInterface))
	// Pins are made beside their place, which is taken.
	if err := os.MkdirAll(filepath.Join(pin+kernel.PinNew, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	ours, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := ours.Detach(); err != nil {
		t.Fatal(err)
	}
	err = r.Server.Do(func() error {
		l, err := netlink.LinkByName(hosttest.ServerInterface)
		if err == nil {
			err = netlink.SetPromiscOff(l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for look := range 3 {
		r.agent.tend(true)
		if s := r.agent.Status(); len(s.Warnings) != 1 || s.Interfaces[0].Ingress != kernel.Off {
			t.Errorf("look %d: ingress %q, warnings %q: want off, and one that says why", look, s.Interfaces[0].Ingress, s.Warnings)
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(pin+kernel.PinNew, "taken")), os.Remove(pin+kernel.PinNew)); err != nil {
		t.Fatal(err)
	}
	r.agent.tend(true)
	if s := r.agent.Status(); len(s.Warnings) != 0 || s.Interfaces[0].Ingress != egressTCX || len(r.ingress()) != 1 || !r.promiscuous() {
		t.Errorf("ingress %q (%v), promiscuous %v, warnings %q", s.Interfaces[0].Ingress, r.ingress(), r.promiscuous(), s.Warnings)
	}
}
