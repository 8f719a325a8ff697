package lb

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	schemebeamer "github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// The mux of scheme beamer, packet by packet, over rows that are written by
// hand.

// TestBeamerForwardings sends both families by every forwarding that takes hops
// to servers of both families, tagged or not, with chains of 0 to 3.
func TestBeamerForwardings(t *testing.T) {
	for _, sum := range []bool{false, true} {
		for name, f := range tunnels() {
			for _, six := range []bool{false, true} {
				for _, tagOut := range []uint16{0, 77} {
					t.Run(fmt.Sprintf("%s IPv6 %v tag %d sum %v", name, six, tagOut, sum), func(t *testing.T) {
						r := mux(t, sum, 7, muxServers(f, six, tagOut), 0)
						for _, a := range []netip.Addr{client4.Addr(), client6.Addr()} {
							for b := range muxBuckets {
								for _, tagIn := range []uint16{0, 42} {
									for _, n := range []int{0, 3, 1000} {
										c := clientOf(t, a, b)
										s := segment(c, wire.ACK, wire.Timestamp(7, 8))
										s.VLAN, s.Payload, s.IP.TOS = tagIn, bytes.Repeat([]byte("x"), n), 0xbb
										o := r.expectHops(s.Frame(), bpf.ReasonCount, muxBuckets[b].current, muxBuckets[b].hops(7), tagOut)
										if string(o.Tunnel) != name || o.TOS != 0xbb || o.TTL != 64 ||
											wire.Tunnel(name).Port() != 0 && (o.Checksum != (sum && six) || o.SrcPort < 49152) {
											t.Fatalf("tunnel %+v", o)
										}
									}
								}
							}
						}
					})
				}
			}
		}
	}
}

// TestBeamerOpens: openings and what follows go by the bucket alike; openings
// are counted, of TCP open connections too.
func TestBeamerOpens(t *testing.T) {
	r := mux(t, false, 1, muxServers(bpf.FwdIPIP, false, 0), 0)
	opened := map[uint32]uint64{}
	for family, a := range []netip.Addr{client4.Addr(), client6.Addr()} {
		for b, bucket := range muxBuckets {
			c := clientOf(t, a, b)
			syn := segment(c, wire.SYN, wire.SYNOptions(1460, 9))
			r.expectHops(syn.Frame(), bpf.ForwardNew, bucket.current, bucket.hops(1), 0)
			r.expectHops(segment(c, wire.SYN|wire.ACK, nil).Frame(), bpf.ReasonCount, bucket.current, bucket.hops(1), 0)
			r.expectHops(segment(c, wire.ACK, nil).Frame(), bpf.ReasonCount, bucket.current, bucket.hops(1), 0)
			for version, want := range map[uint32]bpf.Reason{wire.QUIC1: bpf.ForwardNew, wire.QUIC2: bpf.ForwardNew, 3: bpf.ReasonCount} {
				u := wire.UDP{Src: c, Dst: syn.Dst, Payload: wire.QUICInitial(version, 1, 1200)}
				r.expectHops(u.Frame(), want, bucket.current, bucket.hops(1), 0)
			}
			opened[uint32(1+10*family)+uint32(bucket.current)]++
			opened[uint32(6+10*family)+uint32(bucket.current)] += 2
		}
	}
	for line, n := range opened {
		// Datagrams do not end, so that they do not count as open.
		open := int32(0)
		if (line-1)/5%2 == 0 {
			open = int32(n)
		}
		if got := r.line(line); got.Opened != n || r.conns(line) != open {
			t.Errorf("line %d: %d opened, %d open; want %d and %d", line, got.Opened, r.conns(line), n, open)
		}
	}
	c := clientOf(t, client4.Addr(), 0)
	before := r.conns(1)
	r.expectHops(segment(c, wire.FIN|wire.ACK, nil).Frame(), bpf.ReasonCount, 0, muxBuckets[0].hops(1), 0)
	if n := r.conns(1); n != before-1 {
		t.Errorf("%d open behind a FIN, %d before", n, before)
	}
	for i := range uint32(rigFlows) {
		var b bpf.FlowSet
		if err := r.o.Flows.Lookup(i, &b); err != nil || b != (bpf.FlowSet{}) {
			t.Fatalf("something was remembered: %+v, %v", b, err)
		}
	}
}

