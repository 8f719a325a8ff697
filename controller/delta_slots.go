package controller

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Fields of a slot, as a mask says which of them differ.
const (
	slotServer = 1 << iota
	slotAddress
	slotWeight
	slotState
	slotVersion
	slotAPI
	slotRestUntil
	slotSince
	slotOldWeight
	slotWeightSince
	slotDrainSince
	slotFields
)

// slotOctets are more than most slots take that are all there is of them; a slot that joins
// or leaves takes as many in a delta.
const slotOctets = 64

// appendSlots appends what makes slots of was, both by ascending number:
//
//	gone: how many varint, each its number's distance from the one before varint;
//	changed or new: how many varint, each that distance, a mask of fields varint
//	and these, beginning with the slot as it was, or an empty one
func appendSlots(w []byte, was, slots []Slot) []byte {
	var gone []byte
	changed := make([]byte, 0, slotOctets*max(len(slots)-len(was), 0))
	goneN, changedN, lastGone, lastChanged := 0, 0, 0, 0
	leave := func(number uint16) {
		gone = binary.AppendUvarint(gone, uint64(int(number)-lastGone))
		lastGone = int(number)
		goneN++
	}
	for i := range slots {
		s := &slots[i]
		for len(was) > 0 && was[0].Number < s.Number {
			leave(was[0].Number)
			was = was[1:]
		}
		from := Slot{Number: s.Number}
		if len(was) > 0 && was[0].Number == s.Number {
			from, was = was[0], was[1:]
			if from == *s {
				continue
			}
		}
		changed = binary.AppendUvarint(changed, uint64(int(s.Number)-lastChanged))
		changed = appendSlot(changed, &from, s)
		lastChanged = int(s.Number)
		changedN++
	}
	for i := range was {
		leave(was[i].Number)
	}
	w = append(binary.AppendUvarint(w, uint64(goneN)), gone...)
	return append(binary.AppendUvarint(w, uint64(changedN)), changed...)
}

// appendSlot appends a mask of what differs, and the fields.
func appendSlot(w []byte, was, s *Slot) []byte {
	mask := uint64(0)
	for bit, differs := range []bool{
		s.Server != was.Server, s.Address != was.Address, s.Weight != was.Weight, s.State != was.State,
		s.Version != was.Version, s.API != was.API, s.RestUntil != was.RestUntil, s.Since != was.Since,
		s.OldWeight != was.OldWeight, s.WeightSince != was.WeightSince, s.DrainSince != was.DrainSince,
	} {
		if differs {
			mask |= 1 << bit
		}
	}
	w = binary.AppendUvarint(w, mask)
	text := func(bit uint64, t string) {
		if mask&bit != 0 {
			w = append(binary.AppendUvarint(w, uint64(len(t))), t...)
		}
	}
	stamp := func(bit uint64, t time.Time) {
		if mask&bit != 0 {
			b, _ := t.MarshalBinary() // an offset that it cannot say has no assignment
			w = append(binary.AppendUvarint(w, uint64(len(b))), b...)
		}
	}
	text(slotServer, s.Server)
	if mask&slotAddress != 0 {
		b, _ := s.Address.MarshalBinary() // fails for none
		w = append(binary.AppendUvarint(w, uint64(len(b))), b...)
	}
	if mask&slotWeight != 0 {
		w = binary.AppendVarint(w, int64(s.Weight))
	}
	text(slotState, string(s.State))
	if mask&slotVersion != 0 {
		w = binary.AppendUvarint(w, s.Version)
	}
	text(slotAPI, s.API)
	stamp(slotRestUntil, s.RestUntil)
	stamp(slotSince, s.Since)
	if mask&slotOldWeight != 0 {
		w = binary.AppendVarint(w, int64(s.OldWeight))
	}
	stamp(slotWeightSince, s.WeightSince)
	stamp(slotDrainSince, s.DrainSince)
	return w
}

// slots are those that appendSlots made of was.
func (r *deltaReader) slots(was []Slot) []Slot {
	var gone []uint16 // ascending
	at := uint64(0)
	for range r.count() {
		if at += r.uvarint(); at > 1<<16-1 {
			r.fail(fmt.Errorf("slot %d that is gone: must be at most %d", at, 1<<16-1))
		}
		if r.err != nil {
			return nil
		}
		gone = append(gone, uint16(at))
	}
	changes := r.count()
	slots := make([]Slot, 0, len(was)+changes)
	keep := func(below uint64) { // those of was that are not gone
		for len(was) > 0 && uint64(was[0].Number) < below {
			for len(gone) > 0 && gone[0] < was[0].Number {
				gone = gone[1:]
			}
			if len(gone) == 0 || gone[0] != was[0].Number {
				slots = append(slots, was[0])
			}
			was = was[1:]
		}
	}
	at = 0
	for range changes {
		if at += r.uvarint(); at > 1<<16-1 {
			r.fail(fmt.Errorf("slot %d: must be at most %d", at, 1<<16-1))
		}
		if r.err != nil {
			return nil
		}
		keep(at)
		s := Slot{Number: uint16(at)}
		if len(was) > 0 && was[0].Number == s.Number {
			s, was = was[0], was[1:]
		}
		r.slot(&s)
		slots = append(slots, s)
	}
	keep(1 << 16)
	return slots
}

// count is how many of something follow, each of an octet or more.
func (r *deltaReader) count() int {
	n := r.uvarint()
	if n > uint64(len(r.left)) {
		r.fail(errCut)
		return 0
	}
	return int(n)
}

// slot reads what differs from s into it.
func (r *deltaReader) slot(s *Slot) {
	mask := r.uvarint()
	if mask >= slotFields {
		r.fail(fmt.Errorf("slot %d: fields %#x: this build does not know them", s.Number, mask))
	}
	text := func(bit uint64, t *string) {
		if mask&bit != 0 {
			*t = string(r.bytes())
		}
	}
	stamp := func(bit uint64, t *time.Time) {
		if mask&bit == 0 {
			return
		}
		if err := t.UnmarshalBinary(r.bytes()); err != nil {
			r.fail(fmt.Errorf("slot %d: %w", s.Number, err))
		}
	}
	text(slotServer, &s.Server)
	if mask&slotAddress != 0 {
		if err := s.Address.UnmarshalBinary(r.bytes()); err != nil {
			r.fail(fmt.Errorf("slot %d: %w", s.Number, err))
		}
	}
	if mask&slotWeight != 0 {
		s.Weight = int(r.varint())
	}
	if mask&slotState != 0 {
		s.State = stateOf(r.bytes())
	}
	if mask&slotVersion != 0 {
		s.Version = r.uvarint()
	}
	text(slotAPI, &s.API)
	stamp(slotRestUntil, &s.RestUntil)
	stamp(slotSince, &s.Since)
	if mask&slotOldWeight != 0 {
		s.OldWeight = int(r.varint())
	}
	stamp(slotWeightSince, &s.WeightSince)
	stamp(slotDrainSince, &s.DrainSince)
}

func (r *deltaReader) varint() int64 {
	v, n := binary.Varint(r.left)
	if n <= 0 {
		r.fail(errCut)
		return 0
	}
	r.left = r.left[n:]
	return v
}

// stateOf does not make a string of its own for each slot.
func stateOf(b []byte) State {
	for _, s := range []State{Joining, Standby, Active, Draining, Resting} {
		if string(s) == string(b) {
			return s
		}
	}
	return State(b)
}
