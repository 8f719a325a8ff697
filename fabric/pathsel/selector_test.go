package pathsel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

func newSelector(t testing.TB, c Config) *Selector {
	t.Helper()
	if c.Permutation == "" {
		c.Permutation = Feistel
	}
	if c.Radix == 0 {
		c.Radix = 16
	}
	if c.IPv4 == "" {
		c.IPv4 = Ports
	}
	if c.IPv6 == "" {
		c.IPv6 = Ports
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// flow is TCP between random addresses, its ports filled.
func flow(r *rand.Rand, six bool) Flow {
	b := make([]byte, 16)
	address := func() netip.Addr {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if six {
			return netip.AddrFrom16([16]byte(b))
		}
		return netip.AddrFrom4([4]byte(b))
	}
	return Flow{
		Src: address(), Dst: address(), Proto: protoTCP,
		SrcPort: 1 + uint16(r.IntN(65535)), DstPort: 1 + uint16(r.IntN(65535)), Label: 1 + uint32(r.IntN(1<<20-1)),
	}
}

// Section 3.2: L is the whole part of log_B(2^X).
func TestLength(t *testing.T) {
	for _, c := range []struct {
		radix  int
		field  Field
		length int
	}{
		{16, Ports, 8}, {16, SourcePort, 4}, {16, FlowLabel, 5},
		{3, Ports, 20}, // the paper's example
		{2, Ports, 32}, {64, Ports, 5}, {64, SourcePort, 2}, {10, FlowLabel, 6}, {8, Ports, 10}, {4, SourcePort, 8},
	} {
		s := newSelector(t, Config{Radix: c.radix, IPv6: c.field})
		if got := s.Length(true); got != c.length {
			t.Errorf("radix %d, %s: length %d, not %d", c.radix, c.field, got, c.length)
		}
	}
}

func TestBadConfig(t *testing.T) {
	good := Config{Permutation: Feistel, Radix: 16, IPv4: Ports, IPv6: Ports}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Radix = 1 }, "radix: 1 is not one of 2 to 64"},
		{func(c *Config) { c.Radix = 65 }, "radix: 65"},
		{func(c *Config) { c.Permutation = "aes" }, `permutation: "aes" is none of`},
		{func(c *Config) { c.IPv4 = FlowLabel }, "ipv4: flow-label: IPv4 has no flow label"},
		{func(c *Config) { c.IPv6 = "ttl" }, `ipv6: "ttl" is none of`},
		{func(c *Config) { c.Permutation, c.IPv6 = RC5, FlowLabel }, "ipv6: flow-label has 20 bits and permutation rc5 needs 32"},
		{func(c *Config) { c.Permutation, c.IPv4 = Skip32, SourcePort }, "ipv4: source-port has 16 bits"},
	} {
		bad := good
		c.change(&bad)
		_, err := New(bad)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error is %v, not %q", err, c.want)
		}
	}
}

// Section 3.3, equations 3 to 6: what a source encodes, routers read.
func TestRoutersReadWhatIsEncoded(t *testing.T) {
	r := soak.Rand(t)
	for _, permutation := range []Permutation{Feistel, RC5, Skip32} {
		for _, radix := range []int{2, 3, 7, 10, 16, 48, 64} {
			for _, field := range []Field{Ports, SourcePort, FlowLabel} {
				if permutation != Feistel && field != Ports {
					continue
				}
				s := newSelector(t, Config{Key: randomKey(r), Permutation: permutation, Radix: radix, IPv6: field})
				for range 200 {
					f, steps := flow(r, true), randomSteps(r, s)
					if err := s.Encode(&f, steps, r.Uint64()); err != nil {
						t.Fatalf("%s, radix %d, %s, %v: %v", permutation, radix, field, steps, err)
					}
					for _, step := range steps {
						if port, controlled := s.Digit(f, step.TTL); !controlled || port != int(step.Port) {
							t.Fatalf("%s, radix %d, %s: at time to live %d port %d (%v), not %d", permutation, radix, field, step.TTL, port, controlled, step.Port)
						}
					}
				}
			}
		}
	}
}

// randomSteps leave a digit free, and lie within a length.
func randomSteps(r *rand.Rand, s *Selector) (steps []Step) {
	length := s.Length(true)
	first := length + r.IntN(255-length)
	for _, back := range r.Perm(length)[1:] {
		steps = append(steps, Step{TTL: uint8(first - back), Port: uint8(r.IntN(s.Config().Radix))})
	}
	return steps
}

// Section 3.2: unused digits and another initial time to live give several
// selectors of one path.
func TestSeveralSelectorsOfOnePath(t *testing.T) {
	r := soak.Rand(t)
	s := newSelector(t, Config{Key: randomKey(r)})
	f, seen := flow(r, false), map[[2]uint16]bool{}
	for i := range 1000 {
		if err := s.Encode(&f, []Step{{64, 3}, {62, 9}}, uint64(i)); err != nil {
			t.Fatal(err)
		}
		seen[[2]uint16{f.SrcPort, f.DstPort}] = true
		if f.SrcPort < unprivileged || f.DstPort < unprivileged {
			t.Fatalf("ports %d and %d, with six digits free", f.SrcPort, f.DstPort)
		}
	}
	if len(seen) < 990 {
		t.Errorf("1000 calls found %d selectors", len(seen))
	}
	// With every digit asked for there is one selector for each initial time to live.
	full := func(ttl uint8) []Step {
		steps := make([]Step, s.Length(false))
		for i := range steps {
			steps[i] = Step{ttl - uint8(i), uint8(i)}
		}
		return steps
	}
	one, other := f, f
	if err := errors.Join(s.Encode(&one, full(64), 1), s.Encode(&other, full(63), 2)); err != nil {
		t.Fatal(err)
	}
	if one == other {
		t.Error("another initial time to live is the same selector")
	}
}

