package chash

import (
	"fmt"
	"slices"
)

// Row counts that Rows recommends.
const (
	MinRows       = 1024
	MaxRows       = 65536
	rowsPerMember = 300
)

// Rows is the recommended number of rows: a power of two, at least 300 for
// each member (a member's share then varies by 1/√300 = 6 %, one standard
// deviation), between 1,024 and 65,536. Beyond 218 members the bound holds:
// 4,096 members have 16 rows each and shares vary by 25 %, which is what
// 256 KiB of table buys. Rows must not follow every change of the pool: a
// different number of rows remaps nearly all connections, so callers size
// for the pool's limit or keep the number while it serves.
func Rows(members int) int { return RowsUpTo(members, MaxRows) }

// RowsUpTo is Rows with another bound, for comparing hashes where the data
// plane's memory is no matter.
func RowsUpTo(members, bound int) int {
	rows := MinRows
	for rows < bound && rows < members*rowsPerMember {
		rows *= 2
	}
	return rows
}

// MaxSlots bounds the numbers of a VIP's servers, and so its buckets.
const MaxSlots = 16384

// Member is one server as Compile sees it: its weight in three sets (JET, §2,
// and what draining and warming up need besides). 0: not in that set.
//
//	active              w, w, w
//	draining            0, w, w   (TCP: down by health too)
//	standby             0, 0, w
//	warming up          w, 0, w   (added without having been in the horizon)
//	weight a→b lately   b, a, max(a, b)
type Member struct {
	Name    string // decides the rows of table-hrw, ring, hrw, maglev; names differ
	Number  int    // its slot, 0 to MaxSlots-1, for life; decides the rows of anchor, dx and bucket
	New     int    // weight for new connections
	Held    int    // weight under which connections that nobody tracked were placed
	Horizon int    // weight it may have soon
}

// Spec says what table to compile.
type Spec struct {
	Kind Kind
	// Rows is the number of rows, 2 to MaxTableRows. Rows recommends one.
	// table-hrw wants a power of two.
	Rows int
	// Capacity is the number of buckets of anchor and dx, above every
	// member's Number, at most MaxSlots, and the same for the VIP's life.
	Capacity int
}

// MaxTableRows is the most rows Compile makes.
const MaxTableRows = 1 << 22

// None is the slot of a row that has no server.
const None = 0x7fff

// Table is a flat table: row = upper half of the hash, scaled to the number
// of rows. Its entries are what bpf/lb reads.
type Table struct {
	Entries []uint32 // slot | held<<15 | track<<31
}

// Entry packs a row. slot and held: 0 to MaxSlots-1, or None.
func Entry(slot, held int, track bool) uint32 {
	e := uint32(slot) | uint32(held)<<15
	if track {
		e |= 1 << 31
	}
	return e
}

// EntrySlot is where new connections go, or None.
func EntrySlot(e uint32) int { return int(e & None) }

// EntryHeld is where connections that were never tracked are, or None.
func EntryHeld(e uint32) int { return int(e >> 15 & None) }

// EntryTrack tells whether connections must be tracked.
func EntryTrack(e uint32) bool { return e>>31 != 0 }

// Place looks a hash up: the slot of a new connection, the one that holds an
// untracked earlier connection (each -1: no server), and whether to track.
func (t *Table) Place(h uint64) (slot, held int, track bool) {
	if len(t.Entries) == 0 {
		return -1, -1, false
	}
	e := t.Entries[scale(h>>32, uint64(len(t.Entries)))]
	return orNone(EntrySlot(e)), orNone(EntryHeld(e)), EntryTrack(e)
}

func orNone(slot int) int {
	if slot == None {
		return -1
	}
	return slot
}

// scale maps r in [0, 2^32) onto [0, n) evenly.
func scale(r, n uint64) uint64 { return r * n >> 32 }

// rowKey is the key that stands for a row where a kind has no table of its
// own.
func rowKey(row int) uint64 { return mix(uint64(row) + 0x9e3779b97f4a7c15) }

