package chash

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"
)

const (
	// tableReplicas is the number of points of a member of weight 1 in a
	// table: its share then varies by 1/√256 = 6 %, as table-hrw's does by
	// Rows' recommendation.
	tableReplicas = 256
	// maxTablePoints bounds the points that go into one table: about a
	// second's work.
	maxTablePoints = 1 << 28
)

// compileRing is the table of a ring: each row belongs to the successor of
// the row's first key. So only the least point of each row counts, and rows
// without any belong to whom the next row does: no sorting.
func compileRing(s Spec, members []Member) (*Table, error) {
	return compileRingOf(s.Rows, tableReplicas, members)
}

func compileRingOf(rows, replicas int, members []Member) (*Table, error) {
	total := 0
	for _, m := range members {
		total += max(m.New, m.Held, m.Horizon) * replicas
	}
	if total > maxTablePoints {
		return nil, fmt.Errorf("%w: ring's table would be made of %d points, at most %d; divide all weights by the same number",
			ErrWeight, total, maxTablePoints)
	}
	ranks, byRank := nameRanks(members)
	workers := max(1, min(runtime.GOMAXPROCS(0), total>>14))
	parts := make([]ringRows, workers)
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(members); i += workers {
				parts[w].add(rows, replicas, &members[i], ranks[i])
			}
		})
	}
	wait.Wait()
	var owners [3][]int32
	for set := range owners {
		first := make([]uint64, rows)
		for r := range first {
			first[r] = math.MaxUint64
		}
		for w := range parts {
			for _, part := range [][]uint64{parts[w].steady, parts[w].rest[set]} {
				for r, f := range part {
					first[r] = min(first[r], f)
				}
			}
		}
		owners[set] = ringOwners(first, byRank)
	}
	return joinSets(members, owners[0], owners[1], owners[2]), nil
}

// ringRows are the least points in each row: position within the row above,
// rank of the member below (rankBits); all ones if there is none. Those of
// members whose weight is the same in all sets are in steady.
type ringRows struct {
	steady []uint64
	rest   [3][]uint64
}

// rankBits hold a member's place in the order of names, and leave 49 for the
// position: ties, which the ranks decide, are as good as never.
const rankBits = 15

// add puts a member's points in.
func (t *ringRows) add(rows, replicas int, m *Member, rank uint64) {
	name := nameHash(m.Name)
	weights := [3]int{m.New, m.Held, max(m.New, m.Held, m.Horizon)}
	if weights[0] == weights[1] && weights[1] == weights[2] {
		addPoints(&t.steady, rows, weights[0]*replicas, name, rank)
		return
	}
	for set, w := range weights {
		addPoints(&t.rest[set], rows, w*replicas, name, rank)
	}
}

func addPoints(first *[]uint64, rows, points int, name, rank uint64) {
	if points == 0 {
		return
	}
	if *first == nil {
		*first = make([]uint64, rows)
		for r := range *first {
			(*first)[r] = math.MaxUint64
		}
	}
	t := *first
	for k := range points {
		row, within := bits.Mul64(pointAt(name, k), uint64(len(t)))
		if f := within>>rankBits<<rankBits | rank; f < t[row] {
			t[row] = f
		}
	}
}

// ringOwners reads the owners off, backwards: a row without a point has the
// owner of the next, the last one that of the first.
func ringOwners(first []uint64, byRank []int32) []int32 {
	owners := make([]int32, len(first))
	owner := int32(-1)
	for range 2 { // the first time around finds who wraps
		for r := len(first) - 1; r >= 0; r-- {
			if first[r] != math.MaxUint64 {
				owner = byRank[first[r]&(1<<rankBits-1)]
			}
			owners[r] = owner
		}
	}
	return owners
}
