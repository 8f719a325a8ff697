// Package chash is the family of consistent hashes. Each is a pure function
// of members' names and weights: every balancer that holds the same members
// computes the same table, whatever their order and the machine (integers
// only: floating point may differ between processors).
package chash

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"runtime"
	"sort"
	"sync"
)

// Member is a server as a consistent hash sees it.
type Member struct {
	Name string // what its rows depend on; names differ
	// Weight is its share, 1 to 65535; 0 or less: no row.
	Weight int
}

// Row counts that Rows recommends.
const (
	MinRows       = 1024
	MaxRows       = 65536
	rowsPerMember = 300
)

// Rows is the recommended number of rows: a power of two, at least 300 for
// each member (a member's share then varies by 1/√300 = 6 %, one standard
// deviation), between 1,024 and 65,536. Beyond 218 members the bound holds:
// 4,096 members have 16 rows each and shares vary by 25 %, which is what
// 256 KiB of table buys. Rows must not follow every change of the pool: a
// different number of rows remaps nearly all connections, so callers size
// for the pool's limit or keep the number while it serves.
func Rows(members int) int {
	rows := MinRows
	for rows < MaxRows && rows < members*rowsPerMember {
		rows *= 2
	}
	return rows
}

// TableHRW is table-HRW (JET, §4.2; weighted by Schindelhauer and Schomaker's
// logarithmic method): every row belongs to the member that wins a weighted
// rendezvous for it, and a packet takes row hash mod rows. It returns the
// member's index for each row; nil when no member has a weight. Members with
// equal names would share their rows' fate: the first in the list wins.
//
//	cost        rows × members hashes of about 1.5 ns over all processors;
//	            65,536 rows and 4,096 members take about 0.3 s on two
//	memory      8 bytes a row here, 4 in the data plane
//	balance     share = weight's share ± 1/√(rows of the member)
//	disruption  the least there can be: when a member joins, leaves or
//	            changes weight, only rows that it wins or loses change
//	order       of the members does not matter
func TableHRW(members []Member, rows int) []int {
	racers := make([]racer, 0, len(members))
	for i, m := range members {
		if m.Weight > 0 {
			racers = append(racers, racer{nameHash(m.Name), uint64(m.Weight), i, m.Name})
		}
	}
	if len(racers) == 0 || rows <= 0 {
		return nil
	}
	// Ties go to the first, so the order must come from the names.
	sort.SliceStable(racers, func(i, j int) bool { return racers[i].name < racers[j].name })
	table := make([]int, rows)
	workers := min(runtime.GOMAXPROCS(0), 1+rows*len(racers)/(1<<16))
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for r := rows * w / workers; r < rows*(w+1)/workers; r++ {
				table[r] = race(racers, mix(uint64(r)+1))
			}
		})
	}
	wait.Wait()
	return table
}

func nameHash(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:])
}

type racer struct {
	hash   uint64
	weight uint64
	index  int
	name   string
}

// race finds the winner of one row: the least -log2(u) / weight, where u in
// (0,1) is the member's hash for the row (an exponential race, in which each
// wins with probability weight / sum of weights).
//
// The logarithm is costly, and hardly ever needed: -ln(u) >= 1-u, so a member
// whose (1-u) / weight is above the best so far cannot win. bound is that
// best, as a fraction of 2^32 for weight 1, rounded up.
func race(racers []racer, row uint64) int {
	best, bestLog, bestWeight := -1, uint64(0), uint64(1)
	bound := uint64(1) << 33 // everything passes
	for i := range racers {
		m := &racers[i]
		u := mix(m.hash ^ row)
		if (^u)>>32 > m.weight*bound {
			continue
		}
		l := negLog2(u)
		// l / weight < bestLog / bestWeight, without dividing.
		lh, ll := bits.Mul64(l, bestWeight)
		bh, bl := bits.Mul64(bestLog, m.weight)
		if best >= 0 && (lh > bh || lh == bh && ll >= bl) {
			continue
		}
		best, bestLog, bestWeight = m.index, l, m.weight
		// -ln(u) = l · ln 2 / 2^48; in units of 2^-32: l · ln 2 >> 16. The
		// product is taken 2^16 finer (ln 2 = 0.B1721 / 2^20), then rounded up.
		bound = min((l>>16+1)*0xB1722>>20/m.weight+1, 1<<33)
	}
	return best
}

// negLog2 is -log2(u / 2^64) in units of 2^-48, at most 64·2^48. Squaring the
// mantissa shifts the next bit of its logarithm above the point.
func negLog2(u uint64) uint64 {
	u |= 1 // 0 has no logarithm
	whole := bits.LeadingZeros64(u)
	m := u << whole // mantissa in [2^63, 2^64): 1.xxx
	var frac uint64
	for range 48 {
		frac <<= 1
		hi, lo := bits.Mul64(m, m)
		if hi >= 1<<63 { // square is 2 or more: in [2,4) the point moves
			frac |= 1
			m = hi
		} else {
			m = hi<<1 | lo>>63
		}
	}
	// log2(u/2^64) = -whole - 1 + log2(1.xxx)
	return uint64(whole+1)<<48 - frac
}

// mix is the finalizer of MurmurHash3: each bit of x moves about half of the
// result's.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
