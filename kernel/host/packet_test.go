package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// One packet at a time through the loaded programs, next to a plain model of
// what they must do.

const (
	xdpDrop, xdpPass = 1, 2

	packetSlot, packetOldSlot = 5, 9
	packetEpochs              = 0b01
)

var (
	packetClient4 = netip.MustParseAddrPort("198.51.100.7:40000")
	packetClient6 = netip.MustParseAddrPort("[2001:db8:1::7]:40001")
	packetVIP4    = netip.MustParseAddrPort("192.0.2.1:80")
	packetVIP6    = netip.MustParseAddrPort("[2001:db8::1]:80")
	packetTunnel4 = netip.MustParseAddr("10.0.0.5") // of the IPv4 VIP
	packetTunnel6 = netip.MustParseAddr("fd00::5")  // of the IPv6 VIP
	packetKeys    = [2]hash.Key{{1, 2}, {3, 4}}
)

type packets struct {
	t    *testing.T
	o    bpf.HostObjects
	c    *control
	bits int
	// scheme of the VIPs, and flags of all their entries.
	scheme uint8
	flags  uint16
	// both: tunnels of both families lead to either VIP.
	both bool
}

func loadPackets(t *testing.T) *packets {
	t.Helper()
	p := &packets{t: t, bits: 12, scheme: uint8(bpf.SchemeCheetah)}
	spec, err := bpf.LoadHost()
	if err == nil {
		err = spec.Variables["jiffy_mult"].Set(uint32(0)) // the test's clock stands still
	}
	if err == nil {
		err = spec.LoadAndAssign(&p.o, nil)
	}
	if err != nil {
		t.Fatalf("%+v (these tests need root)", err)
	}
	t.Cleanup(func() { p.o.Close() })
	if p.c, err = openControl(p.o.HostControl); err != nil {
		t.Fatal(err)
	}
	p.fill()
	return p
}

const packetNow, packetD = 0x8765_4321, 0x1234_5640

func (p *packets) layout() cheetah.Layout { return cheetah.Layout{Bits: p.bits} }

// fill makes a VIP of each family, with a cookie width of p.bits.
func (p *packets) fill() {
	p.t.Helper()
	t := tables.NewHostTable()
	for i, vip := range []netip.AddrPort{packetVIP4, packetVIP6} {
		k := tables.Key{Addr: vip.Addr(), Port: vip.Port(), Proto: wire.ProtoTCP}
		tunnel := []netip.Addr{packetTunnel4, packetTunnel6}[i]
		v := bpf.HostVIP{Addr: k.Words(), Port: k.PortBE(), Proto: k.Proto, Used: 1, Id: uint32(i + 1),
			Slot: packetSlot, OldSlot: packetOldSlot, Epochs: packetEpochs, Shift: uint8(32 - p.bits), Scheme: p.scheme,
			Key: [2][2]uint64{packetKeys[0], packetKeys[1]}, Mss: 1300, Tunnel: tables.Key{Addr: tunnel}.Words()}
		if p.both {
			v.OldTunnel = tables.Key{Addr: []netip.Addr{packetTunnel6, packetTunnel4}[i]}.Words()
		}
		t.Entries[k] = v
		t.AddShared(k, v)
		k.Proto = wire.ProtoUDP
		u := v
		if u.Proto = wire.ProtoUDP; u.Scheme == uint8(bpf.SchemeCheetah) {
			u.Scheme = 0
		}
		t.Entries[k] = u
		t.AddShared(k, u)
	}
	for k, v := range t.Entries {
		v.Flags = p.flags
		t.Entries[k] = v
	}
	if err := writeTable(p.o.HostVips, p.c, t); err != nil {
		p.t.Fatal(err)
	}
	p.c.store(offActive, 1-p.c.load(offActive)&1)
	p.c.store(offJiffies, packetNow)
	p.c.store(offClock, packetD)
}

// in runs host_in.
func (p *packets) in(frame []byte) (uint32, []byte) {
	p.t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	ret, err := p.o.HostIn.Run(&o)
	if err != nil {
		p.t.Fatalf("test run of %d bytes: %v", len(frame), err)
	}
	return ret, o.DataOut
}

