package controller

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync"
	"weak"

	"github.com/fairlead/fairlead/controller/buckets"
)

// manyBuckets is how many a table has at the most that is digested as part of what is
// encoded.
const manyBuckets = 1 << 16

// Digest tells assignments of one version apart: SHA-256 of what Encode gives. Where a
// VIP has a table of more than 65,536 buckets, whose text takes longer to write than
// packets should wait for, it is over the frame (Frame), and over each VIP's slots and
// the digest of its table.
func (a *Assignment) Digest() [32]byte {
	if !a.Large() {
		return a.TextDigest()
	}
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	part(a.Frame())
	for i := range a.VIPs {
		v := &a.VIPs[i]
		part(appendSlots(make([]byte, 0, slotOctets*len(v.Slots)), nil, v.Slots))
		if v.Bucketed() {
			sum := digestOf(v.Buckets)
			part(sum[:])
		}
	}
	return [32]byte(h.Sum(nil))
}

// TextDigest is SHA-256 of what Encode gives, as builds before took all digests.
func (a *Assignment) TextDigest() [32]byte { return sha256.Sum256(a.Encode()) }

// digested are the digests of large tables, for as long as somebody has them: most
// versions have the table of the version before, and nobody changes one that others
// have.
var digested sync.Map // of digestedTable: its digest

type digestedTable struct {
	table      weak.Pointer[buckets.Table]
	generation uint32
}

func digestOf(t *buckets.Table) [32]byte {
	if t.Len() <= manyBuckets {
		return t.Digest()
	}
	key := digestedTable{weak.Make(t), t.Generation}
	if sum, ok := digested.Load(key); ok {
		return sum.([32]byte)
	}
	sum := t.Digest()
	if _, had := digested.LoadOrStore(key, sum); !had {
		runtime.AddCleanup(t, func(key digestedTable) { digested.Delete(key) }, key)
	}
	return sum
}
