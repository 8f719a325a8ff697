package wire

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	c4 = netip.MustParseAddrPort("203.0.113.7:4711")
	v4 = netip.MustParseAddrPort("192.0.2.10:80")
	c6 = netip.MustParseAddrPort("[2001:db8:1::7]:4711")
	v6 = netip.MustParseAddrPort("[2001:db8:2::10]:443")
)

// A checksum known from RFC 1071's own example, so that builder and checker
// cannot be wrong together.
func TestChecksumOfRFC1071(t *testing.T) {
	if got := Checksum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}); got != ^uint16(0xddf2) {
		t.Errorf("%#x, want %#x", got, ^uint16(0xddf2))
	}
}

func drawFrame(t *rapid.T) (frame []byte, kind string) {
	src, dst := c4, v4
	ip := IP{TTL: rapid.Uint8Range(1, 255).Draw(t, "ttl"), TOS: rapid.Uint8().Draw(t, "tos")}
	if rapid.Bool().Draw(t, "ipv6") {
		src, dst = c6, v6
		for range rapid.IntRange(0, 3).Draw(t, "extensions") {
			ip.Extensions = append(ip.Extensions, Extension{
				Type: rapid.SampledFrom([]uint8{ProtoHopByHop, ProtoRouting, ProtoDestOptions}).Draw(t, "type"),
				Body: rapid.SliceOfN(rapid.Byte(), 6, 30).Draw(t, "body")})
		}
		ip.Atomic = rapid.Bool().Draw(t, "atomic")
	} else {
		ip.Options = NOPs(rapid.IntRange(0, 40).Draw(t, "options"))
	}
	vlan := rapid.SampledFrom([]uint16{0, 1, 4094}).Draw(t, "vlan")
	payload := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")
	switch kind = rapid.SampledFrom([]string{"tcp", "udp", "icmp", "error"}).Draw(t, "kind"); kind {
	case "tcp":
		return TCP{Src: src, Dst: dst, Flags: ACK, Options: Timestamp(1, 2), Payload: payload, VLAN: vlan, IP: ip}.Frame(), kind
	case "udp":
		return UDP{Src: src, Dst: dst, Payload: payload, VLAN: vlan, IP: ip}.Frame(), kind
	case "icmp":
		m := Echo(src.Addr(), dst.Addr(), 1, 2, payload, false)
		m.VLAN, m.IP = vlan, ip
		return m.Frame(), kind
	default:
		q := TCP{Src: dst, Dst: src, Flags: ACK, Options: Timestamp(7, 8), Payload: payload}.Packet()
		e := ICMPError{Src: src.Addr(), Dst: dst.Addr(), Type: ICMPUnreachable, Code: ICMPFragNeeded, MTU: 1400, Quoted: q,
			QuoteBytes: len(q), VLAN: vlan, IP: ip}
		if !src.Addr().Is4() {
			e.Type, e.Code = ICMPv6TooBig, 0
		}
		return e.Frame(), kind
	}
}

// What is built parses without error, with right checksums; cut anywhere it
// is refused and never panics.
func TestBuiltParses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, kind := drawFrame(t)
		p := Parse(f)
		if p.Err != nil {
			t.Fatalf("%v", p.Err)
		}
		if w := p.ChecksumErrors(); len(w) > 0 {
			t.Fatalf("wrong checksums: %v", w)
		}
		if kind == "tcp" && (p.Timestamp == nil || p.Timestamp.Val != 1 || p.Timestamp.Ecr != 2) {
			t.Fatalf("timestamp %+v", p.Timestamp)
		}
		if kind == "error" && (p.Quoted == nil || p.Quoted.Err != nil || p.Quoted.Timestamp.Val != 7 || p.Quoted.Dst != p.Src) {
			t.Fatalf("quoted %+v", p.Quoted)
		}
		for n := range len(f) {
			if Parse(f[:n]).Err == nil {
				t.Fatalf("cut at %d of %d: no error", n, len(f))
			}
		}
		padded := Parse(append(bytes.Clone(f), 1, 2, 3))
		if padded.Err != nil || len(padded.Packet()) != len(f)-p.L3 {
			t.Fatalf("padding: %v", padded.Err)
		}
	})
}

func TestTunnels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, _ := drawFrame(t)
		inner := Parse(f).Packet()
		o := Outer{Tunnel: rapid.SampledFrom(Tunnels()).Draw(t, "tunnel"), Src: c4.Addr(), Dst: v4.Addr(), TTL: 64}
		if rapid.Bool().Draw(t, "outer ipv6") {
			o.Src, o.Dst = c6.Addr(), v6.Addr()
		}
		if o.Tunnel.Port() != 0 {
			o.SrcPort, o.Checksum = 50000, rapid.Bool().Draw(t, "checksum")
		}
		packet := o.Encapsulate(inner)
		if w := ParsePacket(packet).ChecksumErrors(); len(w) > 0 {
			t.Fatalf("wrong checksums: %v", w)
		}
		got, outer, err := Decapsulate(packet)
		if err != nil || !bytes.Equal(got, inner) {
			t.Fatalf("%v, %d bytes of %d", err, len(got), len(inner))
		}
		if outer.Tunnel != o.Tunnel || outer.Src != o.Src || outer.Dst != o.Dst || outer.SrcPort != o.SrcPort || outer.Checksum != o.Checksum {
			t.Fatalf("outer %+v, want %+v", outer, o)
		}
	})
}

