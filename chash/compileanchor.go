package chash

import "fmt"

// compileAnchor walks an AnchorTable once a row. Weights only say in which
// sets a member is.
func compileAnchor(s Spec, members []Member) (*Table, error) {
	if err := checkBuckets(s.Capacity); err != nil {
		return nil, err
	}
	now, before := make([]BucketState, s.Capacity), make([]BucketState, s.Capacity)
	anyNew, anyHeld, warming := false, false, false
	for _, m := range members {
		if m.Number >= s.Capacity {
			return nil, beyond(m.Name, m.Number, s.Capacity)
		}
		switch {
		case m.New > 0:
			now[m.Number] = Working
		case m.Held > 0:
			now[m.Number] = Draining
		case m.Horizon > 0:
			now[m.Number] = Horizon
		}
		before[m.Number] = now[m.Number]
		if m.New > 0 && m.Held == 0 {
			before[m.Number] = Horizon
			warming = true
		}
		anyNew, anyHeld = anyNew || m.New > 0, anyHeld || m.Held > 0
	}
	t, err := NewAnchorTable(s.Capacity, now)
	if err != nil {
		return nil, err
	}
	// While a server warms up, untracked connections are where they were
	// without it.
	old := t
	if warming && anyHeld {
		if old, err = NewAnchorTable(s.Capacity, before); err != nil {
			return nil, err
		}
	}
	out := &Table{make([]uint32, s.Rows)}
	for r := range out.Entries {
		slot, held, track := t.Place(rowKey(r))
		if old != t {
			_, held, _ = old.Place(rowKey(r))
		}
		if !anyNew {
			slot = -1
		}
		if slot >= 0 && slot != held {
			track = true
		}
		out.Entries[r] = Entry(noneFor(slot), noneFor(held), track)
	}
	return out, nil
}

func checkBuckets(capacity int) error {
	if capacity < 1 || capacity > MaxSlots {
		return fmt.Errorf("%w: %d buckets, want 1 to %d", ErrCapacity, capacity, MaxSlots)
	}
	return nil
}

func beyond(name string, number, capacity int) error {
	return fmt.Errorf("%w: server %q has number %d, which %d buckets do not reach; make the VIP anew with a greater capacity, or remove servers",
		ErrCapacity, name, number, capacity)
}

func noneFor(slot int) int {
	if slot < 0 {
		return None
	}
	return slot
}
