package tables

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
)

// How the bucket table of a VIP stands in `tables` (bpf/include/balancer.h,
// FL_BUCKET_*):
//
//	rows of 16 bits, four an entry ─▶ two entries a bucket: its words
//
// Where a bucket's words stand follows from its number alone: a change of one
// bucket is a change of one row and its words, nothing ever has to make room,
// and what a table needs does not hang on how many buckets have moved. Rows
// are as small as they can be: of millions of them, packets find more in the
// processor's cache.

const (
	RowsInEntry = 4
	BucketWords = 2
	// rowsAtOnce is how many rows one goroutine writes or reads: fewer are not
	// worth a second one.
	rowsAtOnce = 1 << 16
)

// WordsAt is where the words of the first of n buckets stand behind the first
// row, and BucketEntries how many entries of `tables` they all take. Where
// tables begin at a multiple of BucketWords, the words of a bucket share a
// cache line.
func WordsAt(n int) int        { return (n + 2*RowsInEntry - 1) / (2 * RowsInEntry) * BucketWords }
func BucketEntries(n int) int  { return WordsAt(n) + n*BucketWords }
func WireTime(s uint32) uint32 { return s * 1000 } // s since 1970 on the shared clock, modulo 2^32 ms

// unixTime undoes WireTime for the moment that lies nearest to nowMS, ms since
// 1970 on the shared clock.
func unixTime(word uint32, nowMS uint64) uint32 {
	ms := nowMS + uint64(int64(int32(word-uint32(nowMS))))
	return uint32((ms + 500) / 1000)
}

// rowsOf are the rows of n buckets at the begin of m.
func rowsOf(m []uint64, n int) []uint16 {
	if n == 0 {
		return nil
	}
	_ = m[(n-1)/RowsInEntry]
	return unsafe.Slice((*uint16)(unsafe.Pointer(&m[0])), n)
}

// WriteRows writes e to where its table begins. Only what differs from what
// stands there is written: of a half that was in force a moment ago that is
// little, and reading is cheaper.
func WriteRows(to []uint64, e *effective.Table) {
	n := e.Len()
	rows, words := rowsOf(to, n), to[WordsAt(n):]
	inParts(n, func(first, end int) {
		for b := first; b < end; b++ {
			row, previous := e.Current[b], e.Previous[b]
			if previous[0] != buckets.None {
				row = bpf.BucketMoved
				w := words[b*BucketWords : (b+1)*BucketWords]
				servers := uint64(e.Current[b]) | uint64(previous[0])<<16 | uint64(previous[1])<<32 | uint64(previous[2])<<48
				if time := uint64(WireTime(e.Since[b])); w[0] != servers || w[1] != time {
					w[0], w[1] = servers, time
				}
			}
			if rows[b] != row {
				rows[b] = row
			}
		}
	})
}

// ReadRows is what n rows from `from` on say at nowMS, ms since 1970 on the
// shared clock. Since of settled buckets is not written anywhere: it is 0.
func ReadRows(from []uint64, n int, generation uint32, nowMS uint64) (*effective.Table, error) {
	if len(from) < BucketEntries(n) {
		return nil, fmt.Errorf("%d buckets do not fit the %d entries of map tables from their first one on", n, len(from))
	}
	rows, words := rowsOf(from, n), from[WordsAt(n):]
	current, since, previous := make([]uint16, n), make([]uint32, n), make([][buckets.Chain]uint16, n)
	inParts(n, func(first, end int) {
		for b := first; b < end; b++ {
			current[b], previous[b] = rows[b], buckets.NoPrevious
			if rows[b] != bpf.BucketMoved {
				continue
			}
			servers := words[b*BucketWords]
			current[b] = uint16(servers)
			previous[b] = [buckets.Chain]uint16{uint16(servers >> 16), uint16(servers >> 32), uint16(servers >> 48)}
			since[b] = unixTime(uint32(words[b*BucketWords+1]), nowMS)
		}
	})
	return effective.Restore(generation, current, since, previous), nil
}

// parts are the beginnings of what one goroutine each does of n rows.
func parts(n int) (first []int) {
	for f := 0; f < n; f += rowsAtOnce {
		first = append(first, f)
	}
	return first
}

// inParts calls f for all of n rows, in parts and at the same time.
func inParts(n int, f func(first, end int)) {
	work := make(chan int, len(parts(n)))
	for _, first := range parts(n) {
		work <- first
	}
	close(work)
	do := func() {
		for first := range work {
			f(first, min(first+rowsAtOnce, n))
		}
	}
	if n <= rowsAtOnce {
		do()
		return
	}
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(do)
	}
	all.Wait()
}
