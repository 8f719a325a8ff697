package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// Which frames the kernel takes: those to the MAC address of the interface that
// they came by, or of a device that stands on it. What is not among them the
// program leaves to the kernel (bpf/lb/input.h).

// input is an entry of the map inputs.
type input struct {
	ifindex int
	vlan    uint16 // 0: untagged
	mac     wire.MAC
}

// inputsOf are the ways in by the attached interfaces: their own address, and
// those of VLAN devices, macvlans (as VRRP has them), bridges and bonds over
// them. A bond's packets come by its members, and count as theirs.
func inputsOf(links []netlink.Link, attached map[int]bool) map[input]bool {
	w := inputWalk{links: links, found: map[input]bool{}}
	for _, link := range links {
		if attached[link.Attrs().Index] || attached[link.Attrs().MasterIndex] && isBond(masterOf(links, link)) {
			w.visit(link, link.Attrs().Index, 0, nil, 0)
		}
	}
	return w.found
}

func masterOf(links []netlink.Link, link netlink.Link) netlink.Link {
	for _, l := range links {
		if l.Attrs().Index == link.Attrs().MasterIndex {
			return l
		}
	}
	return nil
}

func isBond(link netlink.Link) bool {
	return link != nil && (link.Type() == "bond" || link.Type() == "team")
}

type inputWalk struct {
	links []netlink.Link
	found map[input]bool
}

// mostDevices stand on each other.
const mostDevices = 8

// visit adds what is taken by a device that gets the frames of an interface, and
// by all devices over it. below are the addresses by which frames come so far.
func (w *inputWalk) visit(link netlink.Link, ifindex int, vlan uint16, below []wire.MAC, depth int) {
	a := link.Attrs()
	taken := append([]wire.MAC(nil), below...)
	if len(a.HardwareAddr) == len(wire.MAC{}) {
		taken = append(taken, wire.MAC(a.HardwareAddr))
	}
	for _, mac := range taken {
		w.found[input{ifindex, vlan, mac}] = true
		// A card that takes tags off (rxvlan) shows frames without theirs.
		w.found[input{ifindex, 0, mac}] = true
	}
	if depth == mostDevices {
		return
	}
	if master := masterOf(w.links, link); isBond(master) || master != nil && master.Type() == "bridge" {
		w.visit(master, ifindex, vlan, taken, depth+1)
	}
	for _, over := range w.links {
		o := over.Attrs()
		if o.ParentIndex != a.Index || o.NetNsID != -1 || o.Index == a.Index {
			continue
		}
		switch over := over.(type) {
		case *netlink.Vlan:
			// One tag is as many as the program reads.
			if vlan == 0 && over.VlanProtocol != netlink.VLAN_PROTOCOL_8021AD {
				w.visit(over, ifindex, uint16(over.VlanId), taken, depth+1)
			}
		case *netlink.Macvlan, *netlink.Macvtap:
			w.visit(over, ifindex, vlan, nil, depth+1) // by its own address alone
		}
	}
}

func (i input) entry() bpf.Input {
	var first [8]byte
	copy(first[:], i.mac[:])
	return bpf.Input{Word: binary.LittleEndian.Uint64(first[:])<<16 | uint64(i.vlan), Ifindex: uint32(i.ifindex)}
}

// inputLine is FL_INPUT_LINE.
func inputLine(e bpf.Input) int {
	return int((e.Word + uint64(e.Ifindex)<<16) * 0x9e3779b97f4a7c15 >> (64 - bpf.InputBits))
}

// syncInputs tells the programs which frames the kernel takes now.
func (l *LB) syncInputs() error {
	links, err := l.hops.Links()
	if err != nil {
		return fmt.Errorf("read the network interfaces: %w", err)
	}
	attached := map[int]bool{}
	for _, i := range l.ifaces {
		attached[i.Index] = true
	}
	want := map[bpf.Input]bool{}
	for i := range inputsOf(links, attached) {
		want[i.entry()] = true
	}
	if most := int(l.set.Maps[mapInputs].MaxEntries()); len(want) > most {
		return fmt.Errorf("the interfaces and the devices over them have %d addresses, counted by VLAN; %d are known at most: attach to fewer", len(want), most)
	}
	for _, o := range []*objects{l.set, l.old} {
		// What an older build loaded may have no such map.
		if o == nil || o.Maps[mapInputs] == nil || o == l.old && !l.oldReadable {
			continue
		}
		if err := o.writeInputs(want); err != nil {
			return fmt.Errorf("map %s: %w", mapInputs, err)
		}
	}
	return nil
}

// writeInputs makes the map hold what is wanted, and then the cache. A packet
// that finds the cache empty looks into the map, which is never short of what
// was there before and stays.
func (o *objects) writeInputs(want map[bpf.Input]bool) error {
	var gone []bpf.Input
	missing := map[bpf.Input]bool{}
	for e := range want {
		missing[e] = true
	}
	var e bpf.Input
	var nothing uint32
	entries := o.Maps[mapInputs].Iterate()
	for entries.Next(&e, &nothing) {
		if !want[e] {
			gone = append(gone, e)
		}
		delete(missing, e)
	}
	if err := entries.Err(); err != nil {
		return err
	}
	for e := range missing {
		if err := o.Maps[mapInputs].Put(e, nothing); err != nil {
			return err
		}
	}
	if err := o.cacheInputs(want); err != nil {
		return err
	}
	for _, e := range gone {
		if err := o.Maps[mapInputs].Delete(e); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return o.writeControl(unsafe.Offsetof(bpf.Control{}.Inputs), uint32(len(want)))
}

// cacheInputs puts each entry on its line, where several meet any one of them.
// No packet may see an address with another's interface, so that the interface
// is cleared first and set last.
func (o *objects) cacheInputs(want map[bpf.Input]bool) error {
	cache := make([]bpf.Input, 1<<bpf.InputBits)
	if err := o.readAt(mapInputCache, 0, cache); err != nil {
		return err
	}
	lines := map[int]bpf.Input{}
	for e := range want {
		if at := inputLine(e); !want[cache[at]] {
			lines[at] = e
		}
	}
	const size, ifindex = int64(unsafe.Sizeof(bpf.Input{})), int64(unsafe.Offsetof(bpf.Input{}.Ifindex))
	for at, old := range cache {
		e, found := lines[at]
		if !found && (old == bpf.Input{} || want[old]) {
			continue
		}
		if err := errors.Join(o.writeAt(mapInputCache, int64(at)*size+ifindex, uint32(0)),
			o.writeAt(mapInputCache, int64(at)*size, e.Word), o.writeAt(mapInputCache, int64(at)*size+ifindex, e.Ifindex)); err != nil {
			return err
		}
	}
	return nil
}
