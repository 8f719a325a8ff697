package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// Servers without agents: each has a network namespace with real sockets, the
// loaded programs, and a TUN device as its wire. A packet that a balancer or a
// switch sends goes through host_in of the server it is for, by a test run; what
// the program passes goes into that server's stack, what it sends out goes to
// the server that it names, and what the stacks answer comes out of the TUNs.

const (
	xdpTX = 3

	ownGeneration = 1000
	ownChainMS    = 240_000
	ownNow        = 0x4000_0000 // shared ms; the servers' clocks stand still
)

// Four VIPs of scheme beamer and four of faild.
var (
	beamer4   = netip.MustParseAddrPort("192.0.2.1:80")
	beamer6   = netip.MustParseAddrPort("[2001:db8::1]:80")
	beamer4U  = netip.MustParseAddrPort("192.0.2.1:443")
	beamer6U  = netip.MustParseAddrPort("[2001:db8::1]:443")
	faild4    = netip.MustParseAddrPort("192.0.2.2:80")
	faild6    = netip.MustParseAddrPort("[2001:db8::2]:80")
	faild4U   = netip.MustParseAddrPort("192.0.2.2:443")
	faild6U   = netip.MustParseAddrPort("[2001:db8::2]:443")
	ownVIPs   = []netip.AddrPort{beamer4, beamer6, beamer4U, beamer6U, faild4, faild6, faild4U, faild6U}
	balancer4 = netip.MustParseAddr("10.254.0.9")
	balancer6 = netip.MustParseAddr("fd00:254::9")
	router4   = netip.MustParseAddr("203.0.113.1")
	router6   = netip.MustParseAddr("2001:db8:ff::1")
)

func isFaild(vip netip.AddrPort) bool {
	return vip.Addr() == faild4.Addr() || vip.Addr() == faild6.Addr()
}
func isUDP(vip netip.AddrPort) bool { return vip.Port() == 443 }

func vipID(vip netip.AddrPort) uint32 {
	for i, v := range ownVIPs {
		if v == vip {
			return uint32(i + 1)
		}
	}
	panic("no such VIP")
}

// ownHost is one server. Its slot in every VIP is its number, from 1 on.
type ownHost struct {
	t    *testing.T
	net  *ownNet
	slot uint16
	ns   *hosttest.Namespace
	tun  *os.File
	o    bpf.HostObjects
	c    *control
	vips map[tables.Key]bpf.HostVIP
}

type ownNet struct {
	t     *testing.T
	hosts []*ownHost
	// hops of the last packet that was delivered: the slots that it came to.
	path []uint16
	last []byte // the frame as the last of them got it
}

func (h *ownHost) addr(v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:9::%d", h.slot))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", h.slot))
}

func (h *ownHost) mac() wire.MAC { return wire.MAC{2, 0, 0, 0, 9, byte(h.slot)} }

func newOwnNet(t *testing.T, servers int) *ownNet {
	t.Helper()
	n := &ownNet{t: t}
	for i := range servers {
		n.hosts = append(n.hosts, newOwnHost(t, n, uint16(i+1)))
	}
	for _, h := range n.hosts {
		h.meet()
	}
	return n
}

func (n *ownNet) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%+v (these tests need root)", err)
	}
}