// TestBeamerGenerations: hops carry the table's, in every bucket.
func TestBeamerGenerations(t *testing.T) {
	r := mux(t, false, 1, muxServers(bpf.FwdGUE, false, 0), 0)
	for _, g := range []uint32{0, 1, 0x01020304, 1 << 31, 1<<32 - 1} {
		for i := range r.entries {
			r.entries[i].Generation = g
		}
		r.commit()
		for b, bucket := range muxBuckets {
			c := clientOf(t, client4.Addr(), b)
			r.expectHops(segment(c, wire.ACK, nil).Frame(), bpf.ReasonCount, bucket.current, bucket.hops(g), 0)
		}
	}
}

// TestBeamerNobody: rows that lead to no server, whoever wrote them.
func TestBeamerNobody(t *testing.T) {
	for name, row := range map[string]uint64{
		"no server":             0xffff,
		"a slot without a line": 5,
		"a slot beyond":         1000,
		"chain, no server":      bpf.BucketMoved,
	} {
		r := newRig(t)
		r.addBeamer(rigVIP{addr: vip4, port: 80, proto: wire.ProtoTCP,
			servers: append(muxServers(bpf.FwdIPIP, false, 0), bpf.Line{})}, 1, []rigBucket{{current: 0}})
		r.address(vip4, 0)
		words := r.entries[0].HashTable + uint32(tables.WordsAt(1))
		if err := errors.Join(r.o.Tables.Put(r.entries[0].HashTable, row), r.o.Tables.Put(words, ^uint64(0))); err != nil {
			t.Fatal(err)
		}
		r.commit()
		r.drops(name, segment(client4, wire.SYN, nil).Frame(), bpf.DropNoServer)
		r.drops(name, segment(client4, wire.ACK, nil).Frame(), bpf.DropNoServer)
	}
	for name, v := range map[string]bpf.VIP{
		"no bucket":             {},
		"a table beyond":        {HashTable: 1 << 31, HashSize: 8},
		"rows at the map's end": {HashTable: rigTables - 1, HashSize: 4096},
	} {
		r := mux(t, false, 1, muxServers(bpf.FwdIPIP, false, 0), 0)
		for i := range r.entries {
			r.entries[i].HashTable, r.entries[i].HashSize, r.entries[i].NewSize = v.HashTable, v.HashSize, v.HashSize
		}
		if err := r.o.Tables.Put(uint32(rigTables-1), ^uint64(0)>>1&^0x0001_0001_0001_0001); err != nil {
			t.Fatal(err)
		}
		r.commit()
		for port := range uint16(32) {
			r.drops(name, segment(netip.AddrPortFrom(client4.Addr(), 1000+port), wire.ACK, nil).Frame(), bpf.DropNoServer)
		}
	}
}

// TestBeamerAffinity: by address, all of a client's connections are of one
// bucket, and so are its fragments where these are taken.
func TestBeamerAffinity(t *testing.T) {
	for _, flag := range []bpf.VIPFlags{bpf.VIPAffinity, bpf.VIPFragAddresses} {
		r := mux(t, false, 3, muxServers(bpf.FwdIPIP, false, 0), uint8(flag))
		for _, c := range []netip.AddrPort{client4, client6} {
			bucket := muxBuckets[hash.Row(hash.Flow(rigHash, c, 80, false), len(muxBuckets))]
			for port := range uint16(8) {
				s := segment(netip.AddrPortFrom(c.Addr(), 2000+port), wire.ACK, nil)
				r.expectHops(s.Frame(), bpf.ReasonCount, bucket.current, bucket.hops(3), 0)
			}
		}
		if flag == bpf.VIPFragAddresses {
			r.fragmentsOf(vip4, wire.ProtoTCP)
			bucket := muxBuckets[hash.Row(hash.Flow(rigHash, client4, 80, false), len(muxBuckets))]
			ip := wire.IP{Src: client4.Addr(), Dst: vip4, Protocol: wire.ProtoTCP, FragmentOffset: 8, Payload: make([]byte, 64)}
			r.expectHops(wire.Link{}.Frame(ip.Packet()), bpf.ForwardFragment, bucket.current, bucket.hops(3), 0)
			// An error about a later fragment of an answer finds it, too.
			e := quoting(client4, quotedFragment(client4), 64)
			r.expectHops(e.Frame(), bpf.ForwardFragment, bucket.current, bucket.hops(3), 0)
		}
	}
}

// TestBeamerICMP: errors go by the quoted connection's bucket, with its hops.
func TestBeamerICMP(t *testing.T) {
	r := mux(t, false, 9, muxServers(bpf.FwdGUE, true, 0), 0)
	for _, a := range []netip.Addr{client4.Addr(), client6.Addr()} {
		for b, bucket := range muxBuckets {
			c := clientOf(t, a, b)
			for _, n := range []int{8, 20, 60} { // eight octets name the bucket: nobody is asked
				e := quoting(c, reply(c, wire.Timestamp(1, 2)).Packet(), header(c)+n)
				r.expectHops(e.Frame(), bpf.ForwardICMP, bucket.current, bucket.hops(9), 0)
			}
			q := wire.UDP{Src: segment(c, 0, nil).Dst, Dst: c, Payload: make([]byte, 100)}.Packet()
			r.expectHops(quoting(c, q, 0).Frame(), bpf.ForwardICMP, bucket.current, bucket.hops(9), 0)
		}
	}
}

