// Package cheetah is the Go model of Cheetah's cookie (NSDI'20, §3.1, §3.2 and
// App. C), which names a server's slot within one VIP, and a seat at the balancer
// where that keeps state (scheme/seats), and travels in the TCP timestamp. BPF's twin is bpf/include/cookie.h; the
// differential tests hold the two together. No I/O, no clock.
package cheetah

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/hash"
)

// SkewMS is how far balancers' and hosts' clocks may differ, in
// milliseconds, either way (FL_SKEW_MS).
const SkewMS = 1000

// MinBits and MaxBits bound a cookie's width. One bit is the epoch's parity,
// the others name a slot.
const (
	MinBits = 10
	MaxBits = 15
)

// Layout is how a VIP's cookies lie in the timestamp.
type Layout struct {
	// Bits is the cookie's width, MinBits to MaxBits.
	Bits int
	// SeatBits are the lowest of its value, beside which it has the slot; 0: it has
	// no seat.
	SeatBits int
	// TierBits are the highest of its value, which name a balancer of tier two; 0: there
	// are no tiers.
	TierBits int
}

// Shift is the number of timestamp bits below the cookie (s in the docs).
func (l Layout) Shift() uint32 { return uint32(32 - l.Bits) }

// Slots is how many slots a cookie can name.
func (l Layout) Slots() int { return l.Values() >> l.SeatBits >> l.TierBits }

// Values is how many values a cookie can have.
func (l Layout) Values() int { return 1 << (l.Bits - 1) }

// Split takes a value apart (fl_value_slot, fl_value_seat), Join undoes it.
func (l Layout) Split(value uint32) (slot, seat uint32) {
	value &= 1<<(l.Bits-1-l.TierBits) - 1
	return value >> l.SeatBits, value & (1<<l.SeatBits - 1)
}

// Tier is a value's number of a balancer of tier two.
func (l Layout) Tier(value uint32) uint32 { return value >> (l.Bits - 1 - l.TierBits) }

// Join: see Split.
func (l Layout) Join(slot, seat uint32) uint32 { return slot<<l.SeatBits | seat }

// IdleLimit is the age up to which an echoed timestamp is decoded right with
// clocks that differ by at most SkewMS.
func (l Layout) IdleLimit() time.Duration {
	return time.Duration((1<<l.Shift())-2*SkewMS) * time.Millisecond
}

// maxKeepalive is after how much silence a connection is probed at the latest: soon enough
// for the state that firewalls and NAT keep of it.
const maxKeepalive = 2 * time.Minute

// Keepalive is after how much silence agents have a connection probed: a quarter of the idle
// limit, which leaves room for probes that get lost.
func (l Layout) Keepalive() time.Duration { return min(l.IdleLimit()/4, maxKeepalive) }

// Validate says what is wrong with the layout, if anything.
func (l Layout) Validate() error {
	if l.Bits < MinBits || l.Bits > MaxBits {
		return fmt.Errorf("cookie_bits %d: must be %d to %d", l.Bits, MinBits, MaxBits)
	}
	if l.TierBits < 0 || l.TierBits > l.Bits-2-max(l.SeatBits, 0) {
		return fmt.Errorf("tiers.bits %d: must leave a slot a bit of a cookie of %d", l.TierBits, l.Bits)
	}
	if l.SeatBits < 0 || l.SeatBits > l.Bits-2 {
		return fmt.Errorf("seat_bits %d: must leave a slot a bit of a cookie of %d", l.SeatBits, l.Bits)
	}
	return nil
}

// Told is what a balancer tells a server of a new connection, in the SYN's TSecr: the
// seat, beside FL_TOLD. 0: nothing.
func (l Layout) Told(seat uint32) uint32 {
	if seat == 0 {
		return 0
	}
	return 1<<31 | seat
}

// ToldTier is Told by the balancer of tier two that has this number.
func (l Layout) ToldTier(tier, seat uint32) uint32 {
	if l.TierBits == 0 {
		return l.Told(seat)
	}
	return 1<<31 | tier<<(l.Bits-1-l.TierBits) | seat
}

// VIPKey derives the key of one VIP from an epoch's secret, so that cookies
// of one VIP say nothing about another's. port is in host byte order, 0 for
// all ports; proto is the IP protocol number.
func VIPKey(secret []byte, addr netip.Addr, port uint16, proto uint8) hash.Key {
	m := hmac.New(sha256.New, secret)
	a := addr.As16()
	m.Write([]byte("fairlead vip key"))
	m.Write(a[:])
	m.Write([]byte{byte(port >> 8), byte(port), proto})
	s := m.Sum(nil)
	return hash.Key{binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])}
}

// Field is what a TSecr (or an ICMP-quoted TSval) carries at shared time
// nowMS: the epoch's parity and the permuted value.
func (l Layout) Field(ts, nowMS uint32) uint32 {
	return (ts - nowMS + (1<<l.Shift() - SkewMS)) >> l.Shift()
}

// Epoch is the parity of the epoch under which field was encoded.
func (l Layout) Epoch(field uint32) uint32 { return field >> (l.Bits - 1) & 1 }

// Value undoes the permutation that hash keys.
func (l Layout) Value(hash uint64, field uint32) uint32 {
	n := uint32(l.Bits - 1)
	mask, half := uint32(1)<<n-1, (n+1)/2
	x := field & mask
	x = (x + uint32(hash>>48)) * (uint32(hash) | 1) & mask
	x ^= x >> half
	x = (x + uint32(hash>>32)) * (uint32(hash>>16) | 1) & mask
	x ^= x >> half
	x = (x + uint32(hash>>8)) * (uint32(hash>>40) | 1) & mask
	x ^= x >> half
	x = (x + uint32(hash)) * (uint32(hash>>27) | 1) & mask
	return x ^ x>>half
}

// Encode is the field that has value under the epoch of the given parity.
func (l Layout) Encode(hash uint64, value, epoch uint32) uint32 {
	n := uint32(l.Bits - 1)
	mask, half := uint32(1)<<n-1, (n+1)/2
	x := value & mask
	x ^= x >> half
	x = (x*oddInverse(uint32(hash>>27)|1) - uint32(hash)) & mask
	x ^= x >> half
	x = (x*oddInverse(uint32(hash>>40)|1) - uint32(hash>>8)) & mask
	x ^= x >> half
	x = (x*oddInverse(uint32(hash>>16)|1) - uint32(hash>>32)) & mask
	x ^= x >> half
	x = (x*oddInverse(uint32(hash)|1) - uint32(hash>>48)) & mask
	return epoch&1<<n | x
}

// WireTS is the TSval that a host sends at shared time nowMS for field.
func (l Layout) WireTS(field, nowMS uint32) uint32 { return nowMS + field<<l.Shift() }

// oddInverse is a^-1 mod 2^24 at least, for odd a.
func oddInverse(a uint32) uint32 {
	x := a
	x *= 2 - a*x
	x *= 2 - a*x
	return x * (2 - a*x)
}
