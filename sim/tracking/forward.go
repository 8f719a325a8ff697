package tracking

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
)

// forwarder sends a trace's packets through a scheme, one after another as
// the program does: hash the tuple, look the flow up, else the hash, make an
// entry where the scheme wants one, count at the server.
type forwarder struct {
	trace  *Trace
	place  *placement
	flows  *jet.Flows
	plain  *plainTable            // in place of flows
	jet    bool                   // tracks what the horizon would take; else every flow
	counts [chash.None + 1]uint64 // packets, by slot; None: no server

	made, replaced, full int
}

// chunk packets pass between two looks at the clock: 1 ms or so, where the
// flow table's unit of time is 1,024.
const chunk = 1 << 15

// parts is into how many parts a pass is cut. What the machine does beside
// comes and goes faster than whole passes.
const parts = 20

// pass is the processor time that each part of a pass took the thread: what
// else runs on a shared machine spoils caches, but does not count by itself.
type pass [parts]time.Duration

// sum is at least 1 ns, so that rates are finite.
func (p *pass) sum() (d time.Duration) {
	for _, t := range p {
		d += t
	}
	return max(d, 1)
}

// best joins the least times of each part.
func best(passes []pass) (b pass) {
	b = passes[0]
	for _, p := range passes[1:] {
		for i, t := range p {
			b[i] = min(b[i], t)
		}
	}
	return b
}

// run forwards all packets once over empty tables. The thread must be locked.
func (f *forwarder) run(ctx context.Context) (took pass, err error) {
	f.made, f.replaced, f.full = 0, 0, 0
	clear(f.counts[:])
	if f.plain != nil {
		clear(f.plain.entries)
	} else {
		clear(f.flows.Sets)
	}
	start := time.Now()
	packets := f.trace.Packets
	for part := range parts {
		before := sim.ThreadTime()
		from, to := len(packets)*part/parts, len(packets)*(part+1)/parts
		for i := from; i < to; i += chunk {
			unit := uint16(time.Since(start) / (jet.Unit * time.Millisecond))
			f.forward(packets[i:min(i+chunk, to)], unit)
		}
		took[part] = sim.ThreadTime() - before
		if err := ctx.Err(); err != nil {
			return took, err
		}
	}
	return took, nil
}

func (f *forwarder) forward(packets []Packet, unit uint16) {
	switch {
	case f.plain != nil:
		f.plainChunk(packets, unit)
	case f.jet:
		f.jetChunk(packets, unit)
	default:
		f.fullChunk(packets, unit)
	}
}

// The three loops are alike, but calls between them would be part of what is
// measured.

// jetChunk is JET's Algorithm 1.
func (f *forwarder) jetChunk(packets []Packet, unit uint16) {
	flows, rows, anchor := f.flows, f.place.rows, f.place.anchor
	keys, six := f.trace.keys, f.trace.six
	for i := range packets {
		p := &packets[i]
		h := uint64(0)
		if six == nil {
			h = hash.IPv4(&keys[p.VIP], p.Source, p.Ports)
		} else {
			h = f.trace.hash(p)
		}
		x := flowKey(h, p)
		slot := flows.Lookup(x, unit)
		if slot < 0 {
			var track bool
			switch {
			case rows != nil:
				e := rows[h>>32*uint64(len(rows))>>32]
				slot, track = chash.EntrySlot(e), chash.EntryTrack(e)
			case anchor != nil:
				slot, _, track = anchor.Place(h)
			default:
				slot, track = f.place.place(h)
			}
			if track {
				f.count(flows.Insert(x, slot, unit, jet.New))
			}
		}
		f.counts[slot&chash.None]++
	}
}

// fullChunk tracks every flow.
func (f *forwarder) fullChunk(packets []Packet, unit uint16) {
	flows, rows, anchor := f.flows, f.place.rows, f.place.anchor
	keys, six := f.trace.keys, f.trace.six
	for i := range packets {
		p := &packets[i]
		h := uint64(0)
		if six == nil {
			h = hash.IPv4(&keys[p.VIP], p.Source, p.Ports)
		} else {
			h = f.trace.hash(p)
		}
		x := flowKey(h, p)
		slot := flows.Lookup(x, unit)
		if slot < 0 {
			switch {
			case rows != nil:
				slot = chash.EntrySlot(rows[h>>32*uint64(len(rows))>>32])
			case anchor != nil:
				slot, _, _ = anchor.Place(h)
			default:
				slot = int(f.place.object.Lookup(h))
			}
			f.count(flows.InsertLRU(x, slot, unit, jet.New))
		}
		f.counts[slot&chash.None]++
	}
}

// plainChunk is fullChunk with the table that others would take.
func (f *forwarder) plainChunk(packets []Packet, unit uint16) {
	flows, rows, anchor := f.plain, f.place.rows, f.place.anchor
	keys, six := f.trace.keys, f.trace.six
	for i := range packets {
		p := &packets[i]
		h := uint64(0)
		if six == nil {
			h = hash.IPv4(&keys[p.VIP], p.Source, p.Ports)
		} else {
			h = f.trace.hash(p)
		}
		x := flowKey(h, p)
		slot := flows.lookup(x, unit)
		if slot < 0 {
			switch {
			case rows != nil:
				slot = chash.EntrySlot(rows[h>>32*uint64(len(rows))>>32])
			case anchor != nil:
				slot, _, _ = anchor.Place(h)
			default:
				slot = int(f.place.object.Lookup(h))
			}
			flows.insert(x, slot, unit)
			f.made++
		}
		f.counts[slot&chash.None]++
	}
}

func (f *forwarder) count(i jet.Inserted) {
	switch i {
	case jet.Made:
		f.made++
	case jet.Replaced:
		f.made++
		f.replaced++
	case jet.Full:
		f.full++
	}
}

// plainTable is what the program's flow table is measured against: open
// addressing with linear probing over the same entries, with the same rules of
// age and state, but without sets, tags, a bound on the probes or anything
// that gives way. It never fills beyond half.
type plainTable struct {
	entries []jet.Entry
	mask    uint64
}

func newPlainTable(flows int) *plainTable {
	size := 16
	for size < 2*flows {
		size *= 2
	}
	return &plainTable{make([]jet.Entry, size), uint64(size - 1)}
}

func (t *plainTable) lookup(x uint64, unit uint16) int {
	for i := x & t.mask; ; i = (i + 1) & t.mask {
		e := &t.entries[i]
		switch {
		case *e == 0:
			return -1
		case uint64(*e)>>32 != x>>32:
			continue
		case e.State() == jet.Confirmed && e.Time() == unit:
			return e.Slot()
		case e.Gone(unit, true):
			return -1
		}
		jet.Touch(e, unit, true, jet.Data, 0)
		return e.Slot()
	}
}

func (t *plainTable) insert(x uint64, slot int, unit uint16) {
	i := x & t.mask
	for t.entries[i] != 0 {
		i = (i + 1) & t.mask
	}
	t.entries[i] = jet.Entry(x>>32<<32 | uint64(unit)<<16 | uint64(jet.New)<<14 | uint64(slot))
}
