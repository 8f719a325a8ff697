package host

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// Random packets through host_in of four servers and through the Go model
// (scheme/beamer, scheme/faild), with real sockets in every state. What is
// passed on goes on to the server that it names. Everything must be equal:
// verdicts, frames, reasons, what is learned, the table of flows, what others
// are asked.

const ownPackets = 6000 // a round: within the minute that TIME_WAIT lasts

func TestOwnAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range soak.Seeds(t, 1) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { ownRound(t, seed) })
	}
}

// ownCases makes random packets for the servers.
type ownCases struct {
	r     *rand.Rand
	n     *ownNet
	twins []*ownTwin
	tcp   []*ownClient
	udp   []*ownClient
}

// ownClient is a client, which may have had to do with several servers.
type ownClient struct {
	*client
	seqs, acks []uint32 // worth trying
	cookie     bool
}

func ownRound(t *testing.T, seed uint64) {
	c := &ownCases{r: rand.New(rand.NewPCG(seed, 0)), n: newOwnNet(t, 4)}
	for _, h := range c.n.hosts {
		c.twins = append(c.twins, newOwnTwin(h))
		c.n.must(h.ns.Sysctl("net.ipv4.tcp_fin_timeout", "59"))
	}
	c.open()
	c.connected()
	counts := make([]map[string]uint64, len(c.twins))
	for i, h := range c.twins {
		counts[i] = h.reasons()
	}
	seen := map[string]int{}
	for i := range ownPackets {
		if c.r.IntN(40) == 0 {
			c.change()
		}
		h := c.twins[c.r.IntN(len(c.twins))]
		frame := c.frame(h)
		for hop := 0; h != nil; hop++ {
			want, got := h.model(frame), h.program(frame, counts[h.slot-1])
			if got.verdict != want.verdict || !slices.Equal(got.reasons, want.reasons) || !bytes.Equal(got.out, want.out) {
				t.Fatalf("packet %d, hop %d, at server %d, clock %#x\n %x\nprogram: %s\nmodel:   %s", i, hop, h.slot, h.now, frame, got, want)
			}
			c.learned(h)
			seen[fmt.Sprint(got.verdict, got.reasons)]++
			if got.verdict != xdpTX {
				break
			}
			if next := c.n.at(got.out); next != nil {
				h, frame = c.twins[next.slot-1], got.out
			} else {
				h = nil // a slot that no server has: Faild's switch would flood it
			}
			if hop > 10 {
				t.Fatalf("packet %d goes round", i)
			}
		}
	}
	for _, h := range c.twins {
		if got := h.flowTable(); !maps.Equal(got, map[ownTuple]uint32(h.flows)) {
			t.Errorf("server %d: flows %v, the model's are %v", h.slot, got, h.flows)
		}
		c.checkAsked(h)
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d × %s", seen[what], what)
	}
}

func (c *ownCases) learned(h *ownTwin) {
	c.n.t.Helper()
	for _, vip := range ownVIPs {
		var own bpf.HostOwn
		c.n.must(h.o.HostOwn.Lookup(vipID(vip), &own))
		if s := h.servers[vip]; own.Newest != s.Seen || own.StaleMs != s.StaleMS {
			c.n.t.Fatalf("server %d, %s: learned %+v, the model %#x and %#x", h.slot, vip, own, s.Seen, s.StaleMS)
		}
	}
}

func (c *ownCases) checkAsked(h *ownTwin) {
	c.n.t.Helper()
	ring, err := ringbuf.NewReader(h.o.HostAsks)
	c.n.must(err)
	defer ring.Close()
	for i, want := range h.asked {
		record, err := ring.Read()
		c.n.must(err)
		length := int(record.RawSample[8]) | int(record.RawSample[9])<<8
		if got := record.RawSample[12 : 12+length]; !bytes.Equal(got, want) {
			c.n.t.Errorf("server %d: asked about %x (%d), the model about %x", h.slot, got, i, want)
		}
	}
	if ring.AvailableBytes() != 0 {
		c.n.t.Errorf("server %d asked more than the model's %d", h.slot, len(h.asked))
	}
}

// ---- sockets