// TestBeamerICMPAsked: an error that names no bucket is asked about, of one
// source at most a third of what may be.
func TestBeamerICMPAsked(t *testing.T) {
	for _, c := range []netip.AddrPort{client4, client6} {
		r := mux(t, false, 1, muxServers(bpf.FwdIPIP, false, 0), 0)
		a := segment(c, 0, nil).Dst.Addr()
		// Fragments are not taken here; an error about one does not need that.
		r.fragmentsOf(a, wire.ProtoTCP)
		ip := wire.IP{Src: c.Addr(), Dst: a, Protocol: wire.ProtoTCP, FragmentOffset: 8, Payload: make([]byte, 64)}
		r.drops("fragment", wire.Link{}.Frame(ip.Packet()), bpf.DropFragment)
		asked := map[netip.Addr]int{}
		e := quoting(c, quotedFragment(c), 80)
		other := e.Src.Next()
		if other.Is6() {
			other = sixth(1) // of another network
		}
		onOneCPU(t, func() {
			for _, src := range []netip.Addr{e.Src, other} {
				e.Src = src
				for range 6 {
					reason, action, _ := r.why(e.Frame())
					if reason != bpf.AskICMP && reason != bpf.DropAskLimit || action != xdpDrop {
						t.Fatalf("reason %d action %d", reason, action)
					}
					if reason == bpf.AskICMP {
						asked[src]++
					}
				}
			}
		})
		// Five a second (setClock): two of them for one source.
		if asked[router4]+asked[router6] != 2 || asked[other] != 2 {
			t.Errorf("%v: asked %v, want 2 of each source", c, asked)
		}
	}
}

// TestBeamerJoins: a join goes to the server that its port names, whatever the
// bucket of its own tuple, with an empty chain.
func TestBeamerJoins(t *testing.T) {
	for _, c := range []netip.AddrPort{client4, client6} {
		r := mux(t, false, 6, muxServers(bpf.FwdIPIP, c.Addr().Is6(), 0), 0)
		before := segment(c, wire.SYN, nil)
		before.Dst = netip.AddrPortFrom(before.Dst.Addr(), 40000)
		if reason, action, _ := r.why(before.Frame()); reason != bpf.PassVIPOther || action != xdpPass {
			t.Errorf("without joins: reason %d action %d", reason, action)
		}
		hash := r.joins(segment(c, 0, nil).Dst.Addr())
		named := map[uint16]bool{}
		for slot := range uint32(5) {
			port := joinPort(hash, slot)
			named[port] = true
			for i := range uint16(20) {
				from := netip.AddrPortFrom(c.Addr(), 3000+i)
				s := segment(from, wire.SYN, wire.SYNOptions(1460, 9))
				s.Dst = netip.AddrPortFrom(s.Dst.Addr(), port)
				r.expectHops(s.Frame(), bpf.ForwardNew, uint16(slot), wire.NewHops(0, 6), 0)
				s.Flags = wire.ACK
				r.expectHops(s.Frame(), bpf.ReasonCount, uint16(slot), wire.NewHops(0, 6), 0)
				q := s
				q.Src, q.Dst = s.Dst, s.Src
				e := quoting(from, q.Packet(), 0)
				r.expectHops(e.Frame(), bpf.ForwardICMP, uint16(slot), wire.NewHops(0, 6), 0)
			}
		}
		passed := 0
		for port := 32768; port < 65536; port += 97 {
			s := segment(c, wire.SYN, nil)
			s.Dst = netip.AddrPortFrom(s.Dst.Addr(), uint16(port))
			if named[uint16(port)] {
				continue
			}
			passed++
			r.drops("a port that no server has", s.Frame(), bpf.DropNoServer)
			// What is too big is answered as at any other.
			s.IP.DontFragment, s.Payload = true, make([]byte, 1600)
			if reason, action, _ := r.why(s.Frame()); reason != bpf.ReplyTooBig || action != xdpTX {
				t.Errorf("port %d, too big: reason %d action %d", port, reason, action)
			}
		}
		if passed < 300 {
			t.Errorf("%d ports tried", passed)
		}
		for what, frame := range map[string][]byte{
			"a low port": func() []byte {
				s := segment(c, wire.SYN, nil)
				s.Dst = netip.AddrPortFrom(s.Dst.Addr(), 32767)
				return s.Frame()
			}(),
			"UDP": wire.UDP{Src: c, Dst: netip.AddrPortFrom(segment(c, 0, nil).Dst.Addr(), joinPort(hash, 1))}.Frame(),
		} {
			if reason, action, _ := r.why(frame); reason != bpf.PassVIPOther || action != xdpPass {
				t.Errorf("%s: reason %d action %d", what, reason, action)
			}
		}
	}
}

