package lb

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller/buckets"
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
	// rowMoved is FL_BUCKET_MOVED: the bucket's words say who has it.
	rowMoved    = 0xfffe
	rowsInEntry = 4
	bucketWords = 2
	// rowsAtOnce is how many rows one goroutine writes or reads: fewer are not
	// worth a second one.
	rowsAtOnce = 1 << 16
)

// wordsAt is where the words of the first of n buckets stand behind the first
// row, and bucketEntries how many entries of `tables` they all take. Where
// tables begin at a multiple of bucketWords, the words of a bucket share a
// cache line.
func wordsAt(n int) int        { return (n + 2*rowsInEntry - 1) / (2 * rowsInEntry) * bucketWords }
func bucketEntries(n int) int  { return wordsAt(n) + n*bucketWords }
func wireTime(s uint32) uint32 { return s * 1000 } // s since 1970 on the shared clock, modulo 2^32 ms

// unixTime undoes wireTime for the moment that lies nearest to nowMS, ms since
// 1970 on the shared clock.
func unixTime(word uint32, nowMS uint64) uint32 {
	ms := nowMS + uint64(int64(int32(word-uint32(nowMS))))
	return uint32((ms + 500) / 1000)
}

// entryMemory is the memory of `tables`, which programs share.
type entryMemory []uint64

// rows are the rows of n buckets at the begin of m.
func (m entryMemory) rows(n int) []uint16 {
	if n == 0 {
		return nil
	}
	_ = m[(n-1)/rowsInEntry]
	return unsafe.Slice((*uint16)(unsafe.Pointer(&m[0])), n)
}

// mapEntries maps `tables`, once for as long as the set is open. Maps opened
// for reading alone have no memory.
func (o *objects) mapEntries() (entryMemory, error) {
	if o.entries != nil {
		return o.entries, nil
	}
	m := o.maps[mapTables]
	if m == nil {
		return nil, fmt.Errorf("no map %s is pinned", mapTables)
	}
	size := pages(int(m.MaxEntries()) * arrayStride)
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: map %d bytes of it into memory: %w", mapTables, size, err)
	}
	o.mapped = append(o.mapped, b)
	o.entries = unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), int(m.MaxEntries()))
	return o.entries, nil
}

func (o *objects) unmap() {
	for _, b := range o.mapped {
		_ = unix.Munmap(b) // it is a mapping of ours
	}
	o.mapped, o.entries, o.steers = nil, nil, nil
}

// pages is size, and what the last page has beyond it.
func pages(size int) int {
	page := os.Getpagesize()
	return (size + page - 1) &^ (page - 1)
}

// writeRows writes e to where its table begins. Only what differs from what
// stands there is written: of a half that was in force a moment ago that is
// little, and reading is cheaper.
func writeRows(to entryMemory, e *buckets.Effective) {
	n := e.Len()
	rows, words := to.rows(n), to[wordsAt(n):]
	inParts(n, func(first, end int) {
		for b := first; b < end; b++ {
			row, previous := e.Current[b], e.Previous[b]
			if previous[0] != buckets.None {
				row = rowMoved
				w := words[b*bucketWords : (b+1)*bucketWords]
				servers := uint64(e.Current[b]) | uint64(previous[0])<<16 | uint64(previous[1])<<32 | uint64(previous[2])<<48
				if time := uint64(wireTime(e.Since[b])); w[0] != servers || w[1] != time {
					w[0], w[1] = servers, time
				}
			}
			if rows[b] != row {
				rows[b] = row
			}
		}
	})
}

// readRows is what n rows from `from` on say at nowMS, ms since 1970 on the
// shared clock. Since of settled buckets is not written anywhere: it is 0.
func readRows(from entryMemory, n int, generation uint32, nowMS uint64) (*buckets.Effective, error) {
	if len(from) < bucketEntries(n) {
		return nil, fmt.Errorf("%d buckets do not fit the %d entries of map %s from their first one on", n, len(from), mapTables)
	}
	rows, words := from.rows(n), from[wordsAt(n):]
	current, since, previous := make([]uint16, n), make([]uint32, n), make([][buckets.Chain]uint16, n)
	inParts(n, func(first, end int) {
		for b := first; b < end; b++ {
			current[b], previous[b] = rows[b], buckets.NoPrevious
			if rows[b] != rowMoved {
				continue
			}
			servers := words[b*bucketWords]
			current[b] = uint16(servers)
			previous[b] = [buckets.Chain]uint16{uint16(servers >> 16), uint16(servers >> 32), uint16(servers >> 48)}
			since[b] = unixTime(uint32(words[b*bucketWords+1]), nowMS)
		}
	})
	return buckets.Restore(generation, current, since, previous), nil
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