func newOwnHost(t *testing.T, n *ownNet, slot uint16) *ownHost {
	t.Helper()
	h := &ownHost{t: t, net: n, slot: slot}
	var err error
	h.ns, err = hosttest.NewNamespace()
	n.must(err)
	t.Cleanup(func() { h.ns.Close() })
	n.must(h.ns.Do(h.wire))
	spec, err := bpf.LoadHost()
	n.must(err)
	n.must(spec.Variables["jiffy_mult"].Set(uint32(0)))
	n.must(spec.Variables["ask_rate"].Set(uint32(16)))
	n.must(spec.LoadAndAssign(&h.o, nil))
	t.Cleanup(func() { h.o.Close() })
	h.c, err = openControl(h.o.HostControl)
	n.must(err)
	h.vips = map[tables.Key]bpf.HostVIP{}
	for _, vip := range ownVIPs {
		k := tables.Key{Addr: vip.Addr(), Port: vip.Port(), Proto: wire.ProtoTCP}
		scheme := bpf.SchemeBeamer
		if isUDP(vip) {
			k.Proto = wire.ProtoUDP
		}
		v := bpf.HostVIP{Addr: k.Words(), Port: k.PortBE(), Proto: k.Proto, Used: 1, Id: vipID(vip), Slot: slot, OldSlot: bpf.NoSlot,
			Generation: ownGeneration, ChainMs: ownChainMS, Tunnel: tables.Key{Addr: h.addr(vip.Addr().Is6())}.Words()}
		if isFaild(vip) {
			scheme, v.Tunnel = bpf.SchemeFaild, [2]uint64{}
		}
		v.Scheme = uint8(scheme)
		h.vips[k] = v
		icmp := uint8(wire.ProtoICMP)
		if vip.Addr().Is6() {
			icmp = wire.ProtoICMPv6
		}
		for _, proto := range []uint8{icmp, k.Proto | bpf.ProtoFrag} {
			shared := tables.Key{Addr: vip.Addr(), Proto: proto}
			if _, ok := h.vips[shared]; !ok {
				s := v
				s.Port, s.Proto = 0, proto
				h.vips[shared] = s
			}
		}
	}
	h.write()
	h.clock(ownNow)
	return h
}

// wire makes the loopback and the TUN, and sends everything out by the TUN.
func (h *ownHost) wire() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, vip := range ownVIPs {
		bits := vip.Addr().BitLen()
		a := &netlink.Addr{IPNet: &net.IPNet{IP: vip.Addr().AsSlice(), Mask: net.CIDRMask(bits, bits)}, Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(lo, a); err != nil {
			return err
		}
	}
	for _, name := range []string{"ipv4/tcp_syncookies", "ipv6/conf/all/accept_dad"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	request, err := unix.NewIfreq("wire")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return fmt.Errorf("make a TUN device: %w", err)
	}
	h.tun = os.NewFile(uintptr(fd), "tun")
	h.t.Cleanup(func() { h.tun.Close() })
	dev, err := netlink.LinkByName("wire")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(dev); err != nil {
		return err
	}
	for _, v6 := range []bool{false, true} {
		a := h.addr(v6)
		bits := a.BitLen()
		ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, bits)}
		if err := netlink.AddrAdd(dev, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
		all := &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: all}); err != nil {
			return err
		}
	}
	return nil
}

// meet tells the server who the others are.
func (h *ownHost) meet() {
	h.t.Helper()
	ones := ^uint64(0)
	for i, s := range []bpf.HostSource{
		{Addr: words("10.254.0.0"), Mask: [2]uint64{ones, ones >> 16}}, // /16
		{Addr: words("fd00:254::"), Mask: [2]uint64{0xffffffff, 0}},    // /32
	} {
		h.net.must(h.o.HostSources.Put(uint32(i), s))
	}
	h.net.must(h.o.HostNics.Put(uint32(1), macWord(h.mac(), 0))) // test runs come by the loopback
	for _, vip := range ownVIPs {
		v6 := vip.Addr().Is6()
		for _, other := range h.net.hosts {
			if other == h {
				continue
			}
			h.net.must(h.o.HostSenders.Put(tables.Key{Addr: other.addr(v6)}.Words(), uint8(1)))
			p := bpf.HostPeer{Addr: tables.Key{Addr: other.addr(v6)}.Words(), MacDst: macWord(other.mac(), 0), MacSrc: macWord(h.mac(), 0), Ifindex: 1}
			if v6 {
				p.Flags = bpf.PeerIPV6
			}
			if isFaild(vip) {
				p.Flags |= bpf.PeerUnresolved
			}
			h.net.must(h.o.HostPeers.Put(bpf.HostPeerKey{VipId: vipID(vip), Slot: other.slot}, p))
		}
	}
}

