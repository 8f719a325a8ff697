package lb

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/jet"
)

// Reading the flow table from outside: what stands in a set, and which
// keys lead there.

// flowUnit is a time of the shared clock as entries hold it.
func flowUnit(ms uint32) uint16 { return uint16(ms / jet.Unit) }

// setRange is the low halves of keys that lead to a set: from first to
// below end.
func setRange(set, sets uint32) (first, end uint64) {
	ceil := func(b uint64) uint64 { return (b<<32 + uint64(sets) - 1) / uint64(sets) }
	return ceil(uint64(set)), ceil(uint64(set) + 1)
}

// flowKey is a key between first and end with an entry's fingerprint and tag.
// A table has fewer than 2^25 sets, so every set has one; a part of a
// set's range may have none.
func flowKey(e jet.Entry, tag uint8, first, end uint64) (key uint64, ok bool) {
	low := first&^0x7f | uint64(tag&0x7f)
	if low < first {
		low += 0x80
	}
	return uint64(e)>>32<<32 | low, low < end
}

// eachFlow calls f for the entries of sets from first to below end.
func eachFlow(flows *ebpf.Map, first, end uint32, f func(set uint32, tag uint8, e jet.Entry)) error {
	var b jet.FlowSet
	for set := first; set < end; set++ {
		if err := flows.Lookup(set, &b); err != nil {
			return fmt.Errorf("set %d of the flow table: %w", set, err)
		}
		if b.Tags == 0 {
			continue
		}
		for i, e := range b.Entry {
			if tag := uint8(b.Tags >> (8 * i)); tag != 0 {
				f(set, tag, e)
			}
		}
	}
	return nil
}

// unit is the set's time now, as its program computes it.
func (l *LB) unit(o *objects) (uint16, error) {
	ms, err := l.sharedNow(o)
	return flowUnit(ms), err
}

// sharedNow is the shared clock as the set's program reads it.
func (l *LB) sharedNow(o *objects) (ms uint32, err error) {
	c, err := readClock(l.set.Programs[progClock])
	if err != nil {
		return 0, err
	}
	control, err := o.readControl()
	if err != nil {
		return 0, err
	}
	return l.jiffies.MS(c.Jiffies) + control.ClockBase, nil
}

// Bounds of one page of Flows.
const (
	pageFlows = 4096
	pageSets  = 4096
)

// Flows reads the flows that other balancers shall know from set first on,
// a page at a time: next is where to go on, 0: that was all. Connections of
// which one packet was seen, which may have been forged, are left out. sets is
// the size of the table, which a balancer that writes them must share.
func (l *LB) Flows(first uint32) (records []FlowRecord, next, sets uint32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return nil, 0, 0, errClosed
	}
	set := l.running()
	flows := set.Maps[mapFlows]
	sets = flows.MaxEntries()
	unit, err := l.unit(set)
	if err != nil {
		return nil, 0, sets, err
	}
	if first >= sets {
		return nil, 0, sets, nil
	}
	end := min(first+pageSets, sets)
	for next = first; next < end && len(records)+jet.Ways <= pageFlows; next++ {
		err := eachFlow(flows, next, next+1, func(set uint32, tag uint8, e jet.Entry) {
			if e.State() == jet.New || e.Expired(unit) {
				return
			}
			lo, hi := setRange(set, sets)
			if key, ok := flowKey(e, tag, lo, hi); ok {
				records = append(records, flowRecord(key, e))
			}
		})
		if err != nil {
			return nil, 0, sets, err
		}
	}
	if next == sets {
		next = 0
	}
	return records, next, sets, nil
}

// FlowSlot is the slot of the entry of a key that the table has, expired or not.
func (l *LB) FlowSlot(key uint64) (slot int, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return 0, false, errClosed
	}
	flows := l.running().Maps[mapFlows]
	set := uint32(hash.Scale(uint32(key), int(flows.MaxEntries())))
	err = eachFlow(flows, set, set+1, func(_ uint32, tag uint8, e jet.Entry) {
		if !ok && tag&0x7f == uint8(key&0x7f) && uint64(e)>>32 == key>>32 {
			slot, ok = e.Slot(), true
		}
	})
	return slot, ok, err
}

// carryFlows brings the flows of the set before into a table of another size.
// A key of which only set and tag are known may lead to several sets
// there; the flow enters each, and those that it is not in expire. With
// touched, only flows that had a packet since that time are carried.
func (l *LB) carryFlows(touched *uint16) error {
	from, to := l.old.Maps[mapFlows], l.set.Maps[mapFlows]
	if sameMap(from, to) {
		return nil
	}
	unit, err := l.unit(l.old)
	if err != nil {
		return err
	}
	was, is := from.MaxEntries(), to.MaxEntries()
	var records []FlowRecord
	for first := uint32(0); first < was; first += pageSets {
		records = records[:0]
		err := eachFlow(from, first, min(first+pageSets, was), func(set uint32, tag uint8, e jet.Entry) {
			if e = e.Plain(unit); !e.Expired(unit) && (touched == nil || int16(e.Time()-*touched) >= 0) {
				records = appendMoved(records, e, tag, set, was, is)
			}
		})
		if err != nil {
			return err
		}
		if _, err := l.set.writeFlows(records); err != nil {
			return err
		}
	}
	return nil
}

// flowRecord is an entry of the flow of a key.
func flowRecord(key uint64, e jet.Entry) FlowRecord {
	return FlowRecord{Key: key, Slot: uint16(e.Slot()), State: uint8(e.State())}
}

// appendMoved appends an entry of a set of was, once for each set of is
// in which its flow may look for it. Of several, one is the flow's and the
// others are nobody's: none counts as confirmed before a packet finds it, so
// that they give way.
func appendMoved(records []FlowRecord, e jet.Entry, tag uint8, set, was, is uint32) []FlowRecord {
	have := len(records)
	first, end := setRange(set, was)
	for b := uint32(first * uint64(is) >> 32); b < is; b++ {
		lo, hi := setRange(b, is)
		if lo >= end {
			break
		}
		if key, ok := flowKey(e, tag, max(lo, first), min(hi, end)); ok {
			records = append(records, flowRecord(key, e))
		}
	}
	if copies := records[have:]; len(copies) > 1 {
		for i := range copies {
			switch jet.State(copies[i].State) {
			case jet.Confirmed:
				copies[i].State = uint8(jet.New)
			case jet.Datagram:
				copies[i].State = uint8(jet.Fading)
			}
		}
	}
	return records
}
