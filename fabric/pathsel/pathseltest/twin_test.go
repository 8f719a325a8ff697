package pathseltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/soak"
)

// twin is the C side of a selector and router.
type twin struct {
	objects twinObjects
}

func load(t testing.TB, s *pathsel.Selector, r *pathsel.Router) *twin {
	t.Helper()
	return loadMaterial(t, s.Material(), r.Seed())
}

func loadMaterial(t testing.TB, m pathsel.Material, seed [2]uint64) *twin {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := loadTwin()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["pathsel"].Set(m); err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["seed"].Set(seed); err != nil {
		t.Fatal(err)
	}
	x := &twin{}
	if err := spec.LoadAndAssign(&x.objects, nil); err != nil {
		if errors.Is(err, unix.EPERM) && os.Getuid() != 0 {
			t.Skip("loading a program needs root")
		}
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { x.objects.Close() })
	return x
}

// packetOf is a flow as the test program reads it.
func packetOf(f pathsel.Flow, ttl uint8) (p twinTestPacket) {
	p.Ttl = uint32(ttl)
	p.Flow.Ports = uint32(f.SrcPort)<<16 | uint32(f.DstPort)
	p.Flow.Label, p.Flow.Proto = f.Label, f.Proto
	if f.Dst.Is6() {
		p.Six = 1
	}
	words(&p.Flow.Src, f.Src)
	words(&p.Flow.Dst, f.Dst)
	return p
}

