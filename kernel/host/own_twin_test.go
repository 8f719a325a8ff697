package host

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/faild"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// ownTwin is a server of the rig beside what the Go model knows of it.
type ownTwin struct {
	*ownHost
	now     uint32
	servers map[netip.AddrPort]*beamer.Server
	peers   map[netip.AddrPort]map[uint16]beamer.Peer
	sources []netip.Prefix
	senders []netip.Addr
	sockets map[ownTuple]beamer.Socket
	cookies map[ownTuple]uint32 // acknowledged by who ends the handshake of one
	flows   beamer.Flows[ownTuple]
	own     map[ownTuple]bool // connected sockets of UDP
	asks    faild.Asks[netip.Addr]
	asked   [][]byte

	work chan func() error
	done chan error
}

type ownTuple struct{ client, vip netip.AddrPort }

// ownFate is what becomes of a frame.
type ownFate struct {
	verdict uint32
	out     []byte // taken or passed on
	reasons []string
}

func newOwnTwin(h *ownHost) *ownTwin {
	t := &ownTwin{ownHost: h, now: ownNow, servers: map[netip.AddrPort]*beamer.Server{}, peers: map[netip.AddrPort]map[uint16]beamer.Peer{},
		sockets: map[ownTuple]beamer.Socket{}, cookies: map[ownTuple]uint32{}, flows: beamer.Flows[ownTuple]{}, own: map[ownTuple]bool{},
		asks:    faild.Asks[netip.Addr]{Rate: 16},
		sources: []netip.Prefix{netip.MustParsePrefix("10.254.0.0/16"), netip.MustParsePrefix("fd00:254::/32")},
		work:    make(chan func() error), done: make(chan error)}
	for _, vip := range ownVIPs {
		peers := map[uint16]beamer.Peer{}
		for _, other := range h.net.hosts {
			if other != h {
				peers[other.slot] = beamer.Reachable
				t.senders = append(t.senders, other.addr(vip.Addr().Is6()))
			}
		}
		t.peers[vip] = peers
		t.servers[vip] = &beamer.Server{Slot: h.slot, Generation: ownGeneration, ChainTime: ownChainMS, Peers: func(slot uint16) beamer.Peer { return peers[slot] }}
	}
	go t.inside()
	h.t.Cleanup(func() { close(t.work) })
	return t
}

// inside does the work on one thread in the server's namespace and on one
// processor, whose bound on asking it then meets.
func (t *ownTwin) inside() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	err := unix.Setns(t.ns.FD(), unix.CLONE_NEWNET)
	if err == nil {
		var allowed, one unix.CPUSet
		if err = unix.SchedGetaffinity(0, &allowed); err == nil {
			cpu := 0
			for !allowed.IsSet(cpu) {
				cpu++
			}
			one.Set(cpu)
			err = unix.SchedSetaffinity(0, &one)
		}
	}
	for f := range t.work {
		if err != nil {
			t.done <- err
			continue
		}
		t.done <- f()
	}
}

// program is what host_in does with the frame.
func (t *ownTwin) program(frame []byte, before map[string]uint64) (f ownFate) {
	t.t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	t.work <- func() (err error) {
		f.verdict, err = t.o.HostIn.Run(&o)
		return err
	}
	t.net.must(<-t.done)
	if f.verdict != xdpDrop {
		f.out = o.DataOut
	}
	for name, n := range t.reasons() {
		for range n - before[name] {
			f.reasons = append(f.reasons, name)
		}
		before[name] = n
	}
	slices.Sort(f.reasons)
	return f
}

// from is who may have sent a tunnel.
func (t *ownTwin) from(source netip.Addr) beamer.From {
	balancer := slices.ContainsFunc(t.sources, func(p netip.Prefix) bool { return p.Contains(source) })
	server := slices.Contains(t.senders, source)
	switch {
	case balancer && server:
		return beamer.Either
	case balancer:
		return beamer.Balancer
	case server:
		return beamer.Passed
	}
	return beamer.Nobody
}

