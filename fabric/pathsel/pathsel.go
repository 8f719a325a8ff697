// Package pathsel is CFLB's path selector: the path of a flow through a fabric
// of routers, written into fields that the packet has anyway (Detal et al.,
// "Revisiting flow-based load balancing: stateless path selection in data
// center networks", Computer Networks 2013; sections 3.1 to 3.4).
//
// A selector is a number of Length digits in base Radix. A router that
// receives a packet with time to live t reads digit t mod Length and sends the
// packet out of the port that has this number, if that is one of the equal
// next hops to the destination; else it takes one of them by a hash. Ports are
// numbered per router and keep their numbers: a link that is lost moves no
// flow but its own. (The paper numbers the next hops of each destination anew
// at every change.)
//
// The selector stands in the controllable fields behind a keyed permutation,
// so that flows nobody steered spread evenly.
//
//	fields ──back──▶ selector ──digit t mod L──▶ less H(u, t) ──▶ port ──live?──▶ hop
//	                                                                └─no: hash─▶ hop
//
// A Selector is the fabric's and does both directions: Encode and Search are
// the source's, Digit the router's. A Router adds what differs per router: its
// own hash, and the hops that are equal at the moment (a Group).
//
// No I/O, no clock. bpf/include/pathsel.h is the same in C; a test holds them
// together.
package pathsel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
)

// Permutation names the keyed permutation between selector and fields.
type Permutation string

// The permutations. RC5 and Skip32 are the paper's, for 32 bits only.
const (
	Feistel Permutation = "feistel" // ours; the default; 16, 20 and 32 bits
	RC5     Permutation = "rc5"     // RC5-16/12/10: 16-bit words, 12 rounds, 10 bytes of key
	Skip32  Permutation = "skip32"  // 24 rounds, 10 bytes of key
	None    Permutation = "none"    // no selectors: routers' hashes alone, to compare with
)

// Field names the controllable fields of a packet.
type Field string

// The fields. What is not controllable is hashed with the addresses and the protocol.
const (
	Ports      Field = "ports"       // source port, then destination port: 32 bits; the default
	SourcePort Field = "source-port" // 16 bits
	FlowLabel  Field = "flow-label"  // IPv6 only: 20 bits
)

// Config is what all routers and hosts of a fabric share.
type Config struct {
	Key         [16]byte
	Permutation Permutation
	// Radix is the numeral base of selectors, 2 to 64: more than the number of
	// any port that shall be selected. A power of two wastes nothing; with
	// another, the values above the last whole multiple of Radix^Length select
	// nothing, so that digits stay even.
	Radix int
	IPv4  Field // Ports or SourcePort
	IPv6  Field // any
}

// Digest says whether two have the same selector, and hashes of the same build: 16
// hexadecimal digits that tell nobody the key.
func (c Config) Digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "fairlead selector %d %s %d %s %s %x", HashVersion, c.Permutation, c.Radix, c.IPv4, c.IPv6, c.Key))
	return hex.EncodeToString(sum[:8])
}

// Flow is what a router sees of a packet. Ports are 0 for protocols other
// than TCP and UDP, and for fragments, first ones too. Both addresses are of
// one family; IPv4 in IPv6 counts as IPv4.
//
// Controllable fields that are all 0 select nothing: fragments, portless
// protocols, packets without a flow label.
type Flow struct {
	Src, Dst         netip.Addr
	Proto            uint8
	SrcPort, DstPort uint16
	Label            uint32 // IPv6's flow label, 20 bits
}

// Step is one choice on a path: the router that receives the packet with this
// time to live (hop limit) shall send it out of the port with this number.
type Step struct {
	TTL  uint8
	Port uint8
}
