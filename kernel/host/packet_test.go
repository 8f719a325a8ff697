package host

import (
	"bytes"
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

// model is what host_in must return, by the scheme's model.
func (p *packets) model(frame []byte) (uint32, []byte) {
	h := cheetah.Host{Layout: p.layout(), Keys: packetKeys, Epochs: packetEpochs, Slots: [2]uint32{packetSlot, packetOldSlot}, NowMS: packetNow, ClockD: packetD,
		Services: []cheetah.Service{{VIP: packetVIP4, Tunnel: packetTunnel4}, {VIP: packetVIP6, Tunnel: packetTunnel6}}}
	out, ok := h.In(frame)
	if !ok {
		return xdpDrop, out
	}
	return xdpPass, out
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
			"ce":           {Tunnel: wire.IPIP, Dst: tunnel, TOS: 3},
			"other-server": {Tunnel: wire.IPIP, Dst: map[int]netip.Addr{4: netip.MustParseAddr("10.0.0.6"), 6: netip.MustParseAddr("fd00::6")}[family]},
		}
		for _, over := range wire.Tunnels() {
			outers[string(over)] = &wire.Outer{Tunnel: over, Dst: tunnel, SrcPort: 50000}
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
