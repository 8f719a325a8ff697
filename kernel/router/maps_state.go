package router

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
)

// state is what a set's maps hold, as last written or read.
type state struct {
	inputs map[bpf.InputKey]uint64
	routes map[netip.Prefix]uint32
	groups map[bpf.RouterGroup]uint32 // by content: index
	hops   map[HopID]uint32           // index
	images map[uint32]bpf.Hop         // by index

	freeGroups, freeHops []uint32 // popped from the end
}

// readState reads a set's maps: those of a fresh set are empty.
func readState(s *set) (*state, error) {
	st := &state{inputs: map[bpf.InputKey]uint64{}, routes: map[netip.Prefix]uint32{},
		groups: map[bpf.RouterGroup]uint32{}, hops: map[HopID]uint32{}, images: map[uint32]bpf.Hop{}}
	if err := s.mapHops(); err != nil {
		return nil, err
	}
	if err := collect(s.Maps[bpf.RouterMapInputs], st.inputs, func(k bpf.InputKey) bpf.InputKey { return k }); err != nil {
		return nil, err
	}
	if err := collect(s.Maps[bpf.RouterMapRoutes4], st.routes, prefix4); err != nil {
		return nil, err
	}
	if err := collect(s.Maps[bpf.RouterMapRoutes6], st.routes, prefix6); err != nil {
		return nil, err
	}
	if err := st.readGroups(s.Maps[bpf.RouterMapGroups]); err != nil {
		return nil, err
	}
	st.readHops(s.hops)
	return st, nil
}

// collect reads a whole map. to turns its keys into the caller's.
func collect[K any, V any, C comparable](m *ebpf.Map, into map[C]V, to func(K) C) error {
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		into[to(k)] = v
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("map %s: %w", m, err)
	}
	return nil
}

// readGroups reads the groups that routes name; all others are free.
func (st *state) readGroups(m *ebpf.Map) error {
	used := map[uint32]bool{}
	for _, v := range st.routes {
		if i, ok := groupOf(v); ok {
			used[i] = true
		}
	}
	for i := maxGroups - 1; i >= 0; i-- {
		if !used[uint32(i)] {
			st.freeGroups = append(st.freeGroups, uint32(i))
			continue
		}
		var g bpf.RouterGroup
		if err := m.Lookup(uint32(i), &g); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		st.groups[g] = uint32(i)
	}
	return nil
}

// mapHops makes the map of hops memory of this process.
func (s *set) mapHops() error {
	b, err := unix.Mmap(s.Maps[bpf.RouterMapHops].FD(), 0, maxHops*int(unsafe.Sizeof(bpf.Hop{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the hops into memory: %w", err)
	}
	s.hops = unsafe.Slice((*hopWords)(unsafe.Pointer(&b[0])), maxHops)
	s.unmap = func() { _ = unix.Munmap(b) }
	return nil
}

// hopWords is a hop as it is written: in words.
type hopWords [unsafe.Sizeof(bpf.Hop{}) / 8]uint64

func (st *state) readHops(all []hopWords) {
	for i := maxHops - 1; i >= 0; i-- {
		h := *(*bpf.Hop)(unsafe.Pointer(&all[i]))
		if h.Device == 0 {
			st.freeHops = append(st.freeHops, uint32(i))
			continue
		}
		st.hops[hopID(&h)] = uint32(i)
		st.images[uint32(i)] = h
	}
}

// writeHop writes a hop word by word: of each a packet sees the old or the new.
func (s *set) writeHop(index uint32, h bpf.Hop) {
	for i, w := range *(*hopWords)(unsafe.Pointer(&h)) {
		atomic.StoreUint64(&s.hops[index][i], w)
	}
}
