package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// The octets of docs/wire-format.md, so that builder and parser cannot be wrong
// together.
func TestHopsOctets(t *testing.T) {
	h := NewHops(0x01020304, 7, 5, 0x0102)
	const want = "9e10" + "0005" + "0102" + "ffff" + "01020304" + "00000007"
	if got := hex.EncodeToString(h.Append(nil)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if c := h.Chain(); len(c) != 2 || c[0] != 5 || c[1] != 0x0102 {
		t.Errorf("chain %v", c)
	}
	inner := TCP{Src: c4, Dst: v4, Flags: ACK}.Packet()
	o := Outer{Tunnel: IPIP, Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Hops: &h}
	const want6 = "0402" + "010400000000" + "1e0e" + "0005" + "0102" + "ffff" + "01020304" + "00000007"
	if got := hex.EncodeToString(o.Encapsulate(inner)[40:64]); got != want6 {
		t.Errorf("destination options %s, want %s", got, want6)
	}
}

func TestHopsRefused(t *testing.T) {
	whole := NewHops(1, 2, 3).Append(nil)
	for n := range whole {
		if _, err := ParseHops(whole[:n]); err == nil {
			t.Errorf("%d of %d octets parse", n, len(whole))
		}
	}
	for at := range 2 {
		b := bytes.Clone(whole)
		b[at] ^= 1
		if _, err := ParseHops(b); err == nil {
			t.Errorf("octet %d wrong: parses", at)
		}
	}
}

// Every carrier brings hops and packet through as they were, with right
// checksums; cut anywhere, no carrier says that it is whole.
func TestHopsCarried(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slot := rapid.Uint16Range(0, NoServer-1)
		h := NewHops(rapid.Uint32().Draw(t, "time"), rapid.Uint32().Draw(t, "generation"),
			rapid.SliceOfN(slot, 0, HopsChain).Draw(t, "chain")...)
		o := Outer{Tunnel: rapid.SampledFrom(Tunnels()).Draw(t, "tunnel"), Src: netip.MustParseAddr("10.0.0.1"),
			Dst: netip.MustParseAddr("10.0.0.2"), Checksum: rapid.Bool().Draw(t, "checksum"), Hops: &h}
		if rapid.Bool().Draw(t, "ipv6") {
			o.Src, o.Dst = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		}
		frame, _ := drawFrame(t)
		in := Parse(frame).Packet()
		packet := o.Encapsulate(in)
		if bad := ParsePacket(packet).ChecksumErrors(); len(bad) > 0 {
			t.Fatalf("wrong checksums: %v", bad)
		}
		got, from, err := Decapsulate(packet)
		if err != nil || !bytes.Equal(got, in) {
			t.Fatalf("%v: %x", err, got)
		}
		if from.Hops == nil || *from.Hops != h {
			t.Fatalf("hops %+v, want %+v", from.Hops, h)
		}
		for n := range packet {
			if _, _, err := Decapsulate(packet[:n]); err == nil {
				t.Fatalf("cut at %d of %d: no error", n, len(packet))
			}
		}
	})
}

// Options and extension headers that are not hops are none; a GUE header with flags,
// or with private data that is not hops, is none of ours, as for the program.
func TestNoHops(t *testing.T) {
	inner := TCP{Src: c4, Dst: v4, Flags: ACK}.Packet()
	a4, b4 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	a6, b6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	other := make([]byte, 22)
	for i, p := range [][]byte{
		Outer{Src: a4, Dst: b4}.Encapsulate(inner),
		Outer{Src: a4, Dst: b4, IP: IP{Options: NOPs(16)}}.Encapsulate(inner),
		Outer{Src: a6, Dst: b6, IP: IP{Extensions: []Extension{{ProtoDestOptions, other}}}}.Encapsulate(inner),
		Outer{Src: a6, Dst: b6, IP: IP{Extensions: []Extension{{ProtoHopByHop, other}}}}.Encapsulate(inner),
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			got, o, err := Decapsulate(p)
			if err != nil || o.Hops != nil || !bytes.Equal(got, inner) {
				t.Errorf("%v %+v %x", err, o.Hops, got)
			}
		})
	}
	for _, header := range [][]byte{append([]byte{4, ProtoIPIP, 0, 0}, make([]byte, 16)...), {0, ProtoIPIP, 0, 1}, {0, ProtoIPIP, 0x80, 0}} {
		p := UDP{Src: netip.AddrPortFrom(a4, 1), Dst: netip.AddrPortFrom(b4, GUE.Port()), Payload: append(header, inner...)}.Packet()
		if _, _, err := Decapsulate(p); err == nil {
			t.Errorf("GUE header %x is taken", header)
		}
	}
}
