package tables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/wire"
)

// Line is what a server line shall say, without the next hop.
type Line struct {
	Addr       netip.Addr // invalid: the line names no server
	Forwarding bpf.Forwarding
	Flags      uint8 // bpf.LineClosed, LineDown, LineSteered
	Hops       bool  // packets carry hops (scheme beamer)
	// Steer is the VIP's setting, "" where its row is not read, or not known
	// which it was.
	Steer string
}

// LineWord is mac_dst or mac_src of fl_line: a MAC, and behind it the forwarding
// and flags, or a VLAN tag.
type LineWord uint64

func (w LineWord) MAC() wire.MAC {
	return wire.MAC(binary.LittleEndian.AppendUint64(nil, uint64(w))[:6])
}
func (w LineWord) Forwarding() bpf.Forwarding { return bpf.Forwarding(uint8(w >> 48)) }
func (w LineWord) Flags() uint8               { return uint8(w >> 56) }
func (w LineWord) VLAN() uint16               { return uint16(w >> 48) }

// Steers says whether l's row of the map steers is read.
func (l Line) Steers() bool { return l.Flags&bpf.LineSteered != 0 }

// SameWay says that packets go to t as to l.
func (l Line) SameWay(t Line) bool {
	return l.Addr == t.Addr && l.Forwarding == t.Forwarding && l.Hops == t.Hops
}

// Range is a VIP's stretch of server lines.
type Range struct{ First, Size uint32 }

// End is the line behind the last.
func (r Range) End() uint32 { return r.First + r.Size }

// Has says that a slot of the range has the line that it had in before, of the same VIP.
func (r Range) Has(slot uint32, before Range) bool {
	return r.First == before.First && slot < min(r.Size, before.Size)
}

// minRange is the smallest range of server lines, so that small pools grow
// without moving.
const minRange = 16

// allocator hands out ranges of server lines. Ranges in force stay where they
// are while they suffice; one that is outgrown reaches on where it stands, if the lines
// behind it are nobody's: all that is in force stays as it is. Else the VIP gets a new one,
// and no new range overlaps any other's that is in force, because packets use those until
// the flip.
type allocator struct {
	total uint32
	held  map[uint32]Range // in force, by VIP id
	taken []Range          // in force or handed out, ascending
}

func newAllocator(held map[uint32]Range, total uint32) *allocator {
	al := &allocator{total: total, held: held}
	for _, r := range held {
		al.mark(r)
	}
	return al
}

func (al *allocator) mark(r Range) {
	at := sort.Search(len(al.taken), func(i int) bool { return al.taken[i].First >= r.First })
	al.taken = append(al.taken, Range{})
	copy(al.taken[at+1:], al.taken[at:])
	al.taken[at] = r
}

// take returns the range of v, whose size is a power of two that holds every
// slot in use.
func (al *allocator) take(v *controller.VIP) (Range, error) {
	limit := uint32(v.MaxNumbers())
	size := uint32(minRange)
	for _, s := range v.Slots {
		n := uint32(s.Number) + 1
		for size < n {
			size *= 2
		}
	}
	// A range never shrinks: its upper slots may still be named by cookies
	// of connections that the balancer cannot see.
	r, held := al.held[v.ID]
	if held && r.Size >= size && r.Size <= max(limit, size) {
		return r, nil
	}
	if longer := (Range{r.First, size}); held && al.free(r.End(), longer.End()) {
		al.taken[slices.Index(al.taken, r)] = longer
		return longer, nil
	}
	var first uint32
	for _, t := range al.taken {
		if t.First >= first+size {
			break
		}
		first = max(first, t.End())
	}
	if first+size > al.total {
		return Range{}, fmt.Errorf("limits.server_lines %d %w: no %d lines in a row are free for vip %s", al.total, ErrLimit, size, v.Name)
	}
	r = Range{first, size}
	al.mark(r)
	return r, nil
}

// free: the lines from first to end-1, some, are there and nobody's.
func (al *allocator) free(first, end uint32) bool {
	return first < end && end <= al.total &&
		!slices.ContainsFunc(al.taken, func(t Range) bool { return t.First < end && first < t.End() })
}
