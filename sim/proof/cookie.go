package proof

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
)

// cookieCount is what came of the product's cookies of one width.
type cookieCount struct {
	// Cookies given and read again, one a slot for each identifier and epoch.
	Cookies int64
	// Wrong ones named another slot, Shared ones were two slots' of the same
	// connection.
	Wrong, Shared int64
}

// countCookies gives every slot's cookie of a width to so many connection
// identifiers, under each epoch, and reads it again as a balancer does, which
// is not told the active set. k slots have k values here: the least that can
// do (and one bit more names the epoch).
func countCookies(ctx context.Context, bits, identifiers int, r *rand.Rand) (n cookieCount, err error) {
	l := cheetah.Layout{Bits: bits}
	for range identifiers {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		var address [4]byte
		binary.BigEndian.PutUint32(address[:], r.Uint32())
		from := netip.AddrPortFrom(netip.AddrFrom4(address), uint16(r.Uint32()))
		keys := [2]hash.Key{{r.Uint64(), r.Uint64()}, {r.Uint64(), r.Uint64()}}
		port := uint16(r.Uint32())
		for epoch := range uint32(2) {
			now := r.Uint32() // shared milliseconds
			seen := make([]bool, l.Slots())
			for slot := range uint32(l.Slots()) {
				stamp := l.Stamp(keys[epoch], epoch, from, port, slot, now)
				later := now + r.Uint32N(uint32(l.IdleLimit().Milliseconds()))
				d := l.Decode(keys, 3, from, port, stamp, later)
				n.Cookies++
				if d.Slot != slot || d.Epoch != epoch {
					n.Wrong++
				}
				value := d.Field & uint32(l.Slots()-1)
				if seen[value] {
					n.Shared++
				}
				seen[value] = true
			}
		}
	}
	return n, nil
}