// Compile makes the table of a kind. For each row, slot is the owner by the
// weights New, held the one by Held (slot, if that set is empty), and track
// is set iff slot differs from held or either from the owner by the greatest
// of a member's three weights. Where New is empty slot is None, and track is
// set iff held differs from that owner. While weights change, track is also
// set where only a part of the changes would move the row (ring, hrw,
// table-hrw).
//
// Errors: ErrUnknown (kind), ErrDuplicate (name or number), ErrWeight,
// ErrCapacity (number or capacity out of range), ErrRows.
func Compile(s Spec, members []Member) (*Table, error) {
	impl, err := lookupKind(s.Kind)
	if err != nil {
		return nil, err
	}
	if s.Rows < 2 || s.Rows > MaxTableRows {
		return nil, fmt.Errorf("%w: %d, want 2 to %d; chash.Rows recommends one", ErrRows, s.Rows, MaxTableRows)
	}
	if err := checkMembers(s, members); err != nil {
		return nil, err
	}
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return a.Number - b.Number })
	var t *Table
	if impl.compile != nil {
		t, err = impl.compile(s, members)
	} else {
		t, err = compileSets(s, members, impl.owners)
	}
	if err == nil && s.Kind.Minimal() && s.Kind.Weighted() {
		err = trackReweighed(s, members, t)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func checkMembers(s Spec, members []Member) error {
	names, numbers := make(map[string]bool, len(members)), make(map[int]string, len(members))
	common, commonName := 0, ""
	for _, m := range members {
		if m.Number < 0 || m.Number >= MaxSlots {
			return fmt.Errorf("%w: server %q has number %d, want 0 to %d", ErrCapacity, m.Name, m.Number, MaxSlots-1)
		}
		if names[m.Name] {
			return fmt.Errorf("%w: server %q is given twice; give each once", ErrDuplicate, m.Name)
		}
		if other, ok := numbers[m.Number]; ok {
			return fmt.Errorf("%w: servers %q and %q both have number %d; a slot names one server", ErrDuplicate, other, m.Name, m.Number)
		}
		names[m.Name], numbers[m.Number] = true, m.Name
		for _, w := range []int{m.New, m.Held, m.Horizon} {
			if w < 0 || w > MaxWeight {
				return fmt.Errorf("%w: server %q: weight %d, want 0 (not in the set) to %d", ErrWeight, m.Name, w, MaxWeight)
			}
			if w == 0 || s.Kind.Weighted() {
				continue
			}
			if common != 0 && w != common {
				return unequal(s.Kind, m.Name, w, commonName, common)
			}
			common, commonName = w, m.Name
		}
	}
	return nil
}

// compileSets asks a kind for the owners of each of the three sets, once for
// those that are alike.
func compileSets(s Spec, members []Member, owners func(Spec, []weighed) ([]int32, error)) (*Table, error) {
	var sets [3][]int32 // each row's owner as an index into members, -1: none
	var of [3][]int     // its weights
	for i := range sets {
		of[i] = weightsOf(members, i)
		for j := range i {
			if slices.Equal(of[i], of[j]) {
				sets[i] = sets[j]
			}
		}
		if sets[i] != nil {
			continue
		}
		var in []weighed
		var index []int32
		for j, m := range members {
			if of[i][j] > 0 {
				in = append(in, weighed{m.Name, m.Number, of[i][j]})
				index = append(index, int32(j))
			}
		}
		if len(in) == 0 {
			sets[i] = slices.Repeat([]int32{-1}, s.Rows)
			continue
		}
		rows, err := owners(s, in)
		if err != nil {
			return nil, err
		}
		sets[i] = make([]int32, s.Rows)
		for r, o := range rows {
			sets[i][r] = -1
			if o >= 0 {
				sets[i][r] = index[o]
			}
		}
	}
	return joinSets(members, sets[0], sets[1], sets[2]), nil
}

// weightsOf lists the members' weights in a set: 0 New, 1 Held, 2 all.
func weightsOf(members []Member, set int) []int {
	w := make([]int, len(members))
	for i, m := range members {
		w[i] = [...]int{m.New, m.Held, max(m.New, m.Held, m.Horizon)}[set]
	}
	return w
}

// joinSets packs rows from their owners (indices into members, -1 none) by
// the three sets.
func joinSets(members []Member, slot, held, all []int32) *Table {
	t := &Table{make([]uint32, len(slot))}
	for r := range t.Entries {
		s, h := slot[r], held[r]
		if h < 0 {
			h = s
		}
		// With no server for new connections, those of old ones whose server
		// the horizon would change still have to be tracked.
		track := s != h && s >= 0 || h >= 0 && h != all[r]
		t.Entries[r] = Entry(number(members, s), number(members, h), track)
	}
	return t
}

func number(members []Member, i int32) int {
	if i < 0 {
		return None
	}
	return members[i].Number
}