// model is what host_in should do with the frame. It changes what a packet
// changes.
func (t *ownTwin) model(frame []byte) (f ownFate) {
	defer func() { slices.Sort(f.reasons) }()
	whole := wire.Parse(frame)
	dst := wire.MAC(frame[:6])
	packet, outer, err := wire.Decapsulate(frame[whole.L3:])
	tunnel := err == nil
	if !tunnel {
		packet = frame[whole.L3:]
	}
	p := wire.ParsePacket(packet)
	k, tuple := t.packet(p)
	asked := isFaild(tuple.vip)
	_, switched, _ := wire.DecodeFaild(dst)
	icmp := p.Protocol == wire.ProtoICMP || p.Protocol == wire.ProtoICMPv6
	if icmp && !tuple.client.IsValid() && !echo(p) && (tunnel || asked && switched) {
		return ownFate{verdict: xdpDrop, reasons: []string{"drop_foreign_icmp"}}
	}
	if tunnel {
		k.From, k.Spent = t.from(outer.Src), outer.TTL <= 1
		if outer.Hops != nil {
			k.Carried, k.Hops = true, *outer.Hops
		}
	} else if k.From = beamer.Balancer; asked {
		if _, mine := faild.Read(dst, t.slot, &k); !mine {
			return ownFate{verdict: xdpDrop, reasons: []string{"drop_not_mine"}}
		}
	}
	whom := tuple.client.IsValid() // else a fragment, or ICMP of no connection of ours
	if !whom {
		k.Carried = false
	}
	s := t.servers[tuple.vip]
	a := s.Decide(&k, t.now, func() beamer.Socket { return t.socket(tuple, &k) },
		func() bool { return t.own[tuple] || t.flows.Known(tuple, t.now, s.ChainTime) })
	f.reasons = a.Reasons
	switch a.Verdict {
	case beamer.Drop:
		f.verdict = xdpDrop
	case beamer.Ask:
		if f.verdict = xdpDrop; t.asks.Allow(sender(p.Src), t.now) {
			f.reasons, t.asked = append(f.reasons, "ask_icmp"), append(t.asked, p.Packet()[:min(p.TotalLen, 256)])
		} else {
			f.reasons = append(f.reasons, "drop_ask_limit")
		}
	case beamer.Take:
		if whom && k.UDP && !k.Quote {
			t.flows.Take(tuple, t.now)
		}
		if !tunnel {
			f.reasons = append(f.reasons, "in_direct")
		}
		f.verdict, f.out = xdpPass, append(bytes.Clone(frame[:whole.L3]), packet...)
	case beamer.PassOn:
		f.verdict = xdpTX
		if !tunnel {
			to, mac := faild.Next(dst, a), t.mac()
			f.out = append(append(append(f.out, to[:]...), mac[:]...), frame[12:]...)
			break
		}
		next := t.net.hosts[a.Next-1]
		outer.Src, outer.Dst, outer.Hops = t.addr(outer.Src.Is6()), next.addr(outer.Src.Is6()), &a.Hops
		outer.TTL--
		f.out = wire.Link{Dst: next.mac(), Src: t.mac()}.Frame(outer.Encapsulate(packet))
	}
	return f
}

// sender is whom the bound on asks counts: of IPv6 a network is one.
func sender(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

func echo(p *wire.Parsed) bool {
	if p.Protocol == wire.ProtoICMP {
		return p.ICMPType == 0 || p.ICMPType == 8
	}
	return p.ICMPType == 128 || p.ICMPType == 129
}

// packet reads what the decision hangs on, and whose it is: with no client, of
// the address alone.
func (t *ownTwin) packet(p *wire.Parsed) (k beamer.Packet, tuple ownTuple) {
	tuple.vip = netip.AddrPortFrom(p.Dst, 80) // whoever is the address's
	c := p
	if q := p.Quoted; q != nil {
		vip := q.Source()
		if (q.Protocol != wire.ProtoTCP && q.Protocol != wire.ProtoUDP) || q.Src != p.Dst || t.servers[vip] == nil || isUDP(vip) != (q.Protocol == wire.ProtoUDP) {
			return k, tuple
		}
		c, k.Quote, k.UDP, k.Seq = q, true, isUDP(vip), q.Seq
		tuple = ownTuple{q.Destination(), vip}
		return k, tuple
	}
	if p.Fragmented() || p.Protocol != wire.ProtoTCP && p.Protocol != wire.ProtoUDP {
		return k, tuple
	}
	tuple = ownTuple{c.Source(), c.Destination()}
	k.UDP, k.Flags, k.Seq, k.Ack = p.Protocol == wire.ProtoUDP, p.Flags, p.Seq, p.Ack
	k.Opening = k.UDP && len(p.Payload) >= 1200 && p.Payload[0]&0x80 != 0
	return k, tuple
}

func (t *ownTwin) socket(tuple ownTuple, k *beamer.Packet) beamer.Socket {
	s := t.sockets[tuple]
	if ack, ok := t.cookies[tuple]; ok {
		s = beamer.Socket{State: beamer.Listener, Cookie: k.Ack == ack}
	}
	return s
}

// flowTable is what host_flows holds.
func (t *ownTwin) flowTable() map[ownTuple]uint32 {
	t.t.Helper()
	all := map[ownTuple]uint32{}
	var key bpf.Tuple
	var last uint32
	entries := t.o.HostFlows.Iterate()
	for entries.Next(&key, &last) {
		port := func(be uint16) uint16 { return be<<8 | be>>8 }
		all[ownTuple{netip.AddrPortFrom(tables.AddrOf(key.Addr), port(key.Sport)), ownVIPs[key.VipId-1]}] = last
	}
	t.net.must(entries.Err())
	return all
}

func (f ownFate) String() string {
	return fmt.Sprintf("verdict %d %s\n %x", f.verdict, f.reasons, f.out)
}
