package lb

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	schemebeamer "github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// What the tests of the mux share: bucket tables written by hand into the rig
// of lb_rig_test.go, and packets for them.

// rigBucket is a bucket's row. Settled: no previous server.
type rigBucket struct {
	current  uint16
	previous []uint16
	time     uint32
}

func (b rigBucket) hops(generation uint32) wire.Hops {
	if len(b.previous) == 0 {
		return wire.NewHops(0, generation)
	}
	return wire.NewHops(b.time, generation, b.previous...)
}

// rigBuckets are a table for the model.
type rigBuckets []rigBucket

func (t rigBuckets) Len() int { return len(t) }
func (t rigBuckets) Row(b int) schemebeamer.Row {
	hops := t[b].hops(0)
	return schemebeamer.Row{Current: t[b].current, Previous: hops.Previous, Time: hops.Time}
}

// words are a moved bucket's.
func (b rigBucket) words() [tables.BucketWords]uint64 {
	p := b.hops(0).Previous
	return [...]uint64{uint64(b.current) | uint64(p[0])<<16 | uint64(p[1])<<32 | uint64(p[2])<<48, uint64(b.time)}
}

// addBeamer is add for scheme beamer. It returns the entry's index in r.entries.
func (r *rig) addBeamer(v rigVIP, generation uint32, buckets []rigBucket) int {
	r.t.Helper()
	v.scheme, v.policy = bpf.SchemeBeamer, bpf.PolicyHash
	r.add(v)
	e := &r.entries[len(r.entries)-1]
	r.tables += r.tables % tables.BucketWords
	e.HashTable, e.HashSize, e.HashForm = r.tables, uint32(len(buckets)), uint8(bpf.HashBuckets)
	e.NewTable, e.NewSize, e.Generation = e.HashTable, e.HashSize, generation
	table := make([]uint64, tables.BucketEntries(len(buckets)))
	for b, bucket := range buckets {
		row := uint64(bucket.current)
		if len(bucket.previous) > 0 {
			row = bpf.BucketMoved
			w := bucket.words()
			copy(table[tables.WordsAt(len(buckets))+b*tables.BucketWords:], w[:])
		}
		table[b/4] |= row << (b % 4 * 16)
	}
	for i, entry := range table {
		if err := r.o.Tables.Put(r.tables+uint32(i), entry); err != nil {
			r.t.Fatal(err)
		}
	}
	r.tables += uint32(len(table))
	return len(r.entries) - 1
}

// muxBuckets are chains of 0 to 3 over five servers.
var muxBuckets = []rigBucket{
	{current: 0}, {1, []uint16{0}, 1000}, {2, []uint16{1, 4}, 0xfffffff0}, {3, []uint16{2, 1, 0}, rigNow},
	{current: 4}, {4, []uint16{4095}, rigNow + 500}, {2, []uint16{2, 2, 2}, 1}, {current: 1},
}

// muxServers are five by a forwarding, of a family.
func muxServers(f bpf.Forwarding, six bool, tag uint16) (s []bpf.Line) {
	for i := range 5 {
		addr := fmt.Sprintf("10.1.0.%d", i+1)
		if six {
			addr = fmt.Sprintf("fd00::%d", i+1)
		}
		l := server(addr, f)
		l.MacSrc |= uint64(tag) << 48
		s = append(s, l)
	}
	return s
}

// mux is VIPs of scheme beamer in both families on TCP and UDP port 80, with
// muxBuckets and their address entries. Each has five lines, from line 1 on:
// IPv4 TCP, IPv4 UDP, IPv6 TCP, IPv6 UDP.
func mux(t *testing.T, sum bool, generation uint32, servers []bpf.Line, flags uint8) *rig {
	t.Helper()
	r := newRigOf(t, sum)
	for _, a := range []netip.Addr{vip4, vip6} {
		for _, proto := range []uint8{wire.ProtoTCP, wire.ProtoUDP} {
			r.addBeamer(rigVIP{addr: a, port: 80, proto: proto, servers: servers, flags: flags}, generation, muxBuckets)
		}
		r.address(a, 0)
	}
	r.commit()
	return r
}

// clientOf is a client of a's family whose connections are of bucket b.
func clientOf(t *testing.T, a netip.Addr, b int) netip.AddrPort {
	t.Helper()
	for port := uint16(1024); port != 0; port++ {
		c := netip.AddrPortFrom(a, port)
		if hash.Row(hash.Flow(rigHash, c, 80, true), len(muxBuckets)) == b {
			return c
		}
	}
	t.Fatalf("no port of %v is of bucket %d", a, b)
	return netip.AddrPort{}
}

// expectHops runs a frame that must be forwarded to a server with hops, and the
// packet in it unchanged.
func (r *rig) expectHops(frame []byte, want bpf.Reason, to uint16, hops wire.Hops, tag uint16) wire.Outer {
	r.t.Helper()
	reason, action, out := r.why(frame)
	if reason != want || action != xdpTX {
		r.t.Fatalf("reason %d action %d, want reason %d", reason, action, want)
	}
	in, o := inner(r.t, out, tag)
	if !bytes.Equal(in, wire.Parse(frame).Packet()) {
		r.t.Fatal("the inner packet changed")
	}
	if o.Hops == nil || *o.Hops != hops {
		r.t.Fatalf("hops %+v, want %+v\n% x", o.Hops, hops, out)
	}
	if b := o.Dst.AsSlice(); b[len(b)-1] != byte(to+1) {
		r.t.Fatalf("went to %v, want slot %d", o.Dst, to)
	}
	return o
}

