package controller

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// deltaMagic names the form and its version.
const deltaMagic = "FLA1"

// How a VIP's bucket table stands in a delta.
const (
	tableNone  = iota
	tableSame  // as in the version before
	tableDelta // buckets.Delta
	tableWhole // Table.MarshalBinary
)

// Delta is what makes next of base, nil: of nothing. It grows with what changed, and
// with the settings of all VIPs, which stand there whole:
//
//	magic, Frame of next (varint length before it), and of each of its VIPs
//	slots that changed (appendSlots), a form octet of its table,
//	and, unless there is none or it is the same, the table (varint length before it)
//
// What it is a delta on is the caller's to know: Patch refuses another only where it
// sees that.
func Delta(base, next *Assignment) ([]byte, error) {
	frame := next.Frame()
	w := append(binary.AppendUvarint([]byte(deltaMagic), uint64(len(frame))), frame...)
	for i := range next.VIPs {
		v := &next.VIPs[i]
		was := base.byID(v.ID)
		w = appendSlots(w, was.Slots, v.Slots)
		if v.Buckets == nil {
			w = append(w, tableNone)
			continue
		}
		if was.Buckets.Equal(v.Buckets) {
			w = append(w, tableSame)
			continue
		}
		form, table := byte(tableDelta), []byte(nil)
		var err error
		if was.Buckets != nil {
			table, err = buckets.Delta(was.Buckets, v.Buckets)
		}
		if was.Buckets == nil || err != nil { // it does not follow the one before
			form = tableWhole
			if table, err = v.Buckets.MarshalBinary(); err != nil {
				return nil, fmt.Errorf("vip %s: %w", v.Name, err)
			}
		}
		w = append(binary.AppendUvarint(append(w, form), uint64(len(table))), table...)
	}
	return w, nil
}

// Patch is the assignment that Delta made delta for, on the same base, validated.
func Patch(base *Assignment, delta []byte) (*Assignment, error) {
	if !bytes.HasPrefix(delta, []byte(deltaMagic)) {
		return nil, fmt.Errorf("assignment: a delta begins with %q, not %q", deltaMagic, delta[:min(len(delta), len(deltaMagic))])
	}
	r := &deltaReader{left: delta[len(deltaMagic):]}
	a := &Assignment{}
	d := json.NewDecoder(bytes.NewReader(r.bytes()))
	d.DisallowUnknownFields()
	if err := d.Decode(a); r.err == nil && err != nil {
		return nil, fmt.Errorf("assignment: %w", err)
	}
	for i := range a.VIPs {
		if r.err != nil {
			break
		}
		v := &a.VIPs[i]
		was := base.byID(v.ID)
		v.Slots = r.slots(was.Slots)
		var err error
		switch form := r.octet(); form {
		case tableNone:
		case tableSame:
			if v.Buckets = was.Buckets; v.Buckets == nil {
				err = errors.New("its table is that of the version before, which has none")
			}
		case tableDelta:
			if was.Buckets == nil {
				err = errors.New("its table differs from that of the version before, which has none")
				break
			}
			v.Buckets, err = was.Buckets.ApplyDelta(r.bytes())
		case tableWhole:
			v.Buckets = &buckets.Table{}
			err = v.Buckets.UnmarshalBinary(r.bytes())
		default:
			err = fmt.Errorf("form %d of a table: this build knows none", form)
		}
		if r.err == nil && err != nil {
			return nil, fmt.Errorf("assignment: vip %s: %w", v.Name, err)
		}
	}
	if len(r.left) > 0 && r.err == nil {
		r.err = fmt.Errorf("%d octets too many", len(r.left))
	}
	if r.err != nil {
		return nil, fmt.Errorf("assignment: delta: %w", r.err)
	}
	return a, a.Validate()
}

// Frame is the assignment as JSON without slots and bucket tables: all that grows with
// the VIPs' number alone. That of the version before is a good dictionary for whoever
// compresses a delta.
func (a *Assignment) Frame() []byte {
	frame := *a
	frame.VIPs = slices.Clone(a.VIPs)
	for i := range frame.VIPs {
		frame.VIPs[i].Slots, frame.VIPs[i].Buckets = nil, nil
	}
	b, err := json.Marshal(&frame)
	if err != nil {
		panic(err) // no field can fail
	}
	return b
}

// byID is the VIP with this ID, an empty one where a, which may be nil, has none.
func (a *Assignment) byID(id uint32) *VIP {
	if a != nil {
		for i := range a.VIPs {
			if a.VIPs[i].ID == id {
				return &a.VIPs[i]
			}
		}
	}
	return &VIP{}
}

// deltaReader reads a delta; after its first error it reads zeros.
type deltaReader struct {
	left []byte
	err  error
}

var errCut = errors.New("it ends too early")

func (r *deltaReader) fail(err error) {
	if r.err == nil {
		r.err, r.left = err, nil
	}
}

func (r *deltaReader) octet() byte {
	if len(r.left) == 0 {
		r.fail(errCut)
		return 0
	}
	o := r.left[0]
	r.left = r.left[1:]
	return o
}

func (r *deltaReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.left)
	if n <= 0 {
		r.fail(errCut)
		return 0
	}
	r.left = r.left[n:]
	return v
}

// bytes are those behind their length; the delta's own.
func (r *deltaReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.left)) {
		r.fail(errCut)
		return nil
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}
