package pathsel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

// hops of equal weight, numbered from 0.
func hops(n int) []Hop {
	out := make([]Hop, n)
	for i := range out {
		out[i] = Hop{Port: i, Weight: 1}
	}
	return out
}

func group(t testing.TB, s *Selector, h []Hop) *Group {
	t.Helper()
	g, err := s.Group(h, 0)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// far says whether counts are further from the expected shares than chance
// takes them in one of 10^8 runs (Wilson and Hilferty's approximation).
func far(counts []int, shares []float64) (chi2 float64, far bool) {
	total, cells := 0, 0
	for _, n := range counts {
		total += n
	}
	for i, n := range counts {
		if want := shares[i] * float64(total); want > 0 {
			chi2 += (float64(n) - want) * (float64(n) - want) / want
			cells++
		}
	}
	k := float64(cells - 1)
	z := (math.Cbrt(chi2/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
	return chi2, z > 5.6
}

func even(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1 / float64(n)
	}
	return out
}

// traffic are kinds of flows that nobody steered; the i-th of each.
var traffic = map[string]func(i uint32) Flow{
	// A client's ports in a row, to one server.
	"one pair": func(i uint32) Flow {
		return pair(0, 0, uint16(32768+i%28000), uint16(80+i/28000))
	},
	// Clients in a row, from one port each: DNS, or a scanner.
	"many clients": func(i uint32) Flow { return pair(i, 0, 4000, 443) },
	// Tunnels and backends: many of both, ports that hardly differ.
	"many pairs":       func(i uint32) Flow { return pair(i%300, i/300, uint16(1024+i%2), 6080) },
	"many pairs, IPv6": func(i uint32) Flow { return pair6(i%300, i/300, uint16(1024+i%2), 6080) },
	// No ports at all.
	"ping": func(i uint32) Flow {
		f := pair(i%1000, i/1000, 0, 0)
		f.Proto = 1
		return f
	},
}

func pair(src, dst uint32, sport, dport uint16) Flow {
	var a, b [4]byte
	binary.BigEndian.PutUint32(a[:], 0x0a000001+src)
	binary.BigEndian.PutUint32(b[:], 0x0a800001+dst)
	return Flow{Src: netip.AddrFrom4(a), Dst: netip.AddrFrom4(b), Proto: protoTCP, SrcPort: sport, DstPort: dport}
}

// Section 4.1.1: flows that nobody steers are shared evenly, with any number
// of next hops, one router deep and four.
func TestUnsteeredFlowsSpread(t *testing.T) {
	r := soak.Rand(t)
	const flows = 20_000
	sizes := []int{2, 3, 5, 8, 13, 16}
	if soak.On() {
		sizes = []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	}
	for _, c := range []Config{
		{Permutation: Feistel, Radix: 16}, {Permutation: RC5, Radix: 16}, {Permutation: Skip32, Radix: 16},
		{Permutation: Feistel, Radix: 16, IPv4: SourcePort}, {Permutation: Feistel, Radix: 17}, {Permutation: None},
	} {
		c.Key = randomKey(r)
		s := newSelector(t, c)
		for kind, nth := range traffic {
			for _, n := range sizes {
				g := group(t, s, hops(n))
				var counts [4][]int
				for at := range counts {
					counts[at] = make([]int, n)
					router := NewRouter(s, fmt.Sprint("router", at))
					for i := range uint32(flows) {
						hop, _ := router.Choose(nth(i), uint8(64-at), g)
						counts[at][hop]++
					}
					if chi2, far := far(counts[at], even(n)); far {
						t.Errorf("%s, radix %d, %s, %s, %d hops, router %d: χ² %.0f: %v", c.Permutation, s.config.Radix, s.config.IPv4, kind, n, at, chi2, counts[at])
					}
				}
			}
		}
	}
}

// Routers in a row choose independently of one another, a length apart, too,
// where they read the same digit: flows that the first sent one way are spread
// by the second like all others. With the paper's equation 5 the second would
// send all of them the same way there; and it would do so everywhere with flows
// of the same ports, as all digits are shifted alike.
func TestRoutersDoNotPolarise(t *testing.T) {
	r := soak.Rand(t)
	for _, kind := range []string{"any flows", "same ports"} {
		next := func() Flow { return flow(r, false) }
		if kind == "same ports" {
			next = func() Flow { return pair(r.Uint32(), r.Uint32(), 4000, 443) }
		}
		for _, n := range []int{2, 5, 16} {
			for _, apart := range []uint8{1, 3, 7, 8, 16} {
				s := newSelector(t, Config{Key: randomKey(r)})
				g := group(t, s, hops(n))
				first, second := NewRouter(s, "first"), NewRouter(s, "second")
				counts := make([]int, n*n)
				for range 60_000 {
					f := next()
					a, _ := first.Choose(f, 64, g)
					b, _ := second.Choose(f, 64-apart, g)
					counts[a*n+b]++
				}
				if chi2, far := far(counts, even(n*n)); far {
					t.Errorf("%s, %d hops, %d routers apart: χ² %.0f: %v", kind, n, apart, chi2, counts)
				}
			}
		}
	}
}

// Weights hold for unsteered flows, whichever hops have numbers.
func TestWeights(t *testing.T) {
	r := soak.Rand(t)
	for range 30 {
		s := newSelector(t, Config{Key: randomKey(r), Radix: 16 + r.IntN(49)})
		h := make([]Hop, 2+r.IntN(6))
		for i := range h {
			h[i] = Hop{Port: i, Weight: 2 + r.IntN(3)}
			if r.IntN(4) == 0 {
				h[i].Port = -1
			}
		}
		if err := s.Fits(h); err != nil {
			continue
		}
		router, g := NewRouter(s, "r"), group(t, s, h)
		counts, shares, total := make([]int, len(h)), make([]float64, len(h)), 0
		for _, x := range h {
			total += x.Weight
		}
		for i, x := range h {
			shares[i] = float64(x.Weight) / float64(total)
		}
		for range 30_000 {
			hop, _ := router.Choose(flow(r, false), 64, g)
			counts[hop]++
		}
		if chi2, far := far(counts, shares); far {
			t.Errorf("radix %d, %v: χ² %.0f: %v", s.config.Radix, h, chi2, counts)
		}
	}
}

// The shares that a group's bounds and digits make are the weights', to 2^-31.
func TestSharesAreExact(t *testing.T) {
	r := soak.Rand(t)
	for range 2000 {
		s := newSelector(t, Config{Radix: 2 + r.IntN(63)})
		h := make([]Hop, 2+r.IntN(MaxHops-1))
		total := 0
		for i := range h {
			h[i] = Hop{Port: i, Weight: 1 + r.IntN(8)}
			total += h[i].Weight
		}
		if s.Fits(h) != nil {
			continue
		}
		g := group(t, s, h)
		radix := float64(s.config.Radix)
		hashed := 1 - float64(min(len(h), s.config.Radix))/radix
		for i, x := range h {
			got, before := 0.0, -1.0
			if i > 0 {
				before = float64(g.Last[i-1])
			}
			if i < s.config.Radix {
				got = 1 / radix
			}
			if g.Even == 1 {
				got += hashed / float64(len(h))
			} else {
				got += hashed * (float64(g.Last[i]) - before) / (1 << 32)
			}
			if want := float64(x.Weight) / float64(total); math.Abs(got-want) > 1.0/(1<<31) {
				t.Fatalf("radix %d, %v: hop %d gets %v, not %v", s.config.Radix, h, i, got, want)
			}
		}
	}
}

func TestFits(t *testing.T) {
	s := newSelector(t, Config{Radix: 4})
	for _, c := range []struct {
		hops []Hop
		fits bool
	}{
		{hops(4), true},
		{hops(3), true},
		{[]Hop{{0, 1}, {1, 3}}, true},
		{[]Hop{{0, 1}, {1, 4}}, false}, // a fifth is less than a quarter
		{[]Hop{{-1, 1}, {1, 4}}, true}, // but not of the numbered one
		{[]Hop{{0, 2}, {1, 2}, {2, 2}, {3, 3}}, false},
		{[]Hop{{0, 1}, {9, 100}}, false},
		{hops(5), false}, // the fifth gets nothing
	} {
		if err := s.Fits(c.hops); (err == nil) != c.fits {
			t.Errorf("%v: %v", c.hops, err)
		}
	}
}

func TestBadGroups(t *testing.T) {
	s := newSelector(t, Config{})
	for _, h := range [][]Hop{nil, hops(65), {{0, 1}, {0, 1}}, {{0, 0}}, {{0, 1<<16 + 1}}} {
		if _, err := s.Group(h, 0); err == nil {
			t.Errorf("%v makes a group", h)
		}
	}
}

// Section 3.3, last paragraph, made better: when a hop goes, only flows that
// went there move, and steered ones of the other hops stay.
func TestLostHopMovesItsOwnFlowsOnly(t *testing.T) {
	r := soak.Rand(t)
	s := newSelector(t, Config{Key: randomKey(r)})
	router := NewRouter(s, "r")
	all := hops(7)
	before, err := s.Group(all, 1<<7-1)
	if err != nil {
		t.Fatal(err)
	}
	const lost = 2
	left := append(append([]Hop{}, all[:lost]...), all[lost+1:]...)
	after, err := s.Group(left, 1<<7-1)
	if err != nil {
		t.Fatal(err)
	}
	for range 20_000 {
		f := flow(r, false)
		was, how := router.Choose(f, 64, before)
		if how != Selected {
			continue // hashed ones may move, as in any group of N - 1
		}
		is, how := router.Choose(f, 64, after)
		switch {
		case was == lost && how != Gone:
			t.Fatalf("a flow of the lost hop is %s", how)
		case was != lost && (how != Selected || left[is].Port != all[was].Port):
			t.Fatalf("a flow of port %d moved to %d (%s)", all[was].Port, left[is].Port, how)
		}
	}
}

func TestSingle(t *testing.T) {
	s := newSelector(t, Config{})
	if hop, how := NewRouter(s, "r").Choose(pair(1, 2, 3, 4), 64, group(t, s, []Hop{{5, 1}})); hop != 0 || how != Single {
		t.Errorf("hop %d, %s", hop, how)
	}
}

var sink int

func BenchmarkChoose(b *testing.B) {
	for _, p := range []Permutation{None, Feistel, RC5, Skip32} {
		b.Run(string(p), func(b *testing.B) {
			s := newSelector(b, Config{Permutation: p})
			router, g := NewRouter(s, "r"), group(b, s, hops(4))
			f := flow(rand.New(rand.NewPCG(1, 1)), false)
			for i := range b.N {
				f.SrcPort = uint16(i)
				hop, _ := router.Choose(f, 64, g)
				sink += hop
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	s := newSelector(b, Config{})
	f := flow(rand.New(rand.NewPCG(1, 1)), false)
	for i := range b.N {
		if err := s.Encode(&f, []Step{{64, 1}, {63, 2}, {62, 3}}, uint64(i)); err != nil {
			b.Fatal(err)
		}
	}
}

// All source ports towards one destination port.
func BenchmarkSearch(b *testing.B) {
	s := newSelector(b, Config{})
	f := flow(rand.New(rand.NewPCG(1, 1)), false)
	for range b.N {
		err := s.Search(f, []Step{{64, 1}, {63, 2}}, 1, 65535, func(uint16) bool { sink++; return true })
		if err != nil {
			b.Fatal(err)
		}
	}
}

// A number that is no way of choosing, as of another build's maps, has a word,
// too.
func TestHowWords(t *testing.T) {
	for h, want := range map[How]string{Selected: "selected", Gone: "gone", Hashed: "hashed", Single: "single", 4: "how 4", 255: "how 255"} {
		if got := h.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(h), got, want)
		}
	}
}
