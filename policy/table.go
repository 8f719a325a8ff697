// Package policy chooses the server of a connection's first packet: the
// tables that balancers' programs read, and a Go model of each choice that
// does exactly what bpf/lb/policy.h does, for tests, trace and simulator.
// Everything here is pure and deterministic; random numbers come from the
// caller.
package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"sort"
)

// Names of the policies, as in the configuration.
const (
	RR        = "rr"
	WRR       = "wrr"
	P2C       = "p2c"
	LeastConn = "least-conn"
	Hash      = "hash"
)

// Member is a server that takes new connections (state active).
type Member struct {
	Slot   uint16
	Weight int    // 1 to 65535; less counts as 1
	Name   string // names differ; the order of a table depends on them
}

// MaxEntries bounds a table of wrr (256 KiB in the data plane). When the
// weights, divided by their greatest common divisor, sum up to more, they are
// scaled down: a member's share is then off by at most half an entry, and no
// member is left without one.
const MaxEntries = 65536

// Entry is a table's entry, as FL_ENTRY_SLOT and FL_ENTRY_WEIGHT read it.
func Entry(slot uint16, weight int) uint32 { return uint32(slot) | uint32(weight)<<16 }

// EntrySlot and EntryWeight take an entry apart.
func EntrySlot(e uint32) uint16   { return uint16(e) }
func EntryWeight(e uint32) uint32 { return e >> 16 }

// Table is the table of a policy over the members, in any order.
//
//	rr           one entry a member, weights ignored, in an order that follows
//	             the names' hashes (so that neighbours in the file, which are
//	             often neighbours in a rack, are not)
//	wrr          a member of weight w has w entries (divided by the common
//	             divisor, bounded by MaxEntries), evenly spaced and starting at
//	             a phase that its name gives, so that members of equal weight
//	             do not march in step
//	p2c,         one entry a member with its weight, by slot: the data plane
//	least-conn   compares connections / weight
//	hash         none: the consistent-hash table takes new connections too
//
// Cost: O(entries · log entries). Cheetah §2 wants any policy to be possible;
// these are its uniform ones and the power of two choices.
func Table(policy string, members []Member) []uint32 {
	if len(members) == 0 {
		return nil
	}
	m := append([]Member(nil), members...)
	sort.Slice(m, func(i, j int) bool { return m[i].Slot < m[j].Slot })
	for i := range m {
		m[i].Weight = min(max(m[i].Weight, 1), 65535)
		if policy == RR {
			m[i].Weight = 1
		}
	}
	reduce(m)
	switch policy {
	case RR, WRR:
		return interleave(m)
	case P2C, LeastConn:
		table := make([]uint32, len(m))
		for i, x := range m {
			table[i] = Entry(x.Slot, x.Weight)
		}
		return table
	default:
		return nil
	}
}

// reduce divides the weights by their greatest common divisor.
func reduce(m []Member) {
	g := 0
	for _, x := range m {
		for a, b := x.Weight, g; ; a, b = b, a%b {
			if b == 0 {
				g = a
				break
			}
		}
	}
	for i := range m {
		m[i].Weight /= g
	}
}

// interleave gives member i its k-th entry at the moment (k + phase_i) / n_i,
// n_i entries being its due; the table is the order of these moments.
func interleave(m []Member) []uint32 {
	due := entries(m)
	type moment struct {
		at   uint64 // in units of 2^-40 of the table
		slot uint16
	}
	var all []moment
	for i, x := range m {
		sum := sha256.Sum256([]byte(x.Name))
		phase := uint64(binary.LittleEndian.Uint16(sum[:]))
		for k := range uint64(due[i]) {
			all = append(all, moment{(k<<16 + phase) << 24 / uint64(due[i]), x.Slot})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	table := make([]uint32, len(all))
	for i, x := range all {
		table[i] = Entry(x.slot, 1)
	}
	return table
}

// entries is each member's number of entries: its weight, scaled down and
// rounded when the sum exceeds MaxEntries.
func entries(m []Member) []int {
	due, total := make([]int, len(m)), 0
	for i, x := range m {
		due[i] = x.Weight
		total += x.Weight
	}
	if total <= MaxEntries {
		return due
	}
	for i, x := range m {
		due[i] = max(1, (x.Weight*MaxEntries+total/2)/total)
	}
	return due
}
