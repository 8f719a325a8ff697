package tables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
)

// VIPs stand in the balancer's and the host's VIP table: a
// cuckoo table of two candidate lines a key, both taken from one product, so
// that the program in the kernel reads at most two cache lines. BPF's half is
// bpf/include/vip_table.h; the product here mirrors it.

// MaxKeys is how many keys a table is trusted to take. A cuckoo table with two
// one-entry lines a key fills to one half before placements start to fail;
// a fifth below that, one of a few seeds does it, unless ports rise with the
// addresses: the product keeps such a pattern, and above 1,200 keys many seeds
// fail. A VIP is one key,
// and an address two or three: one for its ICMP, one for its fragments of TCP,
// one for those of UDP. So 546 VIPs with an address each fit, or 1,636 ports
// of one address.
const MaxKeys = bpf.VIPLines * 2 / 5

// Key is what a packet is looked up by.
type Key struct {
	Addr  netip.Addr // IPv4 and IPv4-in-IPv6 are the same key
	Port  uint16     // host byte order; 0: all ports
	Proto uint8      // IP protocol, or with FL_PROTO_FRAG
}

// ErrFull says that the keys found no place under any seed that was tried.
var ErrFull = errors.New("the VIP table is full")

// Words is the address as the program loads it: two little-endian words of the
// 16 bytes on the wire, IPv4 as ::ffff:a.b.c.d.
func (k Key) Words() [2]uint64 {
	b := k.Addr.As16()
	return [2]uint64{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// PortBE is the port as the program loads it from a packet.
func (k Key) PortBE() uint16 { return bits.ReverseBytes16(k.Port) }

// Candidates are the two lines (they can be one and the same) on which k may
// stand under seed: FL_VIP_LINE1 and FL_VIP_LINE2.
func Candidates(k Key, seed uint64) (first, second int) {
	w := k.Words()
	x := w[1] ^ w[0]*0x9e3779b97f4a7c15 ^ (uint64(k.PortBE())<<16 | uint64(k.Proto))
	x ^= x >> 32
	p := x * seed
	return int(p >> (64 - bpf.VIPBits)), int(p >> (64 - 2*bpf.VIPBits) & (bpf.VIPLines - 1))
}

const (
	maxSeeds = 2048 // seeds tried before the table counts as full
	maxKicks = 256  // moves of placed keys per new key; longest seen below MaxKeys is about 60
)

// Build places keys on lines and returns the line of each and the odd seed
// under which the kernel will find them there. It fails with ErrFull when
// they do not fit, and refuses a key that is given twice.
func Build(keys []Key, random *rand.Rand) (lines []int, seed uint64, err error) {
	if len(keys) > MaxKeys {
		return nil, 0, fmt.Errorf("%w: %d entries, at most %d fit", ErrFull, len(keys), MaxKeys)
	}
	seen := make(map[[3]uint64]bool, len(keys))
	for _, k := range keys {
		w := k.Words()
		id := [3]uint64{w[0], w[1], uint64(k.Port)<<8 | uint64(k.Proto)}
		if seen[id] {
			return nil, 0, fmt.Errorf("%v port %d protocol %d stands twice in the VIP table", k.Addr, k.Port, k.Proto)
		}
		seen[id] = true
	}
	for range maxSeeds {
		seed = random.Uint64() | 1
		if lines, ok := place(keys, seed, random); ok {
			return lines, seed, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: %d entries found no place under %d seeds", ErrFull, len(keys), maxSeeds)
}

// place tries one seed: each key takes one of its lines, and who stood there
// moves to its other one (cuckoo hashing, random walk).
func place(keys []Key, seed uint64, random *rand.Rand) ([]int, bool) {
	lines := make([]int, len(keys))
	holder := make([]int, bpf.VIPLines) // index of the key + 1
	for i := range keys {
		at := i
		first, second := Candidates(keys[i], seed)
		line := first
		if holder[first] != 0 && (holder[second] == 0 || random.Uint64()&1 == 1) {
			line = second
		}
		for kick := 0; ; kick++ {
			evicted := holder[line] - 1
			holder[line], lines[at] = at+1, line
			if evicted < 0 {
				break
			}
			if kick == maxKicks {
				return nil, false
			}
			at = evicted
			a, b := Candidates(keys[at], seed)
			if line == a {
				line = b
			} else {
				line = a
			}
		}
	}
	return lines, true
}