// open makes the clients of TCP and, at each server, a socket in a random state
// for each of them. Two servers answer with SYN cookies, each at one VIP.
func (c *ownCases) open() {
	floods := map[netip.AddrPort]*ownHost{beamer4: c.n.hosts[3], faild6: c.n.hosts[2]}
	flooded := func(h *ownHost, vip netip.AddrPort) bool { return h == floods[vip] }
	for _, h := range c.n.hosts {
		for _, vip := range ownVIPs {
			if !isUDP(vip) && !flooded(h, vip) && (vip != faild4 || h.slot < 4) {
				h.listen(vip)
			}
		}
	}
	for i, by := range []delivery{ipip4, ipip6, byMAC, byMAC} {
		for j := range 5 {
			one := newClient(c.n, by, uint16(10000+100*i+j), false)
			if i == 3 {
				one = one.v6()
			}
			all := &ownClient{client: one, acks: []uint32{0, 1}, cookie: j == 4}
			if h := floods[one.vip]; j == 0 && h != nil {
				overflow(one, h)
			}
			for _, h := range c.twins {
				if flooded(h.ownHost, one.vip) == all.cookie && (one.vip != faild4 || h.slot < 4) {
					c.socket(h, all)
				}
			}
			c.tcp = append(c.tcp, all)
		}
	}
}

// socket gives the client one at h.
func (c *ownCases) socket(h *ownTwin, all *ownClient) {
	one := *all.client
	one.seq = uint32(h.slot)<<28 + c.r.Uint32()>>8
	tuple := ownTuple{one.addr, one.vip}
	var k beamer.Socket
	if all.cookie {
		cookie := one.synAck(h.ownHost).Seq
		h.cookies[tuple] = cookie + 1
		// What the kernel thinks of others' numbers is chance in one of some
		// thousands; these are wrong for certain.
		all.seqs, all.acks = []uint32{one.seq + 1}, []uint32{cookie + 1, cookie + 0x0123_0001, cookie + 0x4567_0001}
		return
	}
	switch c.r.IntN(8) {
	case 0, 1: // none
		return
	case 2:
		one.connect(h.ownHost)
		k.State = beamer.Established
	case 3: // half closed, then LAST_ACK
		one.connect(h.ownHost)
		one.sent(h.ownHost, wire.ACK|wire.FIN, "")
		k.State = beamer.Established
	case 4, 5:
		k = beamer.Socket{State: beamer.Request, ISN: one.synAck(h.ownHost).Seq}
		all.acks = append(all.acks, k.ISN, k.ISN+1, k.ISN+2)
	case 6:
		one.connect(h.ownHost)
		one.hangUp(h.ownHost, h.ownHost)
		k = beamer.Socket{State: beamer.TimeWait, Next: one.seq}
	case 7:
		one.connect(h.ownHost)
		one.sent(h.ownHost, wire.ACK|wire.PSH, ".")
		fin := h.answer("FIN", one.from(wire.FIN, 0))
		one.ack = fin.Seq + 1
		one.send(h.ownHost, wire.ACK, "")
		k = beamer.Socket{State: beamer.FinWait2, Next: one.seq}
	}
	all.seqs = append(all.seqs, one.seq, one.seq-1, one.seq+1, one.seq-1000, one.seq+1000, one.seq-65536, one.seq+65536, one.seq-20_000_000, one.seq+1<<25)
	h.sockets[tuple] = k
}

// connected makes the clients of UDP; some have a socket of their own.
func (c *ownCases) connected() {
	for i, by := range []delivery{ipip4, ipip6, byMAC, byMAC} {
		for j := range 12 {
			one := newClient(c.n, by, uint16(20000+100*i+j), true)
			if i == 3 {
				one = one.v6()
			}
			c.udp = append(c.udp, &ownClient{client: one})
			if j > 2 {
				continue
			}
			h := c.twins[c.r.IntN(len(c.twins))]
			c.n.must(h.ns.Do(func() error {
				conn, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(one.vip), Control: reuse}).Dial("udp", one.addr.String())
				if err == nil {
					c.n.t.Cleanup(func() { conn.Close() })
				}
				return err
			}))
			h.own[ownTuple{one.addr, one.vip}] = true
		}
	}
}

// ---- what the agent changes