func words(addr string) [2]uint64 { return tables.Key{Addr: netip.MustParseAddr(addr)}.Words() }

func (h *ownHost) write() {
	h.t.Helper()
	h.net.must(writeTable(h.o.HostVips, h.c, &tables.HostTable{Entries: h.vips}))
	h.c.store(offActive, 1-h.c.load(offActive)&1)
}

// change edits every entry of the VIP's id.
func (h *ownHost) change(vip netip.AddrPort, edit func(*bpf.HostVIP)) {
	h.t.Helper()
	for k, v := range h.vips {
		if v.Id == vipID(vip) {
			edit(&v)
			h.vips[k] = v
		}
	}
	h.write()
}

func (h *ownHost) clock(now uint32) { h.c.store(offJiffies, now) }

// run is one run of host_in.
func (h *ownHost) run(frame []byte) (verdict uint32, out []byte) {
	h.t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	err := h.ns.Do(func() (err error) {
		verdict, err = h.o.HostIn.Run(&o)
		return err
	})
	if err != nil {
		h.t.Fatalf("test run of %d bytes: %v", len(frame), err)
	}
	return verdict, o.DataOut
}

// counted says how often the reasons counted while f ran.
func (h *ownHost) counted(f func()) map[string]uint64 {
	h.t.Helper()
	before := h.reasons()
	f()
	after := h.reasons()
	for name, n := range before {
		if after[name] -= n; after[name] == 0 {
			delete(after, name)
		}
	}
	return after
}

func (h *ownHost) reasons() map[string]uint64 {
	h.t.Helper()
	return readReasons(h.t, h.o.HostReasons)
}

func readReasons(t *testing.T, m *ebpf.Map) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for i, name := range reasonNames {
		var cpus []bpf.Count
		if err := m.Lookup(uint32(i), &cpus); err != nil {
			t.Fatal(err)
		}
		for _, c := range cpus {
			all[name] += c.Packets
		}
	}
	return all
}

func (h *ownHost) newest(vip netip.AddrPort) uint32 {
	h.t.Helper()
	var own bpf.HostOwn
	h.net.must(h.o.HostOwn.Lookup(vipID(vip), &own))
	return own.Newest
}

// ---- packets that go from server to server

// deliver lets a frame that is addressed to h take its way. It returns the
// server whose program passed or dropped it at last.
func (n *ownNet) deliver(h *ownHost, frame []byte) (*ownHost, uint32) {
	n.t.Helper()
	n.path = nil
	for range 8 {
		n.path, n.last = append(n.path, h.slot), frame
		verdict, out := h.run(frame)
		switch verdict {
		case xdpPass:
			h.inject(out[wire.EthernetLen:])
			return h, verdict
		case xdpTX:
			n.checkPassedOn(h, out)
			next := n.at(out)
			if next == nil {
				n.t.Fatalf("server %d sent a frame to nobody: %x", h.slot, out)
			}
			h, frame = next, out
		default:
			return h, verdict
		}
	}
	n.t.Fatalf("the packet goes round: %d", n.path)
	return nil, 0
}

// at is the server that a frame is for.
func (n *ownNet) at(frame []byte) *ownHost {
	if f, ok, _ := wire.DecodeFaild(wire.MAC(frame[:6])); ok {
		if int(f.Current) > len(n.hosts) || f.Current == 0 {
			return nil
		}
		return n.hosts[f.Current-1]
	}
	for _, h := range n.hosts {
		if wire.MAC(frame[:6]) == h.mac() {
			return h
		}
	}
	return nil
}