// cookie is a TSecr that names slot under an epoch, ageMS old.
func (p *packets) cookie(client, vip netip.AddrPort, slot, epoch, ageMS uint32) uint32 {
	l := p.layout()
	return l.WireTS(l.Encode(hash.Tuple(packetKeys[epoch], client, vip.Port()), slot, epoch), packetNow-ageMS)
}

// model is host_in, written to be plain. It returns what the program must.
func (p *packets) model(frame []byte) (uint32, []byte) {
	same := bytes.Clone(frame)
	be16 := func(b []byte, at int) int { return int(binary.BigEndian.Uint16(b[at:])) }
	if len(frame) < 14 {
		return xdpPass, same
	}
	l3, kind := 14, be16(frame, 12)
	if kind == wire.EtherTypeVLAN {
		if len(frame) < 18 {
			return xdpPass, same
		}
		l3, kind = 18, be16(frame, 16)
	}
	packet := frame[l3:]
	var outer netip.Addr
	tunnel := func(b []byte, next byte) ([]byte, int) {
		if next == wire.ProtoUDP {
			if len(b) < 12 || be16(b, 2) != wire.GUEPort || b[8] != 0 || b[10] != 0 || b[11] != 0 {
				return nil, 0
			}
			next, b = b[9], b[12:]
		}
		switch next {
		case wire.ProtoIPIP:
			return b, wire.EtherTypeIPv4
		case wire.ProtoIPv6:
			return b, wire.EtherTypeIPv6
		}
		return nil, 0
	}
	inner, innerKind := packet, kind
	switch kind {
	case wire.EtherTypeIPv4:
		if len(packet) < 20 || packet[0]>>4 != 4 {
			return xdpPass, same
		}
		header := int(packet[0]&15) * 4
		if header >= 20 && be16(packet, 6)&0x3fff == 0 {
			outer = netip.AddrFrom4([4]byte(packet[16:]))
			if b, k := tunnel(packet[min(header, len(packet)):], packet[9]); k != 0 {
				inner, innerKind = b, k
			}
		}
	case wire.EtherTypeIPv6:
		if len(packet) < 40 || packet[0]>>4 != 6 {
			return xdpPass, same
		}
		outer = netip.AddrFrom16([16]byte(packet[24:]))
		if b, k := tunnel(packet[40:], packet[6]); k != 0 {
			inner, innerKind = b, k
		}
	default:
		return xdpPass, same
	}
	cut := len(packet) - len(inner)

	var src, dst netip.Addr
	var proto byte
	var l4 []byte
	l4At := 0 // in inner
	fragment := false
	if innerKind == wire.EtherTypeIPv4 {
		if len(inner) < 20 || inner[0]>>4 != 4 {
			return xdpPass, same
		}
		header, total := int(inner[0]&15)*4, be16(inner, 2)
		if header < 20 || total < header || total > len(inner) {
			return xdpPass, same
		}
		src, dst = netip.AddrFrom4([4]byte(inner[12:])), netip.AddrFrom4([4]byte(inner[16:]))
		proto, l4, l4At = inner[9], inner[header:total], header
		fragment = be16(inner, 6)&0x3fff != 0
	} else {
		if len(inner) < 40 || inner[0]>>4 != 6 {
			return xdpPass, same
		}
		header, total := 40, 40+be16(inner, 4)
		proto = inner[6]
		for n := 0; !fragment && (proto == 0 || proto == 43 || proto == 44 || proto == 60); n++ {
			if len(inner) < header+8 {
				return xdpPass, same
			}
			length := 8
			if proto == 44 {
				fragment = be16(inner, header+2)&0xfff9 != 0 // else atomic: whole (RFC 6946)
			} else {
				length += int(inner[header+1]) * 8
			}
			if proto, header = inner[header], header+length; n == 7 && !fragment {
				return xdpPass, same
			}
		}
		if total > len(inner) || header > total {
			return xdpPass, same
		}
		src, dst = netip.AddrFrom16([16]byte(inner[8:])), netip.AddrFrom16([16]byte(inner[24:]))
		l4, l4At = inner[header:total], header
	}
	var sport, dport uint16
	if !fragment && (proto == wire.ProtoTCP || proto == wire.ProtoUDP) {
		if len(l4) < 8 {
			return xdpPass, same
		}
		sport, dport = uint16(be16(l4, 0)), uint16(be16(l4, 2))
	}
	vip, want := packetVIP4, packetTunnel4
	if dst.Is6() {
		vip, want = packetVIP6, packetTunnel6
	}
	icmp := byte(wire.ProtoICMP)
	if dst.Is6() {
		icmp = wire.ProtoICMPv6
	}
	service := !fragment && (proto == wire.ProtoTCP || proto == wire.ProtoUDP) && dport == vip.Port()
	shared := fragment && (proto == wire.ProtoTCP || proto == wire.ProtoUDP) || !fragment && proto == icmp
	if dst != vip.Addr() || !service && !shared || cut > 0 && outer != want {
		return xdpPass, same
	}

	if cut > 0 && proto == icmp && !fragment && !forwarded(inner[l4At:], dst) {
		return xdpDrop, same
	}
	out := append(bytes.Clone(frame[:l3]), bytes.Clone(inner)...)
	binary.BigEndian.PutUint16(out[l3-2:], uint16(innerKind))
	if congested := func() bool {
		if kind == wire.EtherTypeIPv4 {
			return packet[1]&3 == 3
		}
		return packet[1]>>4&3 == 3
	}(); cut > 0 && congested {
		if innerKind == wire.EtherTypeIPv4 && inner[1]&3 != 0 {
			out[l3+1] |= 3
			was, is := uint32(be16(inner, 0)), uint32(be16(out, l3))
			sum := uint32(^uint16(be16(inner, 10))) + 0xffff - was + is
			for sum>>16 != 0 {
				sum = sum&0xffff + sum>>16
			}
			binary.BigEndian.PutUint16(out[l3+10:], ^uint16(sum))
		} else if innerKind == wire.EtherTypeIPv6 && inner[1]>>4&3 != 0 {
			out[l3+1] |= 0x30
		}
	}
	if proto != wire.ProtoTCP || fragment {
		return xdpPass, out
	}
	if len(l4) < 20 || int(l4[12]>>4)*4 < 20 || int(l4[12]>>4)*4 > len(l4) {
		return xdpDrop, same
	}
	ts, ok, err := wire.FindTimestamp(l4[20 : int(l4[12]>>4)*4])
	if err != nil && !ok {
		return xdpDrop, same
	}
	if !ok || l4[13]&(wire.SYN|wire.ACK) == wire.SYN {
		return xdpPass, out
	}
	l := p.layout()
	field := l.Field(ts.Ecr, packetNow)
	epoch := l.Epoch(field)
	slot := l.Slot(hash.Tuple(packetKeys[epoch], netip.AddrPortFrom(src, sport), dport), field)
	if packetEpochs>>epoch&1 == 0 || slot != packetSlot && slot != packetOldSlot {
		return xdpPass, out
	}
	check := l3 + l4At + 16
	at := l3 + l4At + 20 + ts.At + 4
	before := bytes.Clone(out)
	binary.BigEndian.PutUint32(out[at:], ts.Ecr-field<<l.Shift()-packetD)
	fixChecksum(out, before, check, at, (20+ts.At)%2 == 1)
	return xdpPass, out
}

