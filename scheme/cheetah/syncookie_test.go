package cheetah

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/soak"
)

// What a SYN cookie was given comes back, MSS rounded down; another segment, client,
// time or key gives it back at random alone.
func TestSYNCookieRoundTrip(t *testing.T) {
	r := soak.Rand(t)
	key := hash.Key{r.Uint64(), r.Uint64()}
	wrong := 0
	const rounds = 20000
	for range rounds {
		ipv6 := r.IntN(2) == 1
		h := Handshake{Connection: r.Uint64(), Time: r.Uint32(), Timestamps: r.IntN(4) > 0, Scale: uint8(r.IntN(15))}
		o := Offer{MSS: uint16(536 + r.IntN(9000)), Scale: NoScale}
		if h.Timestamps {
			o.Scale, o.SACK, o.ECN = uint8(r.IntN(16)), r.IntN(2) == 1, r.IntN(2) == 1
		}
		isn := r.Uint32()
		n, ok := h.Number(key, isn, o, ipv6)
		if ok != (o.MSS >= mssSteps[family(ipv6)][0]) {
			t.Fatalf("%+v over IPv6 %v: ok %v", o, ipv6, ok)
		}
		if !ok {
			continue
		}
		e := h.End(key, n, isn, ipv6)
		if !e.Whole || e.Offer.MSS > o.MSS || o.MSS-e.Offer.MSS > 7500 || e.Offer.Scale != o.Scale || e.Offer.SACK != o.SACK || e.Offer.ECN != o.ECN {
			t.Fatalf("%+v became %+v", o, e)
		}
		if later := h.End(key, n, isn+uint32(1+r.IntN(60000)), ipv6); !later.Early {
			t.Fatal("a later segment is of no handshake")
		} else if later.Whole {
			wrong++
		}
		other := h
		other.Connection++
		if other.End(key, n, isn, ipv6).Whole {
			wrong += 100
		}
	}
	// 1 in 2,048 of later segments, 1 in 8 million of others.
	if wrong > 3*rounds/2048 {
		t.Errorf("%d of %d passed for the first segment", wrong, rounds)
	}
}

// What a client has without timestamps is told apart by everything of it.
func TestBare(t *testing.T) {
	key, client := hash.Key{1, 2}, netip.MustParseAddrPort("192.0.2.7:4000")
	all := map[uint64]bool{Bare(key, client, 80, 1): true, Bare(key, client, 81, 1): true, Bare(key, client, 80, 2): true,
		Bare(key, netip.AddrPortFrom(client.Addr(), 4001), 80, 1): true, Bare(key, netip.MustParseAddrPort("192.0.2.8:4000"), 80, 1): true}
	if len(all) != 5 {
		t.Errorf("%d of 5 are different", len(all))
	}
}