// run answers for one packet.
func (x *twin) run(t *testing.T, f pathsel.Flow, ttl uint8) (p twinTestPacket) {
	t.Helper()
	p = packetOf(f, ttl)
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, p); err != nil {
		t.Fatal(err)
	}
	out := make([]byte, b.Len())
	verdict, err := x.objects.PathselTest.Run(&ebpf.RunOptions{Data: b.Bytes(), DataOut: out})
	if err != nil {
		t.Fatal(err)
	}
	if verdict != 2 {
		t.Fatalf("verdict %d", verdict)
	}
	if err := binary.Read(bytes.NewReader(out), binary.LittleEndian, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// words are an address as C loads it.
func words(to *[4]uint32, a netip.Addr) {
	for i, b := range a.AsSlice() {
		to[i/4] |= uint32(b) << (8 * (i % 4))
	}
}

// randomFlow is of any kind: portless ones, labels or none, both families.
func randomFlow(r *rand.Rand) pathsel.Flow {
	address := func(n int) netip.Addr {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		a, _ := netip.AddrFromSlice(b)
		return a
	}
	n := 4 + 12*r.IntN(2)
	f := pathsel.Flow{Src: address(n), Dst: address(n), Proto: []uint8{6, 17, 1, 47, 58}[r.IntN(5)]}
	if f.Proto == 6 || f.Proto == 17 {
		f.SrcPort, f.DstPort = uint16(r.Uint32()), uint16(r.Uint32())
	}
	if n == 16 && r.IntN(4) > 0 {
		f.Label = r.Uint32() >> 12
	}
	return f
}

// randomGroup has one hop to all, weights, ports without numbers.
func randomGroup(t testing.TB, r *rand.Rand, s *pathsel.Selector) *pathsel.Group {
	hops := make([]pathsel.Hop, 1+r.IntN([]int{2, 8, pathsel.MaxHops}[r.IntN(3)]))
	ports := r.Perm(s.Config().Radix + 8)
	weighted := r.IntN(2) == 0
	for i := range hops {
		hops[i] = pathsel.Hop{Port: -1, Weight: 1}
		if i < len(ports) && r.IntN(8) > 0 {
			hops[i].Port = ports[i]
		}
		if weighted {
			hops[i].Weight = 1 + r.IntN(100)
		}
	}
	g, err := s.Group(hops, r.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Every packet is read and sent alike by both, for every permutation, field
// and kind of radix.
func TestTwin(t *testing.T) {
	r := soak.Rand(t)
	for _, c := range []pathsel.Config{
		{Permutation: pathsel.Feistel, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
		{Permutation: pathsel.Feistel, Radix: 16, IPv4: pathsel.SourcePort, IPv6: pathsel.FlowLabel},
		{Permutation: pathsel.Feistel, Radix: 2, IPv4: pathsel.Ports, IPv6: pathsel.SourcePort},
		{Permutation: pathsel.Feistel, Radix: 3, IPv4: pathsel.Ports, IPv6: pathsel.FlowLabel},
		{Permutation: pathsel.Feistel, Radix: 10, IPv4: pathsel.SourcePort, IPv6: pathsel.FlowLabel},
		{Permutation: pathsel.Feistel, Radix: 64, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
		{Permutation: pathsel.RC5, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
		{Permutation: pathsel.RC5, Radix: 5, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
		{Permutation: pathsel.Skip32, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
		{Permutation: pathsel.Skip32, Radix: 7, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
		{Permutation: pathsel.None, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports},
	} {
		for i := range c.Key {
			c.Key[i] = byte(r.Uint32())
		}
		t.Run(fmt.Sprintf("%s-%d-%s-%s", c.Permutation, c.Radix, c.IPv4, c.IPv6), func(t *testing.T) {
			s, err := pathsel.New(c)
			if err != nil {
				t.Fatal(err)
			}
			router := pathsel.NewRouter(s, fmt.Sprint("r", r.Uint32()))
			x := load(t, s, router)
			for range 40 {
				g := randomGroup(t, r, s)
				if err := x.objects.Groups.Put(uint32(0), g); err != nil {
					t.Fatal(err)
				}
				for range 50 {
					f, ttl := randomFlow(r), uint8(r.Uint32())
					compare(t, x, s, router, g, f, ttl)
				}
			}
		})
	}
}

func compare(t *testing.T, x *twin, s *pathsel.Selector, router *pathsel.Router, g *pathsel.Group, f pathsel.Flow, ttl uint8) {
	t.Helper()
	p := x.run(t, f, ttl)
	if digit, controlled := s.Digit(f, ttl); controlled != (p.Read == 0) || controlled && digit != int(p.Digit) {
		t.Fatalf("%+v, TTL %d: Go reads %d (%v), C %d (%v)", f, ttl, digit, controlled, p.Digit, p.Read == 0)
	}
	hop, how := router.Choose(f, ttl, g)
	if hop != int(p.Hop) || uint32(how) != p.How {
		t.Fatalf("%+v, TTL %d: Go takes hop %d (%s), C %d (%s)", f, ttl, hop, how, p.Hop, pathsel.How(p.How))
	}
}

// The self-test of skip32.c (Rose, 1999), in C. RC5's published vector has 16
// rounds, which only Go's can be given; TestTwin holds C's to it.
func TestSkip32Vector(t *testing.T) {
	s, err := pathsel.New(pathsel.Config{Permutation: pathsel.Skip32, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports})
	if err != nil {
		t.Fatal(err)
	}
	m := s.Material()
	m.Skip32 = [10]uint8{0x00, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}
	x := loadMaterial(t, m, [2]uint64{1, 1})
	if err := x.objects.Groups.Put(uint32(0), randomGroup(t, rand.New(rand.NewPCG(1, 1)), s)); err != nil {
		t.Fatal(err)
	}
	f := pathsel.Flow{Src: netip.AddrFrom4([4]byte{10}), Dst: netip.AddrFrom4([4]byte{11}), Proto: 6, SrcPort: 0x819d, DstPort: 0x5f1f}
	if p := x.run(t, f, 64); p.Selector != 0x33221100 {
		t.Errorf("back is %08x, skip32.c says 33221100", p.Selector)
	}
}

// C's division by multiplying is right for every time to live and radix.
func TestTwinEveryTTL(t *testing.T) {
	r := soak.Rand(t)
	for radix := 2; radix <= pathsel.MaxRadix; radix += 1 + r.IntN(6) {
		s, err := pathsel.New(pathsel.Config{Permutation: pathsel.Feistel, Radix: radix, IPv4: pathsel.Ports, IPv6: pathsel.FlowLabel})
		if err != nil {
			t.Fatal(err)
		}
		router := pathsel.NewRouter(s, "r")
		x, g := load(t, s, router), randomGroup(t, r, s)
		if err := x.objects.Groups.Put(uint32(0), g); err != nil {
			t.Fatal(err)
		}
		for ttl := range 256 {
			compare(t, x, s, router, g, randomFlow(r), uint8(ttl))
		}
	}
}