// checkPassedOn looks whether what a server sends to another is right in itself:
// addresses, checksums, length.
func (n *ownNet) checkPassedOn(h *ownHost, frame []byte) {
	n.t.Helper()
	p := wire.Parse(frame)
	if wire.MAC(frame[6:12]) != h.mac() {
		n.t.Errorf("passed on from MAC %x, not this server's %x", frame[6:12], h.mac())
	}
	if _, ok, _ := wire.DecodeFaild(wire.MAC(frame[:6])); ok {
		return
	}
	if errs := p.ChecksumErrors(); errs != nil {
		n.t.Errorf("passed on with %v: %x", errs, frame)
	}
	if p.Src != h.addr(p.Src.Is6()) {
		n.t.Errorf("passed on by server %d from %s", h.slot, p.Src)
	}
	if _, _, err := wire.Decapsulate(frame[wire.EthernetLen:]); err != nil {
		n.t.Errorf("passed on: %v", err)
	}
}

// inject gives a packet to the server's stack.
func (h *ownHost) inject(packet []byte) {
	h.t.Helper()
	if _, err := h.tun.Write(packet); err != nil {
		h.t.Fatalf("into the stack: %v", err)
	}
}

// answer waits for what the stack sends and match likes; what it does not like
// is thrown away.
func (h *ownHost) answer(what string, match func(*wire.Parsed) bool) *wire.Parsed {
	h.t.Helper()
	p := h.answerWithin(5*time.Second, match)
	if p == nil {
		h.t.Fatalf("server %d: no %s came", h.slot, what)
	}
	return p
}

func (h *ownHost) answerWithin(d time.Duration, match func(*wire.Parsed) bool) *wire.Parsed {
	h.t.Helper()
	h.net.must(h.tun.SetReadDeadline(time.Now().Add(d)))
	b := make([]byte, 65536)
	for {
		n, err := h.tun.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		h.net.must(err)
		if p := wire.ParsePacket(append([]byte(nil), b[:n]...)); p.Err == nil && match(p) {
			return p
		}
	}
}

// silent looks that the stack has sent nothing to the client but what ok
// allows. An echo of the server's own afterwards shows that all before it was
// looked at.
func (h *ownHost) silent(client netip.AddrPort, ok func(*wire.Parsed) bool) {
	h.t.Helper()
	marker := netip.AddrPortFrom(client.Addr(), uint16(1+rand.N(60000)))
	network := map[bool]string{true: "udp4", false: "udp6"}[client.Addr().Is4()]
	h.net.must(h.ns.Do(func() error {
		c, err := net.Dial(network, marker.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("marker"))
		return err
	}))
	h.answer("marker", func(p *wire.Parsed) bool {
		if p.Protocol == wire.ProtoTCP && p.Destination() == client && (ok == nil || !ok(p)) {
			h.t.Errorf("server %d answered the client with flags %#x, seq %d, ack %d", h.slot, p.Flags, p.Seq, p.Ack)
		}
		return p.Protocol == wire.ProtoUDP && p.Destination() == marker
	})
}

// listen opens a listener at the VIP; connections are accepted and kept.
func (h *ownHost) listen(vip netip.AddrPort) {
	h.t.Helper()
	var l net.Listener
	h.net.must(h.ns.Do(func() (err error) {
		l, err = net.Listen("tcp", vip.String())
		return err
	}))
	h.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.t.Cleanup(func() { c.Close() })
			go capitals(c)
		}
	}()
}

// capitals says what it hears in capitals, and hangs up when the client does or
// sends a full stop.
func capitals(c net.Conn) {
	b := make([]byte, 2048)
	for {
		n, err := c.Read(b)
		if err != nil || n > 0 && b[n-1] == '.' {
			c.Close()
			return
		}
		for i := range b[:n] {
			if b[i] >= 'a' && b[i] <= 'z' {
				b[i] -= 'a' - 'A'
			}
		}
		c.Write(b[:n])
	}
}
