package host

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// Whatever is cut off, nothing is passed on or decapsulated that is not there.
func TestOwnTruncatedAtEveryByte(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	test := func(c *client, name string, packet []byte) {
		for _, tag := range []uint16{0, 42} {
			c.tag = tag
			whole := c.frame(second, packet, 1)
			for cut := 14; cut < len(whole); cut++ {
				frame := whole[:cut]
				verdict, out := second.run(frame)
				if verdict == xdpTX || verdict == xdpPass && !bytes.Equal(out, frame) {
					t.Errorf("%s, %s, tag %d: %d of %d bytes: verdict %d\n in  %x\n out %x", c.by.name, name, tag, cut, len(whole), verdict, frame, out)
				}
			}
			if verdict, _ := second.run(whole); verdict != xdpTX {
				t.Errorf("%s, %s, tag %d: the whole: verdict %d", c.by.name, name, tag, verdict)
			}
		}
	}
	eachDelivery(t, n, func(c *client) {
		test(c, "tcp", c.segment(wire.ACK, "hello"))
		test(c, "options", wire.TCP{Src: c.addr, Dst: c.vip, Flags: wire.ACK, Options: wire.Timestamp(1, 2)}.Packet())
		test(c, "udp", wire.UDP{Src: c.addr, Dst: netip.AddrPortFrom(c.vip.Addr(), 443), Payload: []byte("hello")}.Packet())
		if c.by.outer != 0 {
			test(c, "icmp", c.icmp(wire.TCP{Src: c.vip, Dst: c.addr, Flags: wire.ACK}.Packet()))
		}
	})
}

// icmp is a router's error about a packet that a server sent to the client.
func (c *client) icmp(quoted []byte) []byte {
	e := wire.ICMPError{Src: router4, Dst: c.vip.Addr(), Type: 3, Code: 4, MTU: 1300, Quoted: quoted}
	if c.vip.Addr().Is6() {
		e.Src, e.Type, e.Code = router6, 2, 0
	}
	return e.Packet()
}

// Bits that flip: never an error of the program, never a larger packet, and
// what goes on to another server is a tunnel that this one would have taken.
func TestOwnDamaged(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	var frames [][]byte
	eachDelivery(t, n, func(c *client) {
		quoted := wire.TCP{Src: c.vip, Dst: c.addr, Flags: wire.ACK}.Packet()
		for _, packet := range [][]byte{c.segment(wire.ACK, "hello"), c.segment(wire.SYN, ""), c.icmp(quoted),
			wire.UDP{Src: c.addr, Dst: netip.AddrPortFrom(c.vip.Addr(), 443), Payload: []byte("hello")}.Packet()} {
			for _, chain := range [][]uint16{nil, {1}, {900, 1}, {2}} {
				frames = append(frames, c.frame(second, packet, chain...))
			}
		}
	})
	for i := range 40_000 {
		frame := bytes.Clone(frames[r.IntN(len(frames))])
		for range 1 + r.IntN(3) {
			frame[r.IntN(min(len(frame), 110))] ^= byte(1 << r.IntN(8))
		}
		if r.IntN(4) == 0 {
			frame = frame[:14+r.IntN(len(frame)-14)]
		}
		verdict, out := second.run(frame)
		bad := len(out) > len(frame) || verdict > xdpTX || verdict == 0
		if verdict == xdpTX {
			_, faild, _ := wire.DecodeFaild(wire.MAC(out[:6]))
			bad = bad || len(out) != len(frame) && binary.BigEndian.Uint16(frame[12:]) != wire.EtherTypeVLAN
			if p := wire.Parse(out); !faild && p.Src != second.addr(p.Src.Is6()) {
				bad = true
			}
		}
		if bad {
			t.Fatalf("seed %d, %d: verdict %d\n in  %x\n out %x", seed, i, verdict, frame, out)
		}
	}
}

// Each bit between UDP's header and the chain is looked at: what the codec does not
// take for a tunnel with hops is passed as it came.
func TestOwnDamagedShim(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	second := n.hosts[1]
	eachTunnel(t, n, func(c *client) {
		if c.by.over.Port() == 0 {
			return
		}
		packet := c.segment(wire.ACK, "hello")
		whole := c.frame(second, packet, 1)
		udp := wire.Parse(whole).L4
		for at := udp + 8; at < len(whole)-len(packet)-wire.HopsBytes+2; at++ {
			for bit := range 8 {
				frame := bytes.Clone(whole)
				frame[at] ^= 1 << bit
				if _, _, err := wire.Decapsulate(wire.Parse(frame).Packet()); err == nil {
					t.Errorf("%s: octet %d, bit %d: the codec takes it", c.by.name, at-udp, bit)
				}
				if verdict, out := second.run(frame); verdict != xdpPass || !bytes.Equal(out, frame) {
					t.Errorf("%s: octet %d, bit %d: verdict %d, %x", c.by.name, at-udp, bit, verdict, out)
				}
			}
		}
	})
}