// fragmentsOf adds the entry by which an address's fragments of a protocol find
// their VIP, which is the one of that protocol.
func (r *rig) fragmentsOf(a netip.Addr, proto uint8) {
	r.t.Helper()
	for i := range r.entries {
		if k := r.keys[i]; k.Addr == a && k.Proto == proto && k.Port == 80 {
			k.Port, k.Proto = 0, proto|0x80
			e := r.entries[i]
			e.Port, e.Proto = 0, k.Proto
			r.keys, r.entries = append(r.keys, k), append(r.entries, e)
			r.commit()
			return
		}
	}
	r.t.Fatalf("no VIP at %v", a)
}

// quotedFragment is a later fragment of what the VIP sent to c.
func quotedFragment(c netip.AddrPort) []byte {
	s := segment(c, 0, nil)
	return wire.IP{Src: s.Dst.Addr(), Dst: c.Addr(), Protocol: wire.ProtoTCP, FragmentOffset: 185, Payload: make([]byte, 64)}.Packet()
}

// joins turns the rig's address entry of a into that of an MPTCP VIP, which is
// the one of a on TCP.
func (r *rig) joins(a netip.Addr) (hash uint64) {
	r.t.Helper()
	var v bpf.VIP
	for i, k := range r.keys {
		if k.Addr == a && k.Proto == wire.ProtoTCP {
			v = r.entries[i]
		}
	}
	if v.Id == 0 {
		r.t.Fatalf("no VIP at %v", a)
	}
	hash = joinHash(a)
	for i, k := range r.keys {
		if k.Addr == a && (k.Proto == wire.ProtoICMP || k.Proto == wire.ProtoICMPv6) {
			e := v
			e.Flags |= uint8(bpf.VIPJoin | bpf.VIPAddressEntry)
			e.Port, e.Proto, e.JoinHash = 0, k.Proto, hash
			r.entries[i] = e
		}
	}
	r.commit()
	return hash
}

// joinHash is what permutes the ports of the joins to port 80 of a.
func joinHash(a netip.Addr) uint64 {
	w, key := words(a), rigHash
	return hash.IPv6(&key, w[0], w[1], uint32(tables.Key{Port: 80}.PortBE())<<16)
}

// joinPort is the port of the joins to a slot.
func joinPort(hash uint64, slot uint32) uint16 {
	return 1<<15 | uint16(cheetah.Layout{Bits: 16}.Encode(hash, slot, 0))
}

// muxFixtures is a frame of each kind that a mux forwards.
func muxFixtures(c netip.AddrPort) map[string][]byte {
	s := segment(c, wire.ACK, wire.Timestamp(7, 8))
	s.Payload = []byte("payload")
	join := s
	a := s.Dst.Addr()
	join.Dst = netip.AddrPortFrom(a, joinPort(joinHash(a), 2))
	tagged, with := s, s
	tagged.VLAN = 42
	if c.Addr().Is6() {
		with.IP.Extensions = []wire.Extension{{Type: wire.ProtoHopByHop}, {Type: wire.ProtoDestOptions}}
	} else {
		with.IP.Options = wire.NOPs(8)
	}
	return map[string][]byte{
		"segment": s.Frame(), "tagged": tagged.Frame(), "options": with.Frame(), "join": join.Frame(),
		"SYN":      segment(c, wire.SYN, wire.SYNOptions(1460, 9)).Frame(),
		"datagram": wire.UDP{Src: c, Dst: s.Dst, Payload: []byte("datagram")}.Frame(),
		"QUIC":     wire.UDP{Src: c, Dst: s.Dst, Payload: wire.QUICInitial(wire.QUIC1, 1, 1200)}.Frame(),
		"error":    quoting(c, reply(c, wire.Timestamp(1, 2)).Packet(), header(c)+40).Frame(),
	}
}

// onOneCPU runs f on one CPU: what packets leave behind by CPU is then one.
func onOneCPU(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	f()
}

// randomMuxed is a packet of a connection of c's, and under which reason it
// counts.
func randomMuxed(random *rand.Rand, c netip.AddrPort) (frame []byte, want bpf.Reason) {
	const known = bpf.ReasonCount
	s := segment(c, wire.ACK, wire.Timestamp(random.Uint32(), random.Uint32()))
	s.IP.TOS, s.Payload = uint8(random.Uint32()), make([]byte, random.IntN(600))
	s.VLAN = []uint16{0, 42}[random.IntN(2)]
	u := wire.UDP{Src: s.Src, Dst: s.Dst, Payload: s.Payload, VLAN: s.VLAN, NoChecksum: c.Addr().Is4() && random.IntN(2) == 1}
	switch random.IntN(6) {
	case 0:
		s.Flags, s.Options = wire.SYN, wire.SYNOptions(1460, 1)
		return s.Frame(), bpf.ForwardNew
	case 1:
		if c.Addr().Is6() {
			s.IP.Extensions = []wire.Extension{{Type: wire.ProtoDestOptions}}
			s.IP.Atomic = random.IntN(2) == 1
		} else {
			s.IP.Options = wire.NOPs(4 * random.IntN(11))
		}
		return s.Frame(), known
	case 2:
		return u.Frame(), known
	case 3:
		u.Payload = wire.QUICInitial(wire.QUIC1, random.Uint64(), 1200)
		return u.Frame(), bpf.ForwardNew
	case 4:
		q := s
		q.Src, q.Dst, q.IP.TOS = s.Dst, s.Src, 0
		e := quoting(c, q.Packet(), header(c)+8+random.IntN(12))
		return e.Frame(), bpf.ForwardICMP
	}
	s.Flags = uint8(random.Uint32())&^wire.SYN | wire.ACK
	return s.Frame(), known
}
