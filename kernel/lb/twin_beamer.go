package lb

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/bpf"
	schemebeamer "github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// bucketRows is a VIP's bucket table as it stands in `tables`, for the model:
// what a packet's program would read, wherever that leads.
type bucketRows struct {
	entries  []byte // all of `tables`
	first, n uint32
}

func (t bucketRows) Len() int { return int(t.n) }

// entry is that at index i; false: there is none.
func (t bucketRows) entry(i uint32) (uint64, bool) {
	at := int(i) * arrayStride
	if at+8 > len(t.entries) {
		return 0, false
	}
	return binary.NativeEndian.Uint64(t.entries[at:]), true
}

// Row of bucket b. One that leads out of `tables` names nobody, as in the
// program (fl_beamer_way).
func (t bucketRows) Row(b int) schemebeamer.Row {
	row, ok := t.entry(t.first + uint32(b/tables.RowsInEntry))
	if !ok {
		return schemebeamer.Settled(wire.NoServer)
	}
	if slot := uint16(row >> (16 * (b % tables.RowsInEntry))); slot != bpf.BucketMoved {
		return schemebeamer.Settled(slot)
	}
	words := t.first + uint32(tables.WordsAt(int(t.n))+b*tables.BucketWords)
	servers, ok := t.entry(words)
	time, also := t.entry(words + 1)
	if !ok || !also {
		return schemebeamer.Settled(wire.NoServer)
	}
	return schemebeamer.Row{Current: uint16(servers), Time: uint32(time),
		Previous: [wire.HopsChain]uint16{uint16(servers >> 16), uint16(servers >> 32), uint16(servers >> 48)}}
}
