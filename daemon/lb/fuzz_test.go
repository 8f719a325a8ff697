package lb

import (
	"encoding/binary"
	"testing"
)

// FuzzFlowRecords: a peer's entries are refused whole, or are told on as they came.
func FuzzFlowRecords(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0x3f, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0xc0, 0, 0}, uint8(0))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, odd uint8) {
		var keys []uint64
		var meta []uint32
		high := false
		for ; len(b) >= 12; b = b[12:] {
			keys, meta = append(keys, binary.LittleEndian.Uint64(b)), append(meta, binary.LittleEndian.Uint32(b[8:]))
			high = high || meta[len(meta)-1] > 0xffff
		}
		for range odd & 3 {
			keys = append(keys, 0)
		}
		records, err := flowRecords(keys, meta)
		if refuse := high || odd&3 != 0; (err != nil) != refuse || err != nil && records != nil {
			t.Fatalf("%d keys, meta %x: %v, %v", len(keys), meta, records, err)
		}
		for i, r := range records {
			if r.Key != keys[i] || flowMeta(r) != meta[i] {
				t.Errorf("%x %#x is %+v", keys[i], meta[i], r)
			}
		}
	})
}
