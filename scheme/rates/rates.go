// Package rates bounds packets and new connections a second, by connection and by
// source prefix, as bpf/lb/rates.h does, whose model it is. A bucket is one word: when
// it will be full, in ms of the shared clock with 32 bits behind the point; what comes
// makes that later by a step, and nothing passes that finds it a second away. No I/O,
// no clock.
package rates

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
)

const (
	second = 1000 << 32
	never  = 8000 << 32 // a bucket that says it is full later than this was written by another clock
	// Most is the highest limit, a second.
	Most = 100_000_000
	ways = len(bpf.RateSet{}.Entry)
)

// Step is how much later a bucket is full by what it lets through, where it lets so much
// through a second; 0: there is no limit.
func Step(limit int) uint64 {
	if limit == 0 {
		return 0
	}
	return second / uint64(limit)
}

// Limit is that of a step.
func Limit(step uint64) int {
	if step == 0 {
		return 0
	}
	return int((second + step/2) / step)
}

func fills(due, at uint64) bool { return due-at < never }

// Take takes from a bucket at shared time nowMS. False: there is not enough in it.
func Take(due *uint64, step uint64, nowMS uint32) bool {
	at := uint64(nowMS) << 32
	switch {
	case !fills(*due, at):
		*due = at + step
		return true
	case *due-at >= second:
		return false
	}
	*due += step
	return true
}

// Sources is the table of sources' buckets.
type Sources []bpf.RateSet

// Sets is how many sets there are for so many buckets.
func Sets(buckets int) int { return max(1, (buckets+ways-1)/ways) }

// Masks are of the prefixes of sources: of the second word of an IPv4 address, and of an
// IPv6 one.
func Masks(bits4, bits6 int) (four uint64, six [2]uint64) {
	words := func(a [16]byte) [2]uint64 {
		return [2]uint64{binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:])}
	}
	var ones [16]byte
	for i := range ones {
		ones[i] = 0xff
	}
	a := netip.AddrFrom16(ones)
	return words(netip.PrefixFrom(a, 96+bits4).Masked().Addr().As16())[1], words(netip.PrefixFrom(a, bits6).Masked().Addr().As16())
}

// Take takes from the bucket of a source's prefix of a VIP, of this kind
// (bpf.RatePackets or RateOpens). lost: another's gave way that was not full.
func (t Sources) Take(key hash.Key, source netip.Addr, r *bpf.Rates, vip uint32, kind uint16, step uint64, nowMS uint32) (passes, lost bool) {
	a := source.As16()
	words := [2]uint64{binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(a[8:])}
	if source.Is4() {
		words = [2]uint64{0, words[1] & r.Mask4}
	} else {
		words[0], words[1] = words[0]&r.Mask6[0], words[1]&r.Mask6[1]
	}
	name := hash.Words(key, words[0], words[1], uint64(uint16(vip))|uint64(kind)<<16) | 1
	set, at := &t[name>>32*uint64(len(t))>>32], uint64(nowMS)<<32
	first, least := 0, ^uint64(0)
	for i := range set.Entry {
		e := &set.Entry[i]
		if e.Key == name {
			return Take(&e.Due, step, nowMS), false
		}
		due := uint64(0)
		if fills(e.Due, at) {
			due = e.Due - at
		}
		if due < least {
			first, least = i, due
		}
	}
	e := &set.Entry[first]
	e.Key = name
	if least == 0 {
		return Take(&e.Due, step, nowMS), false
	}
	e.Due = at + step
	return true, true
}
