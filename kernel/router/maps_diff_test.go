package router

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// TestProgramAgreesWithTwin: random packets, good and hostile, through random
// tables that change, under every permutation and field.
func TestProgramAgreesWithTwin(t *testing.T) {
	reasons, hows := map[string]int{}, map[pathsel.How]int{}
	for seed := range soak.Seeds(t, 16) {
		h := &hostile{Rand: rand.New(rand.NewPCG(seed, 6))}
		o := h.options(t, seed)
		r := newRig(t, o)
		for range 3 {
			tables := h.tables()
			r.apply(tables)
			w := newTwin(t, o, &tables)
			for range 250 {
				v := r.check(w, h.frame(&tables))
				reasons[v.reason]++
				if v.reason == "" {
					hows[v.how]++
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d, selector %+v", seed, o.Selector.Config())
		}
	}
	t.Logf("%v %v", reasons, hows)
	for _, name := range reasonNames {
		if reasons[name] == 0 && name != "headroom" { // test runs have room
			t.Errorf("no packet of %s", name)
		}
	}
	for how := range pathsel.How(4) {
		if hows[how] == 0 {
			t.Errorf("no packet was %v", how)
		}
	}
}

// hostile makes tables and frames for them. Everything follows from the random
// source.
type hostile struct{ *rand.Rand }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// options are those of a router: the seed goes through the permutations.
func (h *hostile) options(t *testing.T, seed uint64) Options {
	c := pathsel.Config{Permutation: []pathsel.Permutation{pathsel.Feistel, pathsel.RC5, pathsel.Skip32, pathsel.None}[seed%4],
		Radix: pick(h.Rand, 2, 3, 4, 10, 16, 16, 64), IPv4: pathsel.Ports, IPv6: pathsel.Ports}
	if c.Permutation == pathsel.Feistel {
		c.IPv4 = pick(h.Rand, pathsel.Ports, pathsel.SourcePort)
		c.IPv6 = pick(h.Rand, pathsel.Ports, pathsel.SourcePort, pathsel.FlowLabel, pathsel.FlowLabel)
	}
	binary.LittleEndian.PutUint64(c.Key[:], h.Uint64())
	return Options{Selector: rigSelector(t, c), Name: pick(h.Rand, "leaf1", "leaf2")}
}

func (h *hostile) mac() [6]byte { return [6]byte{2, byte(h.IntN(3)), 5: byte(h.IntN(250))} }

// address is mostly inside what routes are made of.
func (h *hostile) address(six bool) netip.Addr {
	if six {
		a := [16]byte{0x20, 1, 0xd, 0xb8, 5: byte(h.IntN(4)), 7: byte(h.IntN(4)), 15: byte(h.IntN(256))}
		if h.IntN(40) == 0 {
			a = pick(h.Rand, [16]byte{0xfe, 0x80, 15: 1}, [16]byte{0xff, 2, 15: 1}, [16]byte{15: 1}, [16]byte{}, [16]byte{0xfe, 0xc0, 15: 1}, [16]byte{14: 1})
		}
		return netip.AddrFrom16(a)
	}
	a := [4]byte{10, byte(h.IntN(4)), byte(h.IntN(4)), byte(h.IntN(256))}
	if h.IntN(40) == 0 {
		a[0] = pick[byte](h.Rand, 0, 126, 127, 223, 224, 255)
	}
	return netip.AddrFrom4(a)
}

func (h *hostile) tables() Tables {
	t := Tables{Devices: []Device{{Ifindex: rigDevice, Name: "lo", MAC: rigMAC, IPv4: h.IntN(10) > 0, IPv6: h.IntN(10) > 0}}}
	for _, vlan := range []uint16{tagged, 4094} {
		if h.IntN(3) > 0 {
			t.Devices = append(t.Devices, Device{Ifindex: rigDevice, VLAN: vlan, MAC: h.mac(), IPv4: h.IntN(10) > 0, IPv6: h.IntN(10) > 0})
		}
	}
	for port := range 64 {
		if h.IntN(3) == 0 {
			t.Ports = append(t.Ports, port)
		}
	}
	for i, port := range h.Perm(20) {
		hop := Hop{ID: HopID{Device: 10 + i, Gateway: h.address(h.IntN(2) == 0)}, Ifindex: pick(h.Rand, 10+i, 10+i, 10+i, rigDevice),
			VLAN: pick[uint16](h.Rand, 0, 0, 0, tagged, 99), Source: h.mac(), MAC: h.mac(), MTU: pick(h.Rand, 1500, 1500, 60, 9000), Port: port - h.IntN(2)*64,
			Usable: h.IntN(5) > 0, Redirect: h.IntN(12) > 0}
		hop.Port = max(hop.Port, -1)
		if h.IntN(12) == 0 {
			hop.MAC = [6]byte{}
		}
		t.Hops = append(t.Hops, hop)
	}
	for range 6 {
		var g Group
		for _, i := range h.Perm(len(t.Hops))[:1+h.IntN(len(t.Hops))] {
			g = append(g, Member{t.Hops[i].ID, pick(h.Rand, 1, 1, 1, 2, 7, 65536)})
		}
		if h.IntN(2) == 0 {
			for i := range g {
				g[i].Weight = 1
			}
		}
		t.Groups = append(t.Groups, g[:pick(h.Rand, 1, len(g), len(g))])
	}
	h.routes(&t)
	return t
}

func (h *hostile) routes(t *Tables) {
	seen := map[netip.Prefix]bool{}
	for range 60 {
		six := h.IntN(2) == 0
		bits := pick(h.Rand, 8, 14, 16, 23, 24, 32)
		if six {
			bits = pick(h.Rand, 0, 32, 48, 60, 64, 128)
		}
		p := netip.PrefixFrom(h.address(six), bits).Masked()
		if !seen[p] {
			seen[p] = true
			t.Routes = append(t.Routes, Route{p, pick(h.Rand, Forward, Forward, Forward, Forward, Forward, Forward, Local, Unreachable, Connected, Beyond), h.IntN(len(t.Groups))})
		}
	}
}

// frame is a packet that is mostly to be forwarded, and sometimes spoiled.
func (h *hostile) frame(t *Tables) []byte {
	six := h.IntN(2) == 0
	d := t.Devices[h.IntN(len(t.Devices))]
	link := wire.Link{Dst: d.MAC, VLAN: d.VLAN}
	if h.IntN(30) == 0 {
		link.Dst = h.mac()
	}
	if h.IntN(30) == 0 {
		link.VLAN = pick(h.Rand, 0x1000|tagged, 0xe000, 12)
	}
	ip := wire.IP{Src: h.address(six), Dst: h.address(six), TTL: pick[uint8](h.Rand, 1, 2, 3, 17, 62, 63, 64, 64, 64, 128, 255), TOS: uint8(h.Uint32()),
		FlowLabel: h.Uint32N(1 << 20), MoreFragments: h.IntN(12) == 0}
	if h.IntN(15) == 0 {
		ip.FragmentOffset = uint16(h.IntN(8192))
	}
	if h.IntN(8) == 0 {
		ip.FlowLabel = 0
	}
	if h.IntN(25) == 0 {
		ip.Options, ip.Extensions = []byte{1, 1, 1, 1}, []wire.Extension{{Type: pick[uint8](h.Rand, 0, 43, 60)}}
	}
	return h.spoil(link.Frame(h.packet(ip)))
}

func (h *hostile) packet(ip wire.IP) []byte {
	src, dst := netip.AddrPortFrom(ip.Src, uint16(h.Uint32())), netip.AddrPortFrom(ip.Dst, uint16(h.Uint32()))
	switch h.IntN(4) {
	case 0:
		return wire.TCP{Src: src, Dst: dst, Flags: wire.ACK, IP: ip, Payload: make([]byte, h.IntN(40))}.Packet()
	case 1:
		ip.Protocol, ip.Payload = pick[uint8](h.Rand, 6, 17, 1, 58, 47, 4), make([]byte, h.IntN(8))
		return ip.Packet()
	}
	return wire.UDP{Src: src, Dst: dst, IP: ip, Payload: make([]byte, h.IntN(40))}.Packet()
}

func (h *hostile) spoil(frame []byte) []byte {
	switch h.IntN(20) {
	case 0:
		return frame[:14+h.IntN(len(frame)-13)]
	case 1:
		frame[12+h.IntN(len(frame)-12)] = byte(h.Uint32())
	case 2:
		return append(frame, make([]byte, h.IntN(30))...)
	case 3:
		for i := 12; i < len(frame); i++ {
			frame[i] = byte(h.Uint32())
		}
	}
	return frame
}

// TestComplexity holds the program well below the verifier's limit of a
// million instructions, under every permutation.
func TestComplexity(t *testing.T) {
	const bound = 100_000
	for _, p := range []pathsel.Permutation{pathsel.None, pathsel.Feistel, pathsel.RC5, pathsel.Skip32} {
		for _, radix := range []int{16, 17} {
			r := newRig(t, Options{Selector: rigSelector(t, pathsel.Config{Permutation: p, Radix: radix})})
			info, err := r.set.program().Info()
			if err != nil {
				t.Fatal(err)
			}
			n, ok := info.VerifiedInstructions()
			if !ok {
				t.Fatal("the kernel does not tell verified instructions (5.16 or newer does)")
			}
			t.Logf("%s, radix %d: %d instructions verified", p, radix, n)
			if n > bound {
				t.Errorf("%s, radix %d: %d instructions verified, more than %d", p, radix, n, bound)
			}
		}
	}
}