func TestCollisions(t *testing.T) {
	r := soak.Rand(t)
	s := newSelector(t, Config{Key: randomKey(r), IPv6: SourcePort})
	steps := []Step{{64, 1}, {63, 2}, {60, 3}}
	if err := s.Collide(false, steps); err != nil {
		t.Errorf("8 digits: %v", err)
	}
	err := s.Collide(true, steps)
	if !errors.Is(err, ErrCollision) || !strings.Contains(err.Error(), "64 (port 1) and 60 (port 3), as a selector has 4 digits") {
		t.Errorf("4 digits: %v", err)
	}
	// One flow in radix happens to fit both; the others are refused.
	fits := 0
	for range 4000 {
		f := flow(r, true)
		switch err := s.Encode(&f, steps, r.Uint64()); {
		case err == nil:
			fits++
			if port, _ := s.Digit(f, 60); port != 3 {
				t.Fatalf("fits, and reads %d", port)
			}
		case !errors.Is(err, ErrCollision):
			t.Fatal(err)
		}
	}
	if fits < 160 || fits > 340 { // 250, six deviations of 15
		t.Errorf("%d of 4000 flows fit, not one in 16", fits)
	}
}

func TestEncodeRefuses(t *testing.T) {
	s := newSelector(t, Config{})
	r := rand.New(rand.NewPCG(1, 1))
	f := flow(r, false)
	mixed, icmp := f, f
	mixed.Dst, icmp.Proto = netip.MustParseAddr("fd00::1"), 1
	for _, c := range []struct {
		flow  Flow
		steps []Step
		want  string
	}{
		{f, []Step{{64, 16}}, "port 16 is no digit of radix 16; give the fabric a radix of more than 16"},
		{mixed, nil, "not of one family"},
		{icmp, nil, "protocol 1 has no ports"},
	} {
		if err := s.Encode(&c.flow, c.steps, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, not %q", err, c.want)
		}
	}
	none := newSelector(t, Config{Permutation: None})
	if err := none.Encode(&f, nil, 1); err == nil {
		t.Error("a fabric without selectors encodes one")
	}
}

// Section 5: when the destination port is given, source ports are searched.
func TestSearch(t *testing.T) {
	r := soak.Rand(t)
	for _, field := range []Field{Ports, SourcePort} {
		s := newSelector(t, Config{Key: randomKey(r), IPv4: field})
		for choices := 1; choices <= 3; choices++ {
			f, steps := flow(r, false), []Step{{64, 4}, {63, 11}, {62, 0}}[:choices]
			f.DstPort = 6080
			var got []uint16
			err := s.Search(f, steps, 1024, 65535, func(p uint16) bool { got = append(got, p); return true })
			if err != nil {
				t.Fatal(err)
			}
			var want []uint16
			for p := 1024; p <= 65535; p++ {
				f.SrcPort = uint16(p)
				if takes(s, f, steps) {
					want = append(want, uint16(p))
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %d choices: Search finds %d ports, %d take the path", field, choices, len(got), len(want))
			}
		}
	}
}

func takes(s *Selector, f Flow, steps []Step) bool {
	for _, step := range steps {
		if port, controlled := s.Digit(f, step.TTL); !controlled || port != int(step.Port) {
			return false
		}
	}
	return true
}

func TestSearchStopsAndFails(t *testing.T) {
	r := soak.Rand(t)
	s := newSelector(t, Config{Key: randomKey(r)})
	f, calls := flow(r, false), 0
	if err := s.Search(f, []Step{{64, 4}}, 1024, 65535, func(uint16) bool { calls++; return calls < 3 }); err != nil || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	var steps []Step
	for i := range 8 {
		steps = append(steps, Step{uint8(64 - i), 5})
	}
	err := s.Search(f, steps, 32768, 32777, func(uint16) bool { return true })
	if !errors.Is(err, ErrNoSelector) || !strings.Contains(err.Error(), "8 choices of 16") {
		t.Errorf("ten ports and eight choices: %v", err)
	}
}

// What has no fields is not controlled: fragments, ICMP, IPv6 without a label.
func TestNoFields(t *testing.T) {
	r := soak.Rand(t)
	s := newSelector(t, Config{Key: randomKey(r), IPv6: FlowLabel})
	four, six := flow(r, false), flow(r, true)
	four.SrcPort, four.DstPort, six.Label = 0, 0, 0
	for _, f := range []Flow{four, six} {
		if _, controlled := s.Digit(f, 64); controlled {
			t.Errorf("%+v is controlled", f)
		}
	}
}

// IPv4 in IPv6 is IPv4, as Go's sockets may write it.
func TestMappedAddresses(t *testing.T) {
	r := soak.Rand(t)
	s := newSelector(t, Config{Key: randomKey(r), IPv6: FlowLabel})
	f := flow(r, false)
	g := f
	g.Src, g.Dst = netip.AddrFrom16(f.Src.As16()), netip.AddrFrom16(f.Dst.As16())
	for ttl := range 256 {
		a, _ := s.Digit(f, uint8(ttl))
		b, _ := s.Digit(g, uint8(ttl))
		if a != b {
			t.Fatalf("time to live %d: %d, and %d as IPv4 in IPv6", ttl, a, b)
		}
	}
}