// TestBeamerEdgeOfMTU: hops do not count twice, and what does not fit is answered.
func TestBeamerEdgeOfMTU(t *testing.T) {
	for _, f := range tunnels() {
		r := mux(t, false, 1, muxServers(f, false, 0), 0)
		for extra, want := range []bpf.Reason{bpf.ReasonCount, bpf.ReplyTooBig} {
			s := segment(client4, wire.ACK, nil)
			s.IP.DontFragment, s.Payload = true, make([]byte, 1500-40+extra)
			if reason, action, _ := r.why(s.Frame()); reason != want || action != xdpTX {
				t.Errorf("%d bytes: reason %d action %d, want reason %d", 1500+extra, reason, action, want)
			}
		}
	}
}

// TestBeamerTruncated cuts one packet of each kind at every byte, for every
// forwarding: what is not whole is forwarded by none.
func TestBeamerTruncated(t *testing.T) {
	for _, f := range tunnels() {
		for _, six := range []bool{false, true} {
			r := mux(t, true, 1, muxServers(f, six, 0), 0)
			for _, c := range []netip.AddrPort{client4, client6} {
				r.joins(segment(c, 0, nil).Dst.Addr())
				for what, frame := range muxFixtures(c) {
					if _, action, _ := r.why(frame); action != xdpTX {
						t.Fatalf("%s: action %d", what, action)
					}
					// A test run takes no frame without a whole Ethernet header.
					for n := wire.EthernetLen; n < len(frame); n++ {
						action, out := r.run(bytes.Clone(frame[:n]))
						if action != xdpDrop && action != xdpPass || len(out) != n {
							t.Fatalf("%s of %v cut at %d of %d: action %d", what, c, n, len(frame), action)
						}
					}
				}
			}
		}
	}
}

// TestBeamerRandom: random tables, packets, forwardings and generations go where
// the rows say, with what the rows say; and bytes changed at random never lead
// to anything but a verdict.
func TestBeamerRandom(t *testing.T) {
	seed := soak.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	names := slices.Sorted(maps.Keys(tunnels()))
	for range 40 {
		tag := []uint16{0, 77}[random.IntN(2)]
		servers := muxServers(tunnels()[names[random.IntN(len(names))]], random.IntN(2) == 1, tag)
		table := make(rigBuckets, 1+random.IntN(150))
		for b := range table {
			table[b] = rigBucket{current: uint16(random.IntN(5)), time: random.Uint32()}
			for range random.IntN(wire.HopsChain + 1) {
				table[b].previous = append(table[b].previous, uint16(random.IntN(wire.NoServer)))
			}
		}
		generation := random.Uint32()
		r := newRigOf(t, random.IntN(2) == 1)
		for _, a := range []netip.Addr{vip4, vip6} {
			for _, proto := range []uint8{wire.ProtoTCP, wire.ProtoUDP} {
				r.addBeamer(rigVIP{addr: a, port: 80, proto: proto, servers: servers}, generation, table)
			}
			r.address(a, 0)
		}
		r.commit()
		for range 200 {
			c := netip.AddrPortFrom(client4.Addr(), uint16(random.Uint32()))
			if random.IntN(2) == 1 {
				c = netip.AddrPortFrom(client6.Addr(), c.Port())
			}
			frame, want := randomMuxed(random, c)
			slot, hops, ok := schemebeamer.Way(table, hash.Flow(rigHash, c, 80, true), generation)
			if !ok {
				t.Fatalf("seed %d: by the model nobody has %v's bucket", seed, c)
			}
			r.expectHops(frame, want, uint16(slot), hops, tag)
			for range 1 + random.IntN(4) {
				frame[wire.EthernetLen+random.IntN(len(frame)-wire.EthernetLen)] = byte(random.Uint32())
			}
			frame = frame[:wire.EthernetLen+random.IntN(len(frame)-wire.EthernetLen+1)]
			if _, action, _ := r.why(frame); action == xdpAborted || action == xdpRedirect {
				t.Fatalf("seed %d: action %d for % x", seed, action, frame)
			}
		}
	}
}
