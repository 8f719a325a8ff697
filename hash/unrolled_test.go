package hash

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

func TestIPv4EqualsTuple(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], r.Uint64())
		key := Key{r.Uint64(), r.Uint64()}
		source := netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), binary.BigEndian.Uint16(b[4:]))
		want := Tuple(key, source, binary.BigEndian.Uint16(b[6:]))
		got := IPv4(&key, binary.LittleEndian.Uint32(b[:]), binary.LittleEndian.Uint32(b[4:]))
		if got != want {
			t.Fatalf("seed %d: IPv4(%v, %x) = %x, Tuple %x", seed, key, b, got, want)
		}
	}
}

func TestIPv6EqualsHash(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		var b [20]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0] = 0x20 // no mapped IPv4 address
		key := Key{r.Uint64(), r.Uint64()}
		source := netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])), binary.BigEndian.Uint16(b[16:]))
		want := Tuple(key, source, binary.BigEndian.Uint16(b[18:]))
		le := binary.LittleEndian
		if got := IPv6(&key, le.Uint64(b[:]), le.Uint64(b[8:]), le.Uint32(b[16:])); got != want {
			t.Fatalf("seed %d: IPv6(%v, %x) = %x, Tuple %x", seed, key, b, got, want)
		}
	}
}