func (c *ownCases) change() {
	h, vip := c.twins[c.r.IntN(len(c.twins))], ownVIPs[c.r.IntN(len(ownVIPs))]
	s := h.servers[vip]
	switch c.r.IntN(6) {
	case 0: // a new generation, with what was learned cleared as the agent does, or not
		s.Generation = pick(c.r, s.Generation+1, s.Seen, s.Generation-1000, c.r.Uint32(), 0xffff_ffff, 0)
		h.change(vip, func(v *bpf.HostVIP) { v.Generation = s.Generation })
		if c.r.IntN(2) == 0 {
			s.Seen, s.StaleMS = 0, 0
			h.forget(vip)
		}
	case 1:
		s.Unsettled = c.r.IntN(3) == 0
		h.change(vip, func(v *bpf.HostVIP) {
			v.Flags = 0
			if s.Unsettled {
				v.Flags = 1
			}
		})
	case 2:
		s.ChainTime = pick[uint32](c.r, ownChainMS, ownChainMS, 1000, 86_400_000)
		h.change(vip, func(v *bpf.HostVIP) { v.ChainMs = s.ChainTime })
	case 3: // one that cannot be reached, or is not known
		slot := uint16(1 + c.r.IntN(len(c.twins)))
		if slot == h.slot {
			return
		}
		key := bpf.HostPeerKey{VipId: vipID(vip), Slot: slot}
		other := c.n.hosts[slot-1]
		v6 := vip.Addr().Is6()
		p := bpf.HostPeer{Addr: words(other.addr(v6).String()), MacDst: macWord(other.mac(), 0), MacSrc: macWord(h.mac(), 0), Ifindex: 1}
		if v6 {
			p.Flags = 1
		}
		if isFaild(vip) {
			p.Flags |= 2
		}
		h.peers[vip][slot] = beamer.Reachable
		switch c.r.IntN(6) {
		case 0:
			delete(h.peers[vip], slot)
			h.o.HostPeers.Delete(key)
			return
		case 1:
			p.Flags ^= pick[uint32](c.r, 1, 2, 3)
			h.peers[vip][slot] = beamer.Unresolved
		case 2:
			p.Flags |= 4
			h.peers[vip][slot] = beamer.Silent
		}
		c.n.must(h.o.HostPeers.Put(key, p))
	case 4:
		// Flows' moments are those at which the clock stood.
		h.now = pick(c.r, h.now+c.r.Uint32N(3*ownChainMS), h.now+c.r.Uint32N(2000), h.now+999, h.now+1000, h.now+1001, h.now-1,
			h.now+s.ChainTime, h.now+s.ChainTime+1, 0xffff_ff00, 0, 0x7fff_fff0, c.r.Uint32())
		h.clock(h.now)
	case 5: // some servers' addresses are among the balancers'
		source := netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", 1+c.r.IntN(5))), 32)
		h.sources = append(h.sources[:2], source)
		ones := ^uint64(0)
		c.n.must(h.o.HostSources.Put(uint32(2), bpf.HostSource{Addr: words(source.Addr().String()), Mask: [2]uint64{ones, ones}}))
	}
}

func pick[V any](r *rand.Rand, of ...V) V { return of[r.IntN(len(of))] }

// ---- packets

// frame is a random one that is addressed to h, or nearly.
func (c *ownCases) frame(h *ownTwin) []byte {
	r := c.r
	from := c.tcp[r.IntN(len(c.tcp))]
	if r.IntN(3) == 0 {
		from = c.udp[r.IntN(len(c.udp))]
	}
	one := *from.client
	packet := c.packet(&one, from)
	if one.by != byMAC {
		one.by = pick(r, over(one.by.outer)...)
	}
	if one.outer.Src = netip.Addr(c.sender(one.by.outer == 6)); r.IntN(8) == 0 {
		one.outer.TOS, one.tag = pick[uint8](r, 0, 0, 2, 3, 0xb8), pick[uint16](r, 0, 42)
	}
	if r.IntN(30) == 0 {
		one.outer.TTL = pick[uint8](r, 1, 2)
	}
	s := h.servers[one.vip]
	one.gen = s.Generation
	if int32(s.Seen-one.gen) > 0 && s.Seen != 0 {
		one.gen = s.Seen
	}
	if r.IntN(4) == 0 {
		one.gen += pick[uint32](r, 1, 1, 5, ^uint32(0), bpf.GenerationAhead, bpf.GenerationAhead+1, 1<<20, 1<<31, 1<<31-1, r.Uint32())
	}
	age := pick[uint32](r, 0, 1000, 1000, s.ChainTime-1, s.ChainTime, s.ChainTime+1, ^uint32(0), ^uint32(1999), ^uint32(2000), 1<<31, 1<<31-1, r.Uint32())
	one.time = h.now - age
	chain := make([]uint16, r.IntN(4))
	for i := range chain {
		chain[i] = pick[uint16](r, 1, 2, 3, 4, 1, 2, 3, 4, 900, wire.NoServer)
	}
	switch {
	case r.IntN(30) == 0: // without a tunnel, by the card's own address
		return wire.Link{Dst: h.mac(), VLAN: one.tag}.Frame(packet)
	case one.by.outer != 0 && r.IntN(20) == 0: // without hops
		o := wire.Outer{Tunnel: pick(r, wire.Tunnels()...), Src: one.outer.Src, Dst: h.addr(one.by.outer == 6)}
		return wire.Link{Dst: h.mac(), VLAN: one.tag}.Frame(o.Encapsulate(packet))
	}
	frame := one.frame(h.ownHost, packet, chain...)
	if one.by.outer == 0 {
		switch r.IntN(8) {
		case 0:
			frame[0] = byte(wire.FaildBack)
		case 1:
			frame[0] = byte(wire.FaildCopy)
		case 2:
			frame[1] ^= byte(r.IntN(2)) // another server's
		}
	}
	return frame
}

