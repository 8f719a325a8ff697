package lb

import (
	"fmt"
	"sort"

	"github.com/fairlead/fairlead/controller"
)

// minRange is the smallest range of server lines, so that small pools grow
// without moving.
const minRange = 16

// allocator hands out ranges of server lines. Ranges in force stay where they
// are while they suffice; a VIP that outgrows its range gets a new one, and
// no new range overlaps any that is in force, because packets use those until
// the flip.
type allocator struct {
	total uint32
	held  map[uint32]lineRange // in force, by VIP id
	taken []lineRange          // in force or handed out, ascending
}

func newAllocator(held map[uint32]lineRange, total uint32) *allocator {
	al := &allocator{total: total, held: held}
	for _, r := range held {
		al.mark(r)
	}
	return al
}

func (al *allocator) mark(r lineRange) {
	at := sort.Search(len(al.taken), func(i int) bool { return al.taken[i].first >= r.first })
	al.taken = append(al.taken, lineRange{})
	copy(al.taken[at+1:], al.taken[at:])
	al.taken[at] = r
}

// take returns the range of v, whose size is a power of two that holds every
// slot in use.
func (al *allocator) take(v *controller.VIP) (lineRange, error) {
	limit := uint32(maxSlots(v))
	size := uint32(minRange)
	for _, s := range v.Slots {
		n := uint32(s.Number) + 1
		if n > limit {
			if v.CookieBits == 0 {
				return lineRange{}, fmt.Errorf("vip %s: server %s: slot %d: slots are 0 to %d; split the pool into two VIPs", v.Name, s.Server, s.Number, limit-1)
			}
			return lineRange{}, fmt.Errorf("vip %s: server %s: slot %d: cookie_bits %d name slots 0 to %d; widen cookie_bits",
				v.Name, s.Server, s.Number, v.CookieBits, limit-1)
		}
		for size < n {
			size *= 2
		}
	}
	// A range never shrinks: its upper slots may still be named by cookies
	// of connections that the balancer cannot see.
	if r, ok := al.held[v.ID]; ok && r.size >= size && r.size <= max(limit, size) {
		return r, nil
	}
	var first uint32
	for _, t := range al.taken {
		if t.first >= first+size {
			break
		}
		first = max(first, t.end())
	}
	if first+size > al.total {
		return lineRange{}, fmt.Errorf("limits.server_lines %d %w: no %d lines in a row are free for vip %s", al.total, errLimit, size, v.Name)
	}
	r := lineRange{first, size}
	al.mark(r)
	return r, nil
}
