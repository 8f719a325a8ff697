package cheetah

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

func TestHashIPv4EqualsHash(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], r.Uint64())
		key := Key{r.Uint64(), r.Uint64()}
		source := netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), binary.BigEndian.Uint16(b[4:]))
		want := Hash(key, source, binary.BigEndian.Uint16(b[6:]))
		got := HashIPv4(&key, binary.LittleEndian.Uint32(b[:]), binary.LittleEndian.Uint32(b[4:]))
		if got != want {
			t.Fatalf("seed %d: HashIPv4(%v, %x) = %x, Hash %x", seed, key, b, got, want)
		}
	}
}

func TestHashIPv6EqualsHash(t *testing.T) {
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
		want := Hash(key, source, binary.BigEndian.Uint16(b[18:]))
		le := binary.LittleEndian
		if got := HashIPv6(&key, le.Uint64(b[:]), le.Uint64(b[8:]), le.Uint32(b[16:])); got != want {
			t.Fatalf("seed %d: HashIPv6(%v, %x) = %x, Hash %x", seed, key, b, got, want)
		}
	}
}
