package dataplane

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller/buckets"
)

// How the bucket table of a VIP stands in `tables` (bpf/include/fairlead.h,
// FL_BUCKET_*):
//
//	rows, one a bucket ─▶ up to 3 entries unused ─▶ four words a bucket
//
// Where a bucket's words stand follows from its number alone: a change of one
// bucket is a change of one row and its words, nothing ever has to make room,
// and what a table needs does not hang on how many buckets have moved.

const (
	// rowMoved is FL_BUCKET_MOVED: the row's other bits say where its words
	// are.
	rowMoved = 1 << 31
	// rowWords is FL_BUCKET_WORDS.
	rowWords = 4
	// rowsAtOnce is how many rows one goroutine writes or reads: fewer are not
	// worth a second one.
	rowsAtOnce = 1 << 16
)

// wordsAt is where the words of the first of n buckets stand behind the first
// row, and bucketEntries how many entries of `tables` they all take.
func wordsAt(n int) int        { return (n + rowWords - 1) &^ (rowWords - 1) }
func bucketEntries(n int) int  { return wordsAt(n) + n*rowWords }
func wireTime(s uint32) uint32 { return s * 1000 } // s since 1970 on the shared clock, modulo 2^32 ms

// unixTime undoes wireTime for the moment that lies nearest to nowMS, ms since
// 1970 on the shared clock.
func unixTime(word uint32, nowMS uint64) uint32 {
	ms := nowMS + uint64(int64(int32(word-uint32(nowMS))))
	return uint32((ms + 500) / 1000)
}

// entryMemory is the memory of an array map of 4-byte values, which programs
// share.
type entryMemory []uint32

const entryWords = arrayStride / 4

func (m entryMemory) at(entry int) *uint32 { return &m[entry*entryWords] }

// from are the entries from one on.
func (m entryMemory) from(entry uint32) entryMemory { return m[int(entry)*entryWords:] }

func (m entryMemory) len() int { return len(m) / entryWords }

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
	page := os.Getpagesize()
	size := (int(m.MaxEntries())*arrayStride + page - 1) &^ (page - 1)
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: map %d bytes of it into memory: %w", mapTables, size, err)
	}
	o.mapped = b
	o.entries = unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), int(m.MaxEntries())*entryWords)
	return o.entries, nil
}

func (o *objects) unmapEntries() {
	if o.mapped != nil {
		_ = unix.Munmap(o.mapped) // it is a mapping of ours
	}
	o.mapped, o.entries = nil, nil
}

// writeRows writes e to where its table begins. Only what differs from what
// stands there is written: of a half that was in force a moment ago that is
// little, and reading is cheaper.
func writeRows(to entryMemory, e *buckets.Effective) {
	n := e.Len()
	words := wordsAt(n)
	put := func(entry int, value uint32) {
		if at := to.at(entry); *at != value {
			*at = value
		}
	}
	inParts(n, func(first, end int) {
		for b := first; b < end; b++ {
			current, previous := uint32(e.Current[b]), e.Previous[b]
			if previous[0] == buckets.None {
				put(b, current)
				continue
			}
			w := words + b*rowWords
			put(b, rowMoved|uint32(w))
			put(w, current|uint32(previous[0])<<16)
			put(w+1, uint32(previous[1])|uint32(previous[2])<<16)
			put(w+2, wireTime(e.Since[b]))
			put(w+3, 0)
		}
	})
}

// readRows is what n rows from `from` on say at nowMS, ms since 1970 on the
// shared clock. Since of settled buckets is not written anywhere: it is 0.
func readRows(from entryMemory, n int, generation uint32, nowMS uint64) (*buckets.Effective, error) {
	if from.len() < n {
		return nil, fmt.Errorf("%d buckets do not fit the %d entries of map %s from their first one on", n, from.len(), mapTables)
	}
	current, since, previous := make([]uint16, n), make([]uint32, n), make([][buckets.Chain]uint16, n)
	outside := make([]int, len(parts(n)))
	inParts(n, func(first, end int) {
		for b := first; b < end; b++ {
			row := *from.at(b)
			previous[b] = buckets.NoPrevious
			if row&rowMoved == 0 {
				current[b] = uint16(row)
				continue
			}
			w := int(row &^ rowMoved)
			if w+rowWords > from.len() {
				outside[first/rowsAtOnce] = b + 1
				continue
			}
			x, y := *from.at(w), *from.at(w + 1)
			current[b] = uint16(x)
			previous[b] = [buckets.Chain]uint16{uint16(x >> 16), uint16(y), uint16(y >> 16)}
			since[b] = unixTime(*from.at(w + 2), nowMS)
		}
	})
	for _, b := range outside {
		if b > 0 {
			return nil, fmt.Errorf("bucket %d: its chain lies outside of map %s", b-1, mapTables)
		}
	}
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