// fixChecksum takes the changed bytes at..at+4 out of the checksum and puts
// the new ones in, byte by byte.
func fixChecksum(out, before []byte, check, at int, odd bool) {
	sum := uint32(^binary.BigEndian.Uint16(out[check:]))
	for i := range 4 {
		shift := 8
		if (i%2 == 1) != odd {
			shift = 0
		}
		sum += 0xffff - uint32(before[at+i])<<shift
		sum += uint32(out[at+i]) << shift
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(out[check:], ^uint16(sum))
}

// agree compares program and model.
func (p *packets) agree(what string, frame []byte) {
	p.t.Helper()
	wantRet, want := p.model(frame)
	ret, got := p.in(frame)
	if ret != wantRet || ret == xdpPass && !bytes.Equal(got, want) {
		p.t.Errorf("%s: %d bytes: program %d, model %d\n in    %x\n got   %x\n model %x", what, len(frame), ret, wantRet, frame, got, want)
	}
}

type fixture struct {
	name  string
	frame []byte
}

// fixtures are right packets of every form.
func (p *packets) fixtures() (list []fixture) {
	for _, family := range []int{4, 6} {
		client, vip, tunnel := packetClient4, packetVIP4, packetTunnel4
		if family == 6 {
			client, vip, tunnel = packetClient6, packetVIP6, packetTunnel6
		}
		ecr := p.cookie(client, vip, packetSlot, 0, 1000)
		segments := map[string][]byte{
			"ack":       wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: wire.Timestamp(7, ecr)}.Packet(),
			"data":      wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: wire.Timestamp(7, ecr), Payload: []byte("hello")}.Packet(),
			"odd":       wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: append([]byte{1}, append(wire.BareTimestamp(7, ecr), 1)...)}.Packet(),
			"bare-last": wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: append([]byte{1, 1, 1, 1, 1, 1}, wire.BareTimestamp(7, ecr)...)}.Packet(),
			"none":      wire.TCP{Src: client, Dst: vip, Flags: wire.ACK}.Packet(),
			"syn":       wire.TCP{Src: client, Dst: vip, Flags: wire.SYN, Options: wire.SYNOptions(1460, 7)}.Packet(),
			"old-slot":  wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: wire.Timestamp(7, p.cookie(client, vip, packetOldSlot, 0, 5))}.Packet(),
			"foreign":   wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: wire.Timestamp(7, p.cookie(client, vip, 6, 0, 5))}.Packet(),
			"udp":       wire.UDP{Src: client, Dst: vip, Payload: []byte("hello")}.Packet(),
			"not-ours":  wire.TCP{Src: client, Dst: netip.AddrPortFrom(vip.Addr(), 81), Flags: wire.ACK, Options: wire.Timestamp(7, ecr)}.Packet(),
		}
		if family == 6 {
			for name, ip := range map[string]wire.IP{
				"atomic":     {Atomic: true},
				"hop-by-hop": {Extensions: []wire.Extension{{Type: 0}}},
				"long":       {Extensions: append([]wire.Extension{{Type: 0, Body: make([]byte, 70)}}, extensions(2, 30)...), Atomic: true},
				"fragment":   {Extensions: extensions(1, 6), FragmentOffset: 8},
				"too-many":   {Extensions: extensions(8, 6), Atomic: true},
			} {
				segments[name] = wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: wire.Timestamp(7, ecr), IP: ip}.Packet()
			}
			segments["neighbour-behind-options"] = wire.ICMP{Src: client.Addr(), Dst: vip.Addr(), Type: 136, IP: wire.IP{TTL: 255, Extensions: extensions(2, 14)}}.Packet()
		}
		for name, packet := range icmpMessages(client, vip) {
			segments[name] = packet
		}
		outers := map[string]*wire.Outer{
			"l2":           nil,
			"ipip":         {Tunnel: wire.IPIP, Dst: tunnel},
			"gue":          {Tunnel: wire.GUE, Dst: tunnel, SrcPort: 50000},
			"ce":           {Tunnel: wire.IPIP, Dst: tunnel, TOS: 3},
			"other-server": {Tunnel: wire.IPIP, Dst: map[int]netip.Addr{4: netip.MustParseAddr("10.0.0.6"), 6: netip.MustParseAddr("fd00::6")}[family]},
		}
		for name, segment := range segments {
			for how, o := range outers {
				packet := segment
				if o != nil {
					o.Src = map[int]netip.Addr{4: netip.MustParseAddr("10.254.0.9"), 6: netip.MustParseAddr("fd00:254::9")}[family]
					packet = o.Encapsulate(segment)
				}
				kind := []byte{8, 0}
				if packet[0]>>4 == 6 {
					kind = []byte{0x86, 0xdd}
				}
				macs := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
				frame := append(append(bytes.Clone(macs), kind...), packet...)
				list = append(list, fixture{fmt.Sprintf("v%d-%s-%s", family, how, name), frame})
				tagged := append(append(bytes.Clone(macs), 0x81, 0, 0, 42), append(bytes.Clone(kind), packet...)...)
				list = append(list, fixture{fmt.Sprintf("v%d-%s-%s-vlan", family, how, name), tagged})
			}
		}
	}
	return list
}

