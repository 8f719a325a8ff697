package tracking

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// placement is a hash over servers in the form in which it is looked up; one
// of the three is set.
type placement struct {
	rows   []uint32           // a compiled table, as bpf/lb has it
	anchor *chash.AnchorTable // walked, as bpf/lb does
	object chash.Hash         // --native: no table
}

// rowsFor is the number of rows of JET's evaluation: as many for each server,
// the horizon's included, as the program recommends, but without its bound.
func rowsFor(servers int) int { return chash.RowsUpTo(servers, chash.MaxTableRows) }

// newPlacement builds a hash over working servers and a horizon. Their names
// depend on the seed, so that every seed has other tables. Slots 0 to
// working-1 are the working ones.
func newPlacement(k chash.Kind, native bool, working, horizon int, seed uint64) (*placement, error) {
	name := func(i int) string { return fmt.Sprintf("server %d of seed %d", i, seed) }
	total := working + horizon
	if native {
		return nativePlacement(k, working, horizon, name)
	}
	v := controller.VIP{Settings: vip.Settings{Scheme: vip.JET, Protocol: vip.TCP, Hash: vip.Hash(k), Capacity: total}, HashRows: rowsFor(total)}
	for i := range total {
		s := controller.Slot{Number: uint16(i), Server: name(i), Weight: 1, State: controller.Active}
		if i >= working {
			s.State = controller.Standby
		}
		v.Slots = append(v.Slots, s)
	}
	t, err := tables.HashOf(&v, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("table of %s for %d servers and a horizon of %d: %w", k, working, horizon, err)
	}
	if k == chash.KindAnchor {
		return &placement{anchor: t.Anchor()}, nil
	}
	return &placement{rows: t.Entries}, nil
}

func nativePlacement(k chash.Kind, working, horizon int, name func(int) string) (*placement, error) {
	servers := make([]chash.Server, working)
	for i := range servers {
		servers[i] = chash.Server{Name: name(i), Weight: 1}
	}
	total := working + horizon
	h, err := chash.New(k, chash.Options{Capacity: total, Rows: tableRows(k, total)}, servers...)
	if err != nil {
		return nil, fmt.Errorf("%s for %d servers: %w", k, working, err)
	}
	if !k.Minimal() {
		return &placement{object: h}, nil // without a horizon: there is no JET
	}
	for i := working; i < total; i++ {
		if err := h.Park(name(i), 1); err != nil {
			return nil, fmt.Errorf("%s: put server %d into the horizon: %w", k, i, err)
		}
	}
	return &placement{object: h}, nil
}

// tableRows is the number of rows of an object that is a table; 0: its own.
func tableRows(k chash.Kind, servers int) int {
	if k == chash.KindTableHRW {
		return rowsFor(servers)
	}
	return 0
}

// place is the packet's server and whether to track it; JET's Algorithm 1,
// lines 4 and 5.
func (p *placement) place(h uint64) (slot int, track bool) {
	switch {
	case p.rows != nil:
		e := p.rows[h>>32*uint64(len(p.rows))>>32]
		return chash.EntrySlot(e), chash.EntryTrack(e)
	case p.anchor != nil:
		slot, _, track = p.anchor.Place(h)
		return slot, track
	}
	n, track := p.object.Track(h)
	return int(n), track
}

// bytes is the memory of a table, 0 where it is not known.
func (p *placement) bytes() int {
	switch {
	case p.rows != nil:
		return 4 * len(p.rows)
	case p.anchor != nil:
		return 4 * len(p.anchor.Entries)
	}
	return 0
}
