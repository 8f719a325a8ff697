package lb

import (
	"github.com/fairlead/fairlead/bpf"
	schemebeamer "github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// hostileBuckets is a bucket table for both implementations.
type hostileBuckets []schemebeamer.Row

func (t hostileBuckets) Len() int                   { return len(t) }
func (t hostileBuckets) Row(b int) schemebeamer.Row { return t[b] }

// buckets gives a VIP of scheme beamer its table: servers in stretches, some
// buckets moved, rows of nonsense, none at all.
func (h *hostile) buckets(v *model.VIP) {
	n := pick(h.Rand, 1, 2, 7, 8, 9, 64, 1+h.IntN(200))
	if h.IntN(20) == 0 {
		n = 0
	}
	v.Generation = pick(h.Rand, 1, h.Uint32(), 0xffff_ffff)
	t := make(hostileBuckets, n)
	for b := range t {
		t[b] = schemebeamer.Settled(uint16(b * int(v.Slots) / n))
		switch h.IntN(6) {
		case 0, 1:
			t[b].Time = h.now - h.Uint32N(300_000)
			for i := range 1 + h.IntN(wire.HopsChain) {
				t[b].Previous[i] = uint16(h.IntN(int(v.Slots)))
			}
		case 2: // whatever may stand in memory
			word := func() uint16 {
				return pick(h.Rand, uint16(h.IntN(int(v.Slots)+2)), wire.NoServer, bpf.BucketMoved, uint16(h.Uint32()))
			}
			t[b] = schemebeamer.Row{Current: word(), Previous: [wire.HopsChain]uint16{word(), word(), word()}, Time: h.Uint32()}
		case 3:
			if h.IntN(4) == 0 {
				t[b] = schemebeamer.Settled(pick[uint16](h.Rand, wire.NoServer, uint16(v.Slots), 0x8000))
			}
		}
	}
	v.Buckets = t
}

// bucketWordsOf is the table as it stands in `tables`.
func bucketWordsOf(t schemebeamer.Buckets) []uint64 {
	n := t.Len()
	entries := make([]uint64, tables.BucketEntries(n))
	for b := range n {
		r := t.Row(b)
		row := uint64(r.Current)
		if r != schemebeamer.Settled(r.Current) || r.Current == bpf.BucketMoved {
			row = bpf.BucketMoved
			words := entries[tables.WordsAt(n)+b*tables.BucketWords:]
			words[0] = uint64(r.Current) | uint64(r.Previous[0])<<16 | uint64(r.Previous[1])<<32 | uint64(r.Previous[2])<<48
			words[1] = uint64(r.Time)
		}
		entries[b/tables.RowsInEntry] |= row << (b % tables.RowsInEntry * 16)
	}
	return entries
}