// What is right is treated as the model says, and what is restored has right
// checksums.
func TestInAgreesWithModel(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	for _, f := range p.fixtures() {
		p.agree(f.name, f.frame)
		if ret, out := p.in(f.frame); ret == xdpPass {
			if errs := wire.Parse(out).ChecksumErrors(); errs != nil {
				t.Errorf("%s: %v", f.name, errs)
			}
		}
	}
}

func TestInTruncatedAtEveryByte(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	for _, f := range p.fixtures() {
		for n := 14; n < len(f.frame); n++ {
			p.agree(f.name, f.frame[:n])
		}
	}
}

// Every value of the cookie names the slot that the model says.
func TestInEveryCookie(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	for p.bits = cheetah.MinBits; p.bits <= cheetah.MaxBits; p.bits++ {
		p.fill()
		l := p.layout()
		restored := 0
		for field := range uint32(1) << p.bits {
			ecr := l.WireTS(field, packetNow-100)
			segment := wire.TCP{Src: packetClient4, Dst: packetVIP4, Flags: wire.ACK, Options: wire.Timestamp(7, ecr)}
			frame := segment.Frame()
			p.agree(fmt.Sprintf("bits %d field %#x", p.bits, field), frame)
			if _, out := p.in(frame); !bytes.Equal(out, frame) {
				restored++
			}
		}
		if restored != 2 { // this slot and the one before it, under one epoch
			t.Errorf("%d bits: %d of all cookies were restored, want 2", p.bits, restored)
		}
	}
}