// sender is the outer source of a tunnel.
func (c *ownCases) sender(v6 bool) netip.Addr {
	a := pick(c.r, "10.254.0.9", "10.254.0.9", "10.254.0.9", "10.254.255.255", "10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4", "10.255.0.0", "198.51.100.7")
	if v6 {
		a = pick(c.r, "fd00:254::9", "fd00:254::9", "fd00:254::9", "fd00:254:ffff::", "fd00:9::1", "fd00:9::2", "fd00:9::3", "fd00:9::4", "fd00:255::1", "::", "::ffff:10.254.0.9", "::ffff:10.9.0.1")
	}
	return netip.MustParseAddr(a)
}

// packet is a random one of the client's, or of a router's about it.
func (c *ownCases) packet(one *client, from *ownClient) []byte {
	r := c.r
	one.seq, one.ack = r.Uint32(), r.Uint32()
	if len(from.seqs) > 0 {
		one.seq = from.seqs[r.IntN(len(from.seqs))]
	}
	if len(from.acks) > 0 && (from.cookie || r.IntN(2) == 0) {
		one.ack = from.acks[r.IntN(len(from.acks))]
	}
	payload := make([]byte, pick(r, 0, 0, 5, 100, 1400))
	var ip wire.IP
	if one.vip.Addr().Is6() && r.IntN(6) == 0 {
		ip = wire.IP{Atomic: r.IntN(2) == 0, Extensions: extensions(r.IntN(3), pick(r, 6, 14, 62))}
	}
	switch r.IntN(12) {
	case 0, 1:
		return c.icmp(one, from)
	case 2:
		if isUDP(one.vip) {
			return wire.UDP{Src: one.addr, Dst: one.vip, Payload: payload, IP: wire.IP{MoreFragments: true}}.Packet()
		}
		return wire.TCP{Src: one.addr, Dst: one.vip, Flags: wire.ACK, Payload: payload, IP: wire.IP{MoreFragments: true}}.Packet()
	}
	if isUDP(one.vip) {
		if r.IntN(6) == 0 {
			payload = wire.QUICInitial(pick[uint32](r, wire.QUIC1, wire.QUIC2), r.Uint64(), pick(r, 1200, 1300))
		}
		return wire.UDP{Src: one.addr, Dst: one.vip, Payload: payload, IP: ip}.Packet()
	}
	flags := pick[uint8](r, wire.ACK, wire.ACK, wire.ACK, wire.ACK|wire.PSH, wire.ACK|wire.FIN, wire.RST, wire.RST|wire.ACK, wire.SYN, wire.SYN|0xc0, wire.SYN|wire.ACK, 0, 0xff)
	return wire.TCP{Src: one.addr, Dst: one.vip, Flags: flags, Seq: one.seq, Ack: one.ack, Payload: payload, IP: ip}.Packet()
}

// extensions are n destination options headers of size and two bytes each, with
// an option that who does not know it skips.
func extensions(n, size int) (all []wire.Extension) {
	for range n {
		all = append(all, wire.Extension{Type: 60, Body: append([]byte{0x1e, uint8(size - 2)}, make([]byte, size-2)...)})
	}
	return all
}

// icmp is a router's error about what a server sent to the client; or an echo.
func (c *ownCases) icmp(one *client, from *ownClient) []byte {
	r, v6 := c.r, one.vip.Addr().Is6()
	router := netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", 1+r.IntN(3)))
	if v6 {
		router = netip.MustParseAddr(fmt.Sprintf("2001:db8:ff::%d", 1+r.IntN(3)))
	}
	if r.IntN(10) == 0 {
		return wire.Echo(router, one.vip.Addr(), 1, 2, []byte("hello"), false).Packet()
	}
	e := wire.ICMPError{Src: router, Dst: one.vip.Addr(), Type: pick[uint8](r, 3, 3, 11, 11, 5, 9), Code: 0}
	if v6 {
		e.Type = pick[uint8](r, 1, 2, 3, 1, 2, 3, 134, 136, 137)
	}
	vip, seq := one.vip, r.Uint32()
	if tried := slices.Concat(from.acks, from.seqs); len(tried) > 0 {
		seq = tried[r.IntN(len(tried))]
	}
	if r.IntN(12) == 0 {
		vip = netip.AddrPortFrom(vip.Addr(), 81)
	}
	if isUDP(vip) {
		e.Quoted = wire.UDP{Src: vip, Dst: one.addr, Payload: make([]byte, 50)}.Packet()
	} else {
		e.Quoted = wire.TCP{Src: vip, Dst: one.addr, Flags: wire.ACK, Seq: seq, Payload: make([]byte, 50)}.Packet()
	}
	return e.Packet()
}
