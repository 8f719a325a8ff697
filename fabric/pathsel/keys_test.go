package pathsel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

// uneven looks for a kind of traffic that four routers in a row do not spread
// evenly over 16 hops under a key; "" if all is well. 16, as with radix 16 each
// digit then is a hop of its own, and no skew is hidden by the group's hash.
func uneven(t *testing.T, c Config) string {
	t.Helper()
	const flows, hopCount = 20_000, 16
	s := newSelector(t, c)
	g := group(t, s, hops(hopCount))
	for kind, nth := range traffic {
		for at := range 4 {
			router, counts := NewRouter(s, fmt.Sprint("router", at)), make([]int, hopCount)
			for i := range uint32(flows) {
				hop, _ := router.Choose(nth(i), uint8(64-at), g)
				counts[hop]++
			}
			if chi2, far := far(counts, even(hopCount)); far {
				return fmt.Sprintf("%s, router %d: χ² %.0f: %v", kind, at, chi2, counts)
			}
		}
	}
	return ""
}

// Under these keys H, when it was of one multiplication, sent some of 16 hops
// a tenth more of the pairs of addresses than others: as the sum of pairs that
// follow one another changes in few bits of its lower half, the xorshift leaves
// it nearly linear, and for some factors its steps went round the hops in time.
func TestKeysThatOnceSkewed(t *testing.T) {
	for key, c := range map[string]Config{
		"b43445558bff788476f120730d7adf87": {Permutation: RC5},
		"36fe4c81028f7ae307262ae92ff5a790": {Permutation: RC5},
		"0f4023ab0dab381a537a54ecf948d416": {Permutation: Feistel, IPv4: SourcePort},
		"d5b87183fd49604b9075baa918a5b69b": {Permutation: Feistel, IPv4: SourcePort},
	} {
		if _, err := hex.Decode(c.Key[:], []byte(key)); err != nil {
			t.Fatal(err)
		}
		if found := uneven(t, c); found != "" {
			t.Errorf("key %s, %s: %s", key, c.Permutation, found)
		}
	}
}

// No key is weak: five of each configuration at every run, ten thousand in a soak.
func TestNoKeySkews(t *testing.T) {
	r, keys := soak.Rand(t), 30
	if soak.On() {
		keys = 10_000
	}
	configs := []Config{
		{Permutation: Feistel, Radix: 16}, {Permutation: RC5, Radix: 16}, {Permutation: Feistel, Radix: 16, IPv4: SourcePort, IPv6: FlowLabel},
		{Permutation: Feistel, Radix: 17}, {Permutation: Feistel, Radix: 64}, {Permutation: None},
	}
	for n := range keys {
		c := configs[n%len(configs)]
		c.Key = randomKey(r)
		if found := uneven(t, c); found != "" {
			t.Errorf("key %x, %s, radix %d, %s: %s", c.Key, c.Permutation, c.Radix, c.IPv4, found)
		}
	}
}

// pair6 are addresses of IPv6 that count in their last octets.
func pair6(src, dst uint32, sport, dport uint16) Flow {
	f := pair(src, dst, sport, dport)
	six := func(a netip.Addr) netip.Addr {
		b, four := netip.MustParseAddr("2001:db8::").As16(), a.As4()
		copy(b[12:], four[:])
		return netip.AddrFrom16(b)
	}
	f.Src, f.Dst = six(f.Src), six(f.Dst)
	return f
}

// Who changes a hash or what it reads counts HashVersion up: a fabric of
// several builds says then that it is one.
func TestHashVersion(t *testing.T) {
	const want = "2: eade0b57aa2c9184"
	sum := sha256.New()
	for _, c := range []Config{{}, {Radix: 17, IPv4: SourcePort, IPv6: FlowLabel}, {Permutation: None}} {
		s := newSelector(t, c)
		router, r := NewRouter(s, "router"), rand.New(rand.NewPCG(1, 2))
		for i := range 1000 {
			c := router.Read(flow(r, i%2 == 1), uint8(i))
			fmt.Fprintln(sum, c.own, c.digit, c.how)
		}
	}
	if got := fmt.Sprintf("%d: %x", HashVersion, sum.Sum(nil)[:8]); got != want {
		t.Errorf("version and choices are %s, not %s", got, want)
	}
}
