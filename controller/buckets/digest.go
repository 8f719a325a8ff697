package buckets

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync"
)

// digestedAtOnce is how many buckets one digest of a part is over: parts are taken on
// all processors, and no copy is ever larger than a part.
const digestedAtOnce = 1 << 16

// Digest tells tables apart: SHA-256 over the number of buckets and the generation, and
// over the digests of all parts of 65,536 buckets, of which each is over the parts of
// Current, Since and Previous, little-endian. It is the same in every build.
func (t *Table) Digest() [sha256.Size]byte {
	n := t.Len()
	sums := make([]byte, (n+digestedAtOnce-1)/digestedAtOnce*sha256.Size)
	parts := make(chan int, n/digestedAtOnce+1)
	for first := 0; first < n; first += digestedAtOnce {
		parts <- first
	}
	close(parts)
	do := func() {
		var buffer []byte
		for first := range parts {
			buffer = t.appendRows(buffer[:0], first, min(first+digestedAtOnce, n))
			sum := sha256.Sum256(buffer)
			copy(sums[first/digestedAtOnce*sha256.Size:], sum[:])
		}
	}
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		all.Go(do)
	}
	all.Wait()
	head := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(n)), t.Generation)
	return sha256.Sum256(append(head, sums...))
}

// appendRows appends the rows first to end-1, as Digest takes them.
func (t *Table) appendRows(w []byte, first, end int) []byte {
	for _, s := range t.Current[first:end] {
		w = append(w, byte(s), byte(s>>8))
	}
	for _, s := range t.Since[first:end] {
		w = append(w, byte(s), byte(s>>8), byte(s>>16), byte(s>>24))
	}
	for _, p := range t.Previous[first:end] {
		w = append(w, byte(p[0]), byte(p[0]>>8), byte(p[1]), byte(p[1]>>8), byte(p[2]), byte(p[2]>>8))
	}
	return w
}
