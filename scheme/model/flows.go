package model

import (
	"math/bits"

	"github.com/fairlead/fairlead/scheme/stateless"
	"github.com/fairlead/fairlead/wire"
)

// Flows is the fallback's bounded table of flows (bpf/lb/flows.h): buckets of
// eight entries, the oldest of which gives way. Memory 64 bytes a bucket,
// insertion and look-up constant time.
type Flows struct {
	Buckets [][8]uint64
}

// NewFlows has the given number of buckets, 1 at least.
func NewFlows(buckets int) *Flows { return &Flows{make([][8]uint64, max(buckets, 1))} }

// flowKey tells flows of different VIPs apart in the one table, and TCP
// connections by their ports even where the hash leaves ports out.
func flowKey(vip *VIP, k *packet, hash uint64) uint64 {
	x := hash + uint64(vip.ID)*0x9e3779b97f4a7c15
	if k.proto == wire.ProtoTCP && k.kind != fragment {
		ports := uint64(bits.ReverseBytes16(k.client.Port()))<<16 | uint64(bits.ReverseBytes16(k.vip.Port()))
		x += ports * 0xd6e8feb86659fd93
	}
	return x
}

func (f *Flows) bucket(x uint64) *[8]uint64 {
	return &f.Buckets[stateless.Scale(uint32(x), len(f.Buckets))]
}

// How long a flow is known after its last packet, in units of 1.024 s: two
// minutes for UDP (RFC 4787 §4.3), two hours and four minutes for TCP (RFC
// 5382 §5). The clock may be set back by flowSlack.
const (
	flowIdleUDP = 118
	flowIdleTCP = 7266
	flowSlack   = 64
)

// flowAge is an entry's age plus flowSlack.
func flowAge(e uint64, seconds uint16) uint16 { return seconds - uint16(e>>16) + flowSlack }

// Find is the flow's slot, or -1 where it is not known or was not used for
// longer than idle; it renews the entry's time (units of 1.024 s, 16 bits).
func (f *Flows) Find(x uint64, seconds, idle uint16) int {
	b := f.bucket(x)
	for i, e := range b {
		if e>>32 == x>>32 && e&0xffff != 0 {
			if flowAge(e, seconds) > idle+flowSlack {
				return -1
			}
			b[i] = e&^(0xffff<<16) | uint64(seconds)<<16
			return int(e&0xffff) - 1
		}
	}
	return -1
}

// Insert remembers the flow's slot in place of its own or the oldest entry.
func (f *Flows) Insert(x uint64, slot int, seconds uint16) {
	b := f.bucket(x)
	oldest, age := 0, uint32(0)
	for i, e := range b {
		a := uint32(0x10000) // empty: older than any
		if e&0xffff != 0 {
			a = uint32(flowAge(e, seconds))
			if e>>32 == x>>32 { // its own
				a = 0x20000
			}
		}
		if a > age {
			oldest, age = i, a
		}
	}
	b[oldest] = x>>32<<32 | uint64(seconds)<<16 | uint64(slot+1)
}
