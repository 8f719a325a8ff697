package tables

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// lookup is what the program in the kernel does: two lines, compare.
func lookup(table map[int]Key, k Key, seed uint64) (Key, bool) {
	a, b := Candidates(k, seed)
	for _, l := range []int{a, b} {
		if e, ok := table[l]; ok && e == k {
			return e, true
		}
	}
	return Key{}, false
}

func drawKey(t *rapid.T) Key {
	var a netip.Addr
	if rapid.Bool().Draw(t, "v6") {
		// Few distinct high halves: real prefixes look like that.
		b := [16]byte{0x20, 0x01, 0xd, 0xb8, rapid.Byte().Draw(t, "hi")}
		b[15], b[14] = rapid.Byte().Draw(t, "lo"), rapid.ByteRange(0, 3).Draw(t, "lo1")
		a = netip.AddrFrom16(b)
	} else {
		a = netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, "c"), rapid.Byte().Draw(t, "d")})
	}
	return Key{Addr: a, Port: rapid.SampledFrom([]uint16{0, 53, 80, 443, 8080}).Draw(t, "port"),
		Proto: rapid.SampledFrom([]uint8{1, 6, 17, 58, 6 | 0x80, 17 | 0x80}).Draw(t, "proto")}
}

// The table finds what a plain map finds, and nothing else.
func TestLookupAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.Custom(drawKey), 0, 300, func(k Key) Key { return k }).Draw(t, "keys")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		lines, seed, err := Build(keys, random)
		if err != nil {
			t.Fatal(err)
		}
		if seed&1 == 0 {
			t.Fatalf("seed %#x is even", seed)
		}
		table, dumb := map[int]Key{}, map[Key]bool{}
		for i, l := range lines {
			if other, taken := table[l]; taken {
				t.Fatalf("%v and %v both on line %d", other, keys[i], l)
			}
			table[l] = keys[i]
			dumb[keys[i]] = true
		}
		probes := append(rapid.SliceOfN(rapid.Custom(drawKey), 0, 50).Draw(t, "probes"), keys...)
		for _, k := range probes {
			if _, ok := lookup(table, k, seed); ok != dumb[k] {
				t.Fatalf("%v: found %v, want %v", k, ok, dumb[k])
			}
		}
	})
}

// A full table of one /16 with consecutive addresses, the shape of a real
// deployment and the worst one for a multiplicative hash.
func TestFillsToMaxKeys(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	var keys []Key
	for i := range MaxKeys {
		keys = append(keys, Key{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Port: 80, Proto: 6})
	}
	for range 20 {
		if _, _, err := Build(keys, random); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	over := append(keys, Key{Addr: netip.MustParseAddr("10.9.9.9"), Port: 80, Proto: 6})
	if _, _, err := Build(over, random); !errors.Is(err, ErrFull) {
		t.Errorf("%d keys: error %v, want ErrFull", len(over), err)
	}
}

func TestRefusesDuplicates(t *testing.T) {
	k := Key{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: 6}
	mapped := Key{Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Port: 80, Proto: 6}
	if _, _, err := Build([]Key{k, mapped}, rand.New(rand.NewPCG(1, 0))); err == nil {
		t.Error("the same key twice was placed")
	}
}
