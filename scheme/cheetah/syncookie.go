package cheetah

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/fairlead/fairlead/hash"
)

// The SYN cookies with which agents answer for the stack (VIPs with `handshake:
// offload`). BPF's twin is bpf/host/syncookie.h, which says what they are made of.

// OffloadMS is how long a handshake that an agent answered can be ended
// (FL_OFFLOAD_MS).
const OffloadMS = 32768

const (
	earlyBits, wholeBits, optionsBits = 12, 11, 9
	// NoScale says that a client did not offer to scale windows.
	NoScale = 15
)

// mssSteps are what a client's MSS is rounded down to, over IPv4 and IPv6.
var mssSteps = [2][8]uint16{{536, 1220, 1300, 1360, 1400, 1440, 1460, 8960}, {1220, 1300, 1340, 1380, 1400, 1420, 1440, 8940}}

// Offer is what a client's SYN offers, as far as a SYN cookie remembers it.
type Offer struct {
	MSS       uint16
	Scale     uint8 // NoScale: none
	SACK, ECN bool
}

// step is the number of the largest step that is not above the MSS; ok is false where
// all are.
func (o Offer) step(ipv6 bool) (n int, ok bool) {
	n = -1
	for _, mss := range mssSteps[family(ipv6)] {
		if mss <= o.MSS {
			n++
		}
	}
	return n, n >= 0
}

func family(ipv6 bool) int {
	if ipv6 {
		return 1
	}
	return 0
}

func (o Offer) pack(ipv6 bool) (bits uint32, ok bool) {
	n, ok := o.step(ipv6)
	bits = uint32(n) | uint32(o.Scale)<<3
	if o.SACK {
		bits |= 1 << 7
	}
	if o.ECN {
		bits |= 1 << 8
	}
	return bits, ok
}

func unpack(b uint32, ipv6 bool) Offer {
	return Offer{MSS: mssSteps[family(ipv6)][b&7], Scale: uint8(b >> 3 & 15), SACK: b>>7&1 != 0, ECN: b>>8&1 != 0}
}

// Handshake is what a SYN cookie is bound to, beside the client's first number.
type Handshake struct {
	// Connection is its hash under the VIP's key, without timestamps Bare.
	Connection uint64
	// Time is TSval of the answer; without timestamps shared ms in halves of OffloadMS.
	Time       uint32
	Timestamps bool
	// Scale is by what our own windows are shifted.
	Scale uint8
}

// Bare names a connection whose client has no timestamps.
func Bare(key hash.Key, client netip.AddrPort, port uint16, vip uint32) uint64 {
	b := client.Addr().As16()
	words := [2]uint64{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
	return hash.Words(key, words[0], words[1],
		uint64(bits.ReverseBytes16(client.Port()))|uint64(bits.ReverseBytes16(port))<<16|uint64(vip)<<32)
}

func (h Handshake) macs(key hash.Key, isn uint32) (first, second uint64) {
	form := uint64(h.Scale) << 8
	if h.Timestamps {
		form |= 1
	}
	time := uint64(h.Time) | form<<32
	return hash.Words(key, h.Connection, time), hash.Words(key, h.Connection, time, uint64(isn))
}

// Number is the first sequence number with which the client's, isn, is answered; ok is
// false where its MSS is too small for any.
func (h Handshake) Number(key hash.Key, isn uint32, offer Offer, ipv6 bool) (number uint32, ok bool) {
	options, ok := offer.pack(ipv6)
	first, second := h.macs(key, isn)
	hidden := (options ^ uint32(first)) & (1<<optionsBits - 1)
	early := uint32(first>>optionsBits) & (1<<earlyBits - 1)
	whole := uint32(second) & (1<<wholeBits - 1)
	return hidden<<(earlyBits+wholeBits) | early<<wholeBits | whole, ok
}

// Ended is what an ACK says of its handshake.
type Ended struct {
	// Early: it is one of ours. Whole: and the segment is the first that follows it.
	Early, Whole bool
	Offer        Offer
}

// End reads the number that an ACK acknowledges, less one; isn is the ACK's own, less one.
func (h Handshake) End(key hash.Key, number, isn uint32, ipv6 bool) (e Ended) {
	first, second := h.macs(key, isn)
	e.Offer = unpack(number>>(earlyBits+wholeBits)^uint32(first)&(1<<optionsBits-1), ipv6)
	e.Early = (number>>wholeBits^uint32(first>>optionsBits))&(1<<earlyBits-1) == 0
	if !h.Timestamps && (e.Offer.Scale != NoScale || e.Offer.SACK || e.Offer.ECN) {
		e.Early = false
	}
	e.Whole = e.Early && (number^uint32(second))&(1<<wholeBits-1) == 0
	return e
}
