package lb

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
)

// A set of another layout cannot be read with this build's types. It tells
// its own: every map holds the BTF of the program that it was made for, and
// counters are found there by the names of their fields.

// fields is where a struct has its fields.
type fields struct {
	size    uint32
	members map[string]btf.Member
}

// fieldsOf reads the form of a struct from a map's BTF.
func fieldsOf(m *ebpf.Map, name string) (fields, error) {
	spec, err := typesOf(m)
	if err != nil {
		return fields{}, err
	}
	var s *btf.Struct
	if err := spec.TypeByName(name, &s); err != nil {
		return fields{}, err
	}
	f := fields{s.Size, map[string]btf.Member{}}
	for _, member := range s.Members {
		f.members[member.Name] = member
	}
	return f, nil
}

func typesOf(m *ebpf.Map) (*btf.Spec, error) {
	if m == nil {
		return nil, fmt.Errorf("no such map is pinned")
	}
	h, err := m.Handle()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.Spec(nil)
}

// number is an unsigned field of up to 8 bytes; 0 where there is none of that
// name, as for a counter that the other layout does not have.
func (f fields) number(b []byte, name string) uint64 {
	m, ok := f.members[name]
	if !ok {
		return 0
	}
	size, err := btf.Sizeof(m.Type)
	at := int(m.Offset.Bytes())
	if err != nil || size > 8 || at+size > len(b) {
		return 0
	}
	var word [8]byte
	copy(word[:], b[at:at+size])
	return binary.LittleEndian.Uint64(word[:])
}

// address is a field of two words.
func (f fields) address(b []byte, name string) (words [2]uint64) {
	m, ok := f.members[name]
	at := int(m.Offset.Bytes())
	if !ok || at+16 > len(b) {
		return words
	}
	return [2]uint64{binary.NativeEndian.Uint64(b[at:]), binary.NativeEndian.Uint64(b[at+8:])}
}

// foreignRanges is what another layout's active half says of server lines.
func foreignRanges(o *objects) (map[uint32]tables.Range, error) {
	control, err := fieldsOf(o.Maps[mapControl], "fl_control")
	if err != nil {
		return nil, err
	}
	c, err := o.Maps[mapControl].LookupBytes(uint32(0))
	if err != nil {
		return nil, err
	}
	vip, err := fieldsOf(o.Maps[mapVIPs], "fl_vip")
	if err != nil {
		return nil, err
	}
	all, err := o.Maps[mapVIPs].LookupBytes(uint32(0))
	if err != nil {
		return nil, err
	}
	if vip.size == 0 {
		return nil, fmt.Errorf("its fl_vip is empty")
	}
	half := all[:len(all)/2]
	if control.number(c, "active")&1 == 1 {
		half = all[len(all)/2:]
	}
	ranges := map[uint32]tables.Range{}
	for ; len(half) >= int(vip.size); half = half[vip.size:] {
		if vip.number(half, "used") != 0 {
			ranges[uint32(vip.number(half, "id"))] = tables.Range{First: uint32(vip.number(half, "first_line")), Size: uint32(vip.number(half, "slots"))}
		}
	}
	return ranges, nil
}

// carryForeign takes over what a set of another layout counted. It runs
// before the new set is in force: nothing counts there yet, so what is
// written cannot overwrite anything, and what the old one counts from here
// until the links are updated is lost. Reasons begin at zero: their numbers
// may mean something else there, and a map's BTF has no names for them.
func (l *LB) carryForeign(p *tables.Plan) error {
	ranges, err := foreignRanges(l.old)
	if err != nil {
		return err
	}
	line, err := fieldsOf(l.old.Maps[mapLines], "fl_line")
	if err != nil {
		return err
	}
	perCPU, err := fieldsOf(l.old.Maps[mapVIPCPU], "fl_vip_cpu")
	if err != nil {
		return err
	}
	for _, v := range p.VIPs {
		r, ok := ranges[v.ID]
		if !ok {
			continue
		}
		for slot := range r.Size {
			if err := l.carryForeignLine(v, slot, r.First+slot, line); err != nil {
				return err
			}
		}
		if err := l.carryForeignVIP(v.ID, perCPU); err != nil {
			return err
		}
	}
	return nil
}

func (l *LB) carryForeignLine(v tables.VIP, slot, index uint32, f fields) error {
	var cpus [][]byte
	if err := l.old.Maps[mapLines].Lookup(index, &cpus); err != nil {
		return err
	}
	var n carriedCount
	for _, b := range cpus {
		n.add(carriedCount{f.number(b, "packets"), f.number(b, "bytes"), f.number(b, "opened")})
	}
	key := carriedKey{v.ID, carriedGone}
	if s := v.Server(slot); s.Addr.IsValid() && s.Addr == tables.AddrOf(f.address(cpus[0], "addr")) {
		key.Slot = slot
		if err := l.carryForeignConns(index, v.Lines.First+slot); err != nil {
			return err
		}
	}
	return l.addCarried(key, n)
}

// carryForeignConns takes over a line's open connections, if the other layout
// counts them in a word a line, too.
func (l *LB) carryForeignConns(from, to uint32) error {
	m := l.old.Maps[mapConns]
	if m == nil || m.Type() != ebpf.Array || m.ValueSize() != 4 {
		return nil
	}
	var n int32
	if err := m.Lookup(from, &n); err != nil {
		return err
	}
	return l.set.writeConns(to, n)
}

func (l *LB) carryForeignVIP(id uint32, f fields) error {
	var before [][]byte
	if err := l.old.Maps[mapVIPCPU].Lookup(id, &before); err != nil {
		return err
	}
	var now []bpf.VIPCPU
	if err := l.set.Maps[mapVIPCPU].Lookup(id, &now); err != nil {
		return err
	}
	for i, b := range before {
		now[i].NewConns += f.number(b, "new_conns")
		now[i].Fallback += f.number(b, "fallback")
		now[i].FlowHits += f.number(b, "flow_hits")
		now[i].BadCookies += f.number(b, "bad_cookies")
		now[i].Dropped += f.number(b, "dropped")
		now[i].Tracked += f.number(b, "tracked")
		now[i].FlowFull += f.number(b, "flow_full")
		now[i].FlowReplaced += f.number(b, "flow_replaced")
		now[i].ShareLost += f.number(b, "share_lost")
	}
	return l.set.Maps[mapVIPCPU].Put(id, now)
}