func TestInHostileOptions(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	ecr := p.cookie(packetClient4, packetVIP4, packetSlot, 0, 10)
	ts := wire.BareTimestamp(7, ecr)
	nops := bytes.Repeat([]byte{1}, 40)
	for name, options := range map[string][]byte{
		"length 0":          {8, 0, 0, 0},
		"length 1":          {8, 1, 0, 0},
		"timestamp short":   {8, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"timestamp long":    {8, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"past the end":      {2, 40, 0, 0},
		"kind alone at end": {1, 1, 1, 8},
		"40 NOPs":           nops,
		"last of 40":        append(bytes.Clone(nops[:30]), ts...),
		"doubled":           append(bytes.Clone(ts), append(wire.BareTimestamp(8, ecr+1), 1, 1, 1, 1)...),
		"behind end":        append([]byte{0}, append(bytes.Clone(ts), 1)...),
		"unknown before":    append([]byte{253, 5, 1, 2, 3}, append(bytes.Clone(ts), 1)...),
	} {
		for flags := range uint8(64) {
			p.agree(name, wire.TCP{Src: packetClient4, Dst: packetVIP4, Flags: flags, Options: options}.Frame())
		}
	}
	// The data offset says anything.
	for doff := range byte(16) {
		frame := wire.TCP{Src: packetClient4, Dst: packetVIP4, Flags: wire.ACK, Options: wire.Timestamp(7, ecr), Payload: []byte("12345678")}.Frame()
		frame[14+20+12] = doff << 4
		p.agree(fmt.Sprintf("data offset %d", doff), frame)
	}
}

// Random damage: the program does what the model does.
func TestInDamaged(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	list := p.fixtures()
	for i := range 60_000 {
		f := list[r.IntN(len(list))]
		frame := bytes.Clone(f.frame)
		for range 1 + r.IntN(3) {
			at := 12 + r.IntN(min(len(frame), 100)-12)
			frame[at] ^= byte(1 << r.IntN(8))
		}
		p.agree(fmt.Sprintf("seed %d, %d, %s", seed, i, f.name), frame)
		if t.Failed() {
			return
		}
	}
}
