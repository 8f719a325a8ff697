package swtch

import (
	"fmt"

	"github.com/fairlead/fairlead/tables/effective"
)

// adopt takes over what an earlier run installed.
func (s *Switch) adopt(f *found) error {
	if !s.desired.Serves() {
		s.rows = new(effective.Table)
		return nil
	}
	ours := false
	for _, v := range f.objects[kindGroup] {
		ours = ours || v.foreign&notOurProtocol == 0
	}
	if !ours {
		return s.conflicts(f)
	}
	for k, v := range f.objects[kindGroup] {
		if n := len(v.members) / 4; v.foreign == 0 && n != s.desired.Table.Len() {
			return fmt.Errorf("buckets: %d, but nexthop group %#x has %d members, and another number moves every connection: set buckets to %d, or take away what is installed (fairlead unload)", s.desired.Table.Len(), k.id, n, n)
		}
	}
	rows, any := adopted(s.desired.Table, f.objects, seconds(s.o.Now()))
	if any {
		s.rows = rows
		s.adopting = s.o.Now().Add(adoptionTime)
		s.presume()
	}
	for k, v := range f.objects[kindBridge] {
		// A machine's own address may look like a Faild MAC: any that was made up does with
		// a chance of three in 64. What the bridge has learned of one is not ours.
		if v.foreign == 0 {
			s.lingering[k.mac] = s.o.Now().Add(lingerTime)
		}
	}
	s.plan.announce = !s.drained && len(f.objects[kindAnnounced]) > 0
	return nil
}

// presume takes from adopted rows who was up: who has nexthops was, who has
// none though the table gives it some was not.
func (s *Switch) presume() {
	has, shall := map[uint16]bool{}, map[uint16]bool{}
	for b, current := range s.rows.Current {
		has[current], shall[s.desired.Table.Current[b]] = true, true
	}
	for _, one := range s.desired.Servers {
		if has[one.Number] {
			s.health.presume(one.Name, Up, s.o.Now())
		} else if shall[one.Number] {
			s.health.presume(one.Name, Down, s.o.Now())
		}
	}
}

// conflicts refuses to begin where somebody else has something in our place.
func (s *Switch) conflicts(f *found) error {
	for kind := range kinds {
		for k, v := range f.objects[kind] {
			switch {
			case kind == kindBridge || v.foreign&notOurProtocol == 0:
			case kind == kindNexthop || kind == kindGroup:
				return fmt.Errorf("nexthop id %d (%#x) is somebody else's: take it away (ip nexthop del id %d)", k.id, k.id, k.id)
			case kind == kindNeighbour:
				return fmt.Errorf("neighbour %s on %s is somebody else's, and a virtual nexthop's address: take it away (ip neigh del %s dev %s), or give the servers a bridge of their own", k.addr, s.o.Bridge, k.addr, s.o.Bridge)
			default:
				return fmt.Errorf("there is a route to %s in table %d already that is somebody else's: take it away (ip route del %s table %d)", k.addr, k.table, k.addr, k.table)
			}
		}
	}
	return nil
}
