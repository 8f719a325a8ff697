package buckets

import (
	"crypto/sha256"
	"encoding/binary"
	"unsafe"
)

// digestedAtOnce is how many buckets one digest of a part is over: parts are taken on
// all processors.
const digestedAtOnce = 1 << 16

// Digest tells tables apart: SHA-256 over the number of buckets and the generation, and
// over the digests of all parts of 65,536 buckets, of which each is over the parts of
// Current, Since and Previous, little-endian. It is the same in every build.
func (t *Table) Digest() [sha256.Size]byte {
	n := t.Len()
	sums := make([]byte, (n+digestedAtOnce-1)/digestedAtOnce*sha256.Size)
	_ = inParts(n, digestedAtOnce, func(first, end int) error {
		if first == end {
			return nil // a table without buckets
		}
		h := sha256.New()
		h.Write(octets(t.Current[first:end]))
		h.Write(octets(t.Since[first:end]))
		h.Write(octets(t.Previous[first:end]))
		at := first / digestedAtOnce * sha256.Size
		h.Sum(sums[at:at:len(sums)])
		return nil
	})
	head := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(n)), t.Generation)
	return sha256.Sum256(append(head, sums...))
}

// octets are s as they stand in memory: little-endian, as on all machines that the
// program is for (package bpf has objects for no others).
func octets[E uint16 | uint32 | [Chain]uint16](s []E) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
