package swtch

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
	"github.com/fairlead/fairlead/wire"
)

// plan is what the kernel shall have, from which objects are made.
type plan struct {
	vips     []netip.Addr
	macs     []wire.MAC        // by bucket (tables.SwitchPlan.NextHops)
	ports    map[uint16]uint32 // by server's number; missing: unknown
	bridge   uint32
	table    uint32 // of announced routes
	announce bool
	// lingering are MACs that frames under way may still have.
	lingering map[wire.MAC]time.Time
}

// fixed are the objects that rows do not change.
func (p *plan) fixed() objects {
	var o objects
	if len(p.macs) == 0 {
		return o
	}
	for _, six := range p.families() {
		members := make([]byte, 0, 4*len(p.macs))
		for b := range p.macs {
			id := hopID(six, b)
			members = binary.NativeEndian.AppendUint32(members, id)
			o.put(key{kind: kindNexthop, id: id}, value{device: p.bridge, gateway: hopAddress(six, b)})
		}
		o.put(key{kind: kindGroup, id: groupID(six)}, value{members: string(members)})
	}
	for _, vip := range p.vips {
		o.put(key{kind: kindRoute, addr: vip, table: mainTable}, value{group: groupID(vip.Is6())})
		if p.announce {
			o.put(key{kind: kindAnnounced, addr: vip, table: p.table}, value{device: p.bridge})
		}
	}
	return o
}

// families in use: false IPv4, true IPv6.
func (p *plan) families() (families []bool) {
	var used [2]bool
	for _, vip := range p.vips {
		if vip.Is6() {
			used[1] = true
		} else {
			used[0] = true
		}
	}
	for i, u := range used {
		if u {
			families = append(families, i == 1)
		}
	}
	return families
}

// moving adds to o the objects that follow the rows: neighbours and bridge
// entries. used are the MACs that frames may have now.
func (p *plan) moving(o *objects, used map[wire.MAC]bool) {
	o[kindNeighbour], o[kindBridge] = map[key]value{}, map[key]value{}
	families := p.families()
	for b, mac := range p.macs {
		for _, six := range families {
			o.put(key{kind: kindNeighbour, addr: hopAddress(six, b)}, value{device: p.bridge, mac: mac})
		}
	}
	for mac := range used {
		p.entry(o, mac)
	}
	for mac := range p.lingering {
		p.entry(o, mac)
	}
}

// entry is the bridge's entry for a MAC, where the server's port is known;
// without one the bridge floods its frames, and all but one host drop them.
func (p *plan) entry(o *objects, mac wire.MAC) {
	f, _, _ := wire.DecodeFaild(mac)
	if port := p.ports[f.Current]; port != 0 {
		o.put(key{kind: kindBridge, mac: mac}, value{device: port})
	}
}

// installed reads rows back from neighbours: those that stand are what flows
// go by. For what is missing or says nothing, ok is false.
func installed(o objects, n int) (rows []buckets.Row, have []bool) {
	rows, have = make([]buckets.Row, n), make([]bool, n)
	for _, six := range []bool{true, false} { // IPv4 last: it counts where both stand
		for b := range n {
			v, ok := o[kindNeighbour][key{kind: kindNeighbour, addr: hopAddress(six, b)}]
			if !ok {
				continue
			}
			f, ok, err := wire.DecodeFaild(v.mac)
			if ok && err == nil && f.Kind == wire.FaildPass {
				rows[b], have[b] = buckets.Row{Current: f.Current, Previous: f.Previous}, true
			}
		}
	}
	return rows, have
}

// adopted is an effective.Table of what is installed, the table's rows where
// nothing is. MACs carry no time: a row as the table has it is as old as the
// table says, and one without a chain has none any more; any other may have
// been written just before this daemon started, so that its chain lasts its
// whole time from now on.
func adopted(t *buckets.Table, o objects, now uint32) (e *effective.Table, any bool) {
	n := t.Len()
	current, since, previous := make([]uint16, n), make([]uint32, n), make([][buckets.Chain]uint16, n)
	rows, have := installed(o, n)
	for b := range n {
		current[b], since[b], previous[b] = t.Current[b], t.Since[b], t.Previous[b]
		if !have[b] {
			continue
		}
		any = true
		settled := rows[b].Previous == buckets.NoPrevious
		if !settled && (rows[b].Current != t.Current[b] || rows[b].Previous != t.Previous[b]) {
			since[b] = now
		}
		current[b], previous[b] = rows[b].Current, rows[b].Previous
	}
	return effective.Restore(t.Generation, current, since, previous), any
}