func TestOptionErrors(t *testing.T) {
	for name, c := range map[string]struct {
		options []byte
		want    string // "" valid with timestamp, "-" valid without
	}{
		"plain":             {Timestamp(1, 2), ""},
		"syn":               {SYNOptions(1460, 1), ""},
		"last byte":         {append(NOPs(30), BareTimestamp(1, 2)...), ""},
		"odd":               {append(NOPs(1), BareTimestamp(1, 2)...), ""},
		"40 nops":           {NOPs(40), "-"},
		"behind the end":    {append([]byte{0, 0}, BareTimestamp(1, 2)...), "-"},
		"none":              {nil, "-"},
		"length 0":          {[]byte{OptionSACK, 0, 0, 0}, "at least 2"},
		"length 1":          {[]byte{OptionSACK, 1, 0, 0}, "at least 2"},
		"past the end":      {[]byte{OptionSACK, 9, 0, 0}, "past the end"},
		"no length":         {[]byte{1, 1, 1, OptionSACK}, "no length"},
		"timestamp of 9":    {[]byte{OptionTimestamp, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "not 10"},
		"bad behind a good": {append(Timestamp(1, 2), 5, 1, 0, 0), "at least 2"},
	} {
		_, ok, err := FindTimestamp(c.options)
		switch {
		case c.want == "" && (err != nil || !ok), c.want == "-" && (err != nil || ok):
			t.Errorf("%s: %v %v", name, ok, err)
		case len(c.want) > 1 && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestPcap(t *testing.T) {
	frames := []Captured{
		{time.Unix(1, 5).UTC(), TCP{Src: c4, Dst: v4, Flags: SYN}.Frame(), 54},
		{time.Unix(2, 0).UTC(), UDP{Src: c6, Dst: v6}.Frame(), 100},
	}
	var b bytes.Buffer
	if err := WritePcap(&b, frames); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	got, err := ReadPcap(bytes.NewReader(whole))
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %d frames", err, len(got))
	}
	for i := range got {
		if !got[i].Time.Equal(frames[i].Time) || !bytes.Equal(got[i].Frame, frames[i].Frame) || got[i].Length != frames[i].Length {
			t.Errorf("frame %d differs: %+v", i, got[i])
		}
	}
	if _, err := ReadPcap(bytes.NewReader(whole[:len(whole)-1])); err == nil {
		t.Error("a cut file is read without error")
	}
	if _, err := ReadPcap(strings.NewReader("\x0a\x0d\x0d\x0a" + strings.Repeat("x", 40))); err == nil || !strings.Contains(err.Error(), "editcap") {
		t.Errorf("pcapng: %v", err)
	}
}

// Other link types of a capture become Ethernet.
func TestPcapLinkTypes(t *testing.T) {
	packet := TCP{Src: c4, Dst: v4, Flags: SYN}.Packet()
	for link, header := range map[byte]int{linkRaw: 0, linkSLL: 16, linkSLL2 & 0xff: 20} {
		record := append(make([]byte, header), packet...)
		if header == 16 {
			record[14], record[15] = 8, 0
		} else if header == 20 {
			record[0], record[1] = 8, 0
		}
		var b bytes.Buffer
		if err := WritePcap(&b, []Captured{{Frame: record}}); err != nil {
			t.Fatal(err)
		}
		file := b.Bytes()
		file[20] = link
		if header == 20 {
			file[21] = linkSLL2 >> 8
		}
		got, err := ReadPcap(bytes.NewReader(file))
		if err != nil || len(got) != 1 || !bytes.Equal(got[0].Frame, Link{}.Frame(packet)) || got[0].Length != len(packet)+EthernetLen {
			t.Errorf("link type %d: %v %+v", link, err, got)
		}
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	tcp := TCP{Src: c4, Dst: v4, Flags: ACK, Options: Timestamp(1, 2)}
	bad := tcp
	bad.BadChecksum = true
	if w := Parse(bad.Frame()).ChecksumErrors(); len(w) != 1 || w[0] != "TCP" {
		t.Errorf("checksums %v", w)
	}
	short := tcp
	short.DataOffset = 4
	if p := Parse(short.Frame()); p.Err == nil || p.Err.Layer != LayerL4 || p.Dst != v4.Addr() {
		t.Errorf("data offset 4: %+v", p.Err)
	}
	frag := IP{Src: c4.Addr(), Dst: v4.Addr(), Protocol: ProtoTCP, FragmentOffset: 10, Payload: []byte{1}}
	if p := Parse(Link{}.Frame(frag.Packet())); p.Err != nil || !p.Fragmented() || p.FragmentOffset != 80 {
		t.Errorf("fragment: %+v", p)
	}
}
