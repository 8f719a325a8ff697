// Package stateless is the Go model of the baseline scheme: every packet goes
// where a consistent hash of its tuple points, and nothing is remembered. A
// connection breaks when its row changes hands, which is what the other
// schemes are measured against. It is also what the others fall back to for
// packets that carry no cookie. BPF's twin is bpf/lb/scheme_jet.h with
// bpf/lb/place.h. No I/O, no clock.
package stateless

import (
	"net/netip"

	"github.com/fairlead/fairlead/scheme/cheetah"
)

// Hash is the hash of a flow under the key that never rotates. A VIP that
// keeps a client address together (affinity, fragments by addresses) leaves
// the ports out.
func Hash(key cheetah.Key, src netip.AddrPort, dstPort uint16, ports bool) uint64 {
	if !ports {
		src, dstPort = netip.AddrPortFrom(src.Addr(), 0), 0
	}
	return cheetah.Hash(key, src, dstPort)
}

// Row is the row of a consistent-hash table of size rows: the upper half of
// the hash, scaled. size 0 has none: 0.
func Row(hash uint64, size int) int { return Scale(uint32(hash>>32), size) }

// Scale maps 32 random bits to 0..size-1 without a division (fl_scale).
func Scale(random uint32, size int) int { return int(uint64(random) * uint64(size) >> 32) }
