package host

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

func (r *rig) clientMAC() (mac [6]byte) {
	r.t.Helper()
	err := r.Client.Do(func() error {
		i, err := net.InterfaceByName(hosttest.ClientInterface)
		if err == nil {
			copy(mac[:], i.HardwareAddr)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return mac
}

func (r *rig) peer(vip uint32, slot uint16) (p bpf.HostPeer, ok bool) {
	return p, r.agent.set.HostPeers.Lookup(bpf.HostPeerKey{VipId: vip, Slot: slot}, &p) == nil
}

// The ways to other servers are known when Apply returns.
func TestPeersAreResolved(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Beamer))
	for _, p := range r.agent.Status().Peers {
		if p.Slot != 3 || !p.Looked || p.Hop.State != nexthop.Resolved {
			t.Errorf("peer %+v", p)
		}
	}
	mac := r.clientMAC()
	for vip := range uint32(4) {
		p, ok := r.peer(vip+1, 3)
		if !ok || p.MacDst != macWord(mac, 0) || p.Ifindex == 0 || p.Flags&bpf.PeerUnresolved != 0 || (p.Flags&bpf.PeerIPV6 != 0) != (vip >= 2) {
			t.Errorf("VIP %d: %+v", vip+1, p)
		}
		if _, ok := r.peer(vip+1, 5); ok {
			t.Errorf("VIP %d: the server is its own peer", vip+1)
		}
	}
	for _, addr := range []netip.Addr{hosttest.Client4, hosttest.Client6} {
		var one uint8
		if r.agent.set.HostSenders.Lookup(addr.As16(), &one) != nil {
			t.Errorf("%v is no sender", addr)
		}
	}
}

// takesTX lets the client's interface take what the server's XDP sends: a veth
// wants a program at its other end.
func (r *rig) takesTX() {
	r.t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err == nil {
		r.t.Cleanup(func() { p.Close() })
		err = r.Client.Do(func() error {
			dev, err := net.InterfaceByName(hosttest.ClientInterface)
			if err != nil {
				return err
			}
			l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: dev.Index, Flags: link.XDPDriverMode})
			if err == nil {
				r.t.Cleanup(func() { l.Close() })
			}
			return err
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// watchFrames collects what arrives at the client and fits.
func (r *rig) watchFrames(fits func(p *wire.Parsed) bool) (seen func() [][]byte) {
	r.t.Helper()
	var mu sync.Mutex
	var frames [][]byte
	c, err := r.Client.Listen(hosttest.ClientInterface, func(p *wire.Parsed, leaves bool) {
		if !leaves && fits(p) {
			mu.Lock()
			frames = append(frames, slices.Clone(p.Frame))
			mu.Unlock()
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(frames)
	}
}

// sendFromClient puts a packet on the wire to the server.
func (r *rig) sendFromClient(packet []byte) {
	r.t.Helper()
	frame, err := r.Client.Frame(hosttest.ClientInterface, r.Server, hosttest.ServerInterface, packet)
	if err == nil {
		err = r.Client.Send(hosttest.ClientInterface, frame)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// stray is a packet in the middle of a connection that nobody here knows.
func stray(vip netip.Addr) wire.TCP {
	client := netip.MustParseAddrPort("198.51.100.7:4000")
	if vip.Is6() {
		client = netip.MustParseAddrPort("[2001:db8::7]:4000")
	}
	return wire.TCP{Src: client, Dst: netip.AddrPortFrom(vip, 80), Flags: wire.ACK, Seq: 1000, Ack: 2000}
}

// A chain works as soon as Apply has returned: what is not owned goes to the
// previous server, here the client's machine.
func TestChainWorksAtOnce(t *testing.T) {
	t.Parallel()
	type chain struct {
		vip, mine, other netip.Addr
		tunnel           wire.Tunnel
	}
	var chains []chain
	for _, over := range wire.Tunnels() {
		chains = append(chains, chain{hosttest.VIP4, hosttest.Server4, hosttest.Client4, over},
			chain{hosttest.VIP6, hosttest.Server6, hosttest.Client6, over})
	}
	for _, c := range chains {
		t.Run(fmt.Sprintf("%v-%v", c.vip, c.tunnel), func(t *testing.T) {
			as := chainAssignment(choices.Beamer)
			for i := range as.VIPs {
				as.VIPs[i].Forwarding = choices.Forwarding(c.tunnel)
			}
			r := newChainRig(t, as)
			r.takesTX()
			seen := r.watchFrames(func(p *wire.Parsed) bool {
				return p.Src == c.mine && p.Dst == c.other && p.Protocol != wire.ProtoICMPv6
			})
			hops := wire.NewHops(r.agent.SharedNow(), 1, 3)
			send := func() {
				t.Helper()
				r.sendFromClient(wire.Outer{Tunnel: c.tunnel, Src: c.other, Dst: c.mine, SrcPort: 50000, Hops: &hops}.Encapsulate(stray(c.vip).Packet()))
			}
			send()
			eventually(t, "the packet is passed on", func() bool { return len(seen()) == 1 })
			mac := r.clientMAC()
			frame := seen()[0]
			if !bytes.Equal(frame[:6], mac[:]) {
				t.Errorf("passed on to %x, want %x", frame[:6], mac)
			}
			if n := r.reason("forward_previous"); n != 1 {
				t.Errorf("forward_previous is %d, want 1", n)
			}
			// Without an agent, and under the next one.
			r.agent.Close()
			send()
			eventually(t, "the packet is passed on while there is no agent", func() bool { return len(seen()) == 2 })
			r.open()
			send()
			eventually(t, "the packet is passed on by the next agent", func() bool { return len(seen()) == 3 })
		})
	}
}

// What claims to be a tunnel and comes from nobody known is dropped.
func TestForeignSource(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Beamer))
	hops := wire.NewHops(r.agent.SharedNow(), 1, 3)
	forged := wire.Outer{Src: netip.MustParseAddr("10.99.0.66"), Dst: hosttest.Server4, Hops: &hops}
	r.sendFromClient(forged.Encapsulate(stray(hosttest.VIP4).Packet()))
	eventually(t, "it is counted", func() bool { return r.reason("drop_foreign_source") == 1 })
	if n := r.reason("forward_previous"); n != 0 {
		t.Errorf("forward_previous is %d", n)
	}
}

// A server on the link that answers no more is known to be silent, whether
// packets go to its own MAC or by Faild's switch, until it answers again: a
// flow that begins is taken here meanwhile, though a chain names it.
func TestPeersAreSilent(t *testing.T) {
	t.Parallel()
	for _, scheme := range []choices.Scheme{choices.Beamer, choices.Faild} {
		t.Run(string(scheme), func(t *testing.T) {
			r := newChainRig(t, chainAssignment(scheme))
			r.run()
			silent := func() (n int) {
				for _, p := range r.agent.Status().Peers {
					if flag, _ := r.peer(p.VIP, p.Slot); flag.Flags&bpf.PeerSilent != 0 && p.Silent {
						n++
					}
				}
				return n
			}
			eventually(t, "the other server is found", func() bool {
				return !slices.ContainsFunc(r.agent.Status().Peers, func(p Peer) bool { return p.Hop.State != nexthop.Resolved })
			})
			if n := silent(); n != 0 {
				t.Fatalf("%d peers are silent", n)
			}
			arp := func(set func(netlink.Link) error) {
				t.Helper()
				err := r.Client.Do(func() error {
					l, err := netlink.LinkByName(hosttest.ClientInterface)
					if err != nil {
						return err
					}
					return set(l)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			arp(netlink.LinkSetARPOff)
			err := r.Server.Do(func() error {
				l, err := netlink.LinkByName(hosttest.ServerInterface)
				if err != nil {
					return err
				}
				return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: hosttest.Client4.AsSlice(), State: netlink.NUD_FAILED})
			})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is silent", func() bool { return silent() == 2 })
			if scheme == choices.Beamer {
				hops := wire.NewHops(r.agent.SharedNow(), 1, 3)
				begins := wire.UDP{Src: netip.MustParseAddrPort("198.51.100.7:4000"), Dst: netip.AddrPortFrom(hosttest.VIP4, 80)}
				r.sendFromClient(wire.Outer{Src: hosttest.Client4, Dst: hosttest.Server4, Hops: &hops}.Encapsulate(begins.Packet()))
				eventually(t, "a datagram is taken", func() bool { return r.reason("unresolved_previous") == 1 })
				if n := r.reason("forward_previous"); n != 0 {
					t.Errorf("forward_previous is %d", n)
				}
			}
			arp(netlink.LinkSetARPOn)
			eventually(t, "it answers again", func() bool { return silent() == 0 })
		})
	}
}

// A previous server whose MAC changes is followed, and one that leaves the
// assignment is forgotten.
func TestPeersAreFollowed(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Beamer))
	stop := r.run()
	mac := [6]byte{2, 0, 0, 0, 7, 7}
	err := r.Client.Do(func() error {
		l, err := netlink.LinkByName(hosttest.ClientInterface)
		if err == nil {
			err = netlink.LinkSetHardwareAddr(l, mac[:])
		}
		if err != nil {
			return err
		}
		c, err := net.Dial("udp", netip.AddrPortFrom(hosttest.Server4, 9).String()) // the neighbour learns
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte{0})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new MAC is used", func() bool { p, _ := r.peer(1, 3); return p.MacDst == macWord(mac, 0) })

	next := *r.as
	next.Version++
	next.VIPs = slices.Clone(next.VIPs[:1])
	next.VIPs[0].Slots = next.VIPs[0].Slots[1:]
	if err := r.agent.Apply(&next); err != nil {
		t.Fatal(err)
	}
	for vip := range uint32(4) {
		if p, ok := r.peer(vip+1, 3); ok {
			t.Errorf("VIP %d: %+v is left", vip+1, p)
		}
	}
	var one uint8
	if r.agent.set.HostSenders.Lookup(hosttest.Client4.As16(), &one) == nil {
		t.Error("its address still may pass packets on")
	}
	// An agent that finds it pinned forgets it, too.
	stop()
	r.reopen(chainAssignment(choices.Beamer))
	r.reopen(&next)
	if p, ok := r.peer(1, 3); ok {
		t.Errorf("%+v is left after a restart", p)
	}
}

// Of a large pool's servers only those are looked up that a chain names or
// that are on their way out.
func TestLargePools(t *testing.T) {
	t.Parallel()
	as := chainAssignment(choices.Beamer)
	as.VIPs = as.VIPs[:1]
	vip := &as.VIPs[0]
	servers := []buckets.Server{{Number: 5, Weight: 1}}
	vip.Slots = vip.Slots[1:]
	for n := range uint16(tables.ResolveAll + 100) {
		addr := netip.AddrFrom4([4]byte{10, 7, byte(n >> 8), byte(n)})
		vip.Slots = append(vip.Slots, controller.Slot{Number: 10 + n, Server: fmt.Sprint(n), Address: addr, State: controller.Active, Weight: 1})
		servers = append(servers, buckets.Server{Number: 10 + n, Weight: 1})
	}
	vip.Slots[7].State = controller.Draining
	vip.Buckets = buckets.New(4096, servers)
	vip.Buckets.Previous[99] = [buckets.Chain]uint16{10, 12, buckets.None}
	p, err := tables.Host(as, "s")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Peers) != len(vip.Slots)-1 || len(p.Senders) != len(p.Peers) {
		t.Errorf("%d peers and %d senders of %d servers", len(p.Peers), len(p.Senders), len(vip.Slots))
	}
	want := map[netip.Addr]bool{vip.Slots[1].Address: true, vip.Slots[3].Address: true, vip.Slots[7].Address: true}
	if !maps.Equal(p.Ways, want) {
		t.Errorf("ways to %v, want %v", p.Ways, want)
	}
	r := newChainRig(t, as) // no way leads there
	for n := range uint16(tables.ResolveAll + 100) {
		p, ok := r.peer(1, 10+n)
		if !ok || p.Flags != bpf.PeerUnresolved || tables.AddrOf(p.Addr) != vip.Slots[n+1].Address {
			t.Fatalf("slot %d: %+v", 10+n, p)
		}
	}
}
