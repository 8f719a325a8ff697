package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/tables"
)

// Names of the maps in bpf/lb/maps.h, as pinned.
const (
	mapVIPs       = "vips"
	mapControl    = "control"
	mapTables     = "tables"
	mapLines      = "lines"
	mapConns      = "conns"
	mapVIPCPU     = "vip_cpu"
	mapFlows      = "flows"
	mapReasons    = "reasons"
	mapAsks       = "asks"
	mapShared     = "shared"
	mapSteers     = "steers"
	mapInputs     = "inputs"
	mapInputCache = "input_cache"
	mapSeats      = "seats"
	mapSeatsTaken = "seats_taken"
	mapSeatsAbout = "seats_about"

	mapRates       = "rates"
	mapRateSources = "rate_sources"
)

// Two maps are the daemon's own; no program reads them.
const (
	mapMeta    = "meta"    // one metaRecord
	mapCarried = "carried" // carriedKey → carriedCount
)

// metaRecord says what is pinned beside it. Its form stays the same in every
// layout: it is how a layout is told, and the clock must outlive them all.
type metaRecord struct {
	Layout   uint32
	ClockD   uint32 // shared ms = CLOCK_MONOTONIC ms + ClockD
	ClockSet uint32 // 1: ClockD is fixed
	Pad      uint32
}

// carriedKey names a server line's counts that no line holds any more: the
// line moved (slot), or its server is gone (slot carriedGone, the sum of all).
type carriedKey struct{ VIP, Slot uint32 }

const carriedGone = ^uint32(0)

type carriedCount struct{ Packets, Bytes, Opened uint64 }

func (c *carriedCount) add(o carriedCount) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
	c.Opened += o.Opened
}

func addOwnMaps(spec *ebpf.CollectionSpec) {
	spec.Maps[mapMeta] = &ebpf.MapSpec{Name: "fl_meta", Type: ebpf.Array, KeySize: 4,
		ValueSize: uint32(unsafe.Sizeof(metaRecord{})), MaxEntries: 1}
	// A slot a line at most, and one sum a VIP. Not sized by the limits, so
	// that it outlives a change of them.
	spec.Maps[mapCarried] = &ebpf.MapSpec{Name: "fl_carried", Type: ebpf.Hash, KeySize: 8,
		ValueSize: uint32(unsafe.Sizeof(carriedCount{})), MaxEntries: maxServerLines + bpf.VIPLines, Flags: unix.BPF_F_NO_PREALLOC}
}

// checkSizes holds this package's idea of the maps against the program's, so
// that a program of another build is refused instead of misread.
func checkSizes(spec *ebpf.CollectionSpec) error {
	for _, c := range []struct {
		what      string
		got, want uint32
	}{
		{"bytes of vips", spec.Maps[".data."+mapVIPs].ValueSize, uint32(2 * vipHalf)},
		{"bytes of control", spec.Maps[".data."+mapControl].ValueSize, uint32(unsafe.Sizeof(bpf.Control{}))},
		{"bytes of a server line", spec.Maps[mapLines].ValueSize, uint32(unsafe.Sizeof(bpf.Line{}))},
		{"bytes of a VIP's counters", spec.Maps[mapVIPCPU].ValueSize, uint32(unsafe.Sizeof(bpf.VIPCPU{}))},
		{"bytes of an entry of tables", spec.Maps[mapTables].ValueSize, 8},
		{"bytes of an entry of conns", spec.Maps[mapConns].ValueSize, 4},
		{"bytes of a seat", spec.Maps[mapSeats].ValueSize, uint32(unsafe.Sizeof(bpf.Seat{}))},
		{"bytes of what is about a seat", spec.Maps[mapSeatsAbout].ValueSize, uint32(unsafe.Sizeof(bpf.SeatAbout{}))},
		{"bytes of a VIP's rates", spec.Maps[mapRates].ValueSize, uint32(unsafe.Sizeof(bpf.Rates{}))},
		{"bytes of a set of sources", spec.Maps[mapRateSources].ValueSize, uint32(unsafe.Sizeof(bpf.RateSet{}))},
		{"bytes of a set of flows", spec.Maps[mapFlows].ValueSize, uint32(unsafe.Sizeof(bpf.FlowSet{}))},
		{"bytes of a row of steers", spec.Maps[mapSteers].ValueSize, uint32(unsafe.Sizeof(steer.Row{}))},
		{"bytes of input_cache", spec.Maps[".data."+mapInputCache].ValueSize, uint32(1 << bpf.InputBits * unsafe.Sizeof(bpf.Input{}))},
		{"reasons", spec.Maps[mapReasons].MaxEntries, uint32(len(reasonNames))},
	} {
		if c.got != c.want {
			return fmt.Errorf("the balancer's program has %d %s, this build expects %d; run go generate ./bpf and build again", c.got, c.what, c.want)
		}
	}
	return nil
}

// flowSets is the number of sets for so many flows.
func flowSets(flows int) int { return max(1, (flows+jet.Ways-1)/jet.Ways) }

func (o *objects) layout() (uint32, error) {
	m, err := o.meta()
	return m.Layout, err
}

func (o *objects) meta() (m metaRecord, err error) {
	if o.Maps[mapMeta] == nil {
		return m, errors.New("no map meta")
	}
	err = o.Maps[mapMeta].Lookup(uint32(0), &m)
	return m, err
}

func (o *objects) putMeta(change func(*metaRecord)) error {
	m, err := o.meta()
	if err != nil {
		return err
	}
	change(&m)
	return o.Maps[mapMeta].Put(uint32(0), m)
}

func (o *objects) writeLayout() error {
	return o.putMeta(func(m *metaRecord) { m.Layout = bpf.Layout })
}

// capacity is what the set's maps hold.
func (o *objects) capacity() tables.Capacity {
	return tables.Capacity{
		Lines:        o.Maps[mapLines].MaxEntries(),
		TableEntries: o.Maps[mapTables].MaxEntries() / 2,
		VIPIDs:       o.Maps[mapVIPCPU].MaxEntries(),
	}
}

// readControl and the writes below go through the maps' memory, which the
// programs share: no copy of a map is ever put back over what they count.
func (o *objects) readControl() (c bpf.Control, err error) {
	return c, o.readAt(mapControl, 0, &c)
}

func (o *objects) writeControl(field uintptr, value any) error {
	return o.writeAt(mapControl, int64(field), value)
}

// memory is a map's memory.
func (o *objects) memory(name string) (*ebpf.Memory, error) {
	m := o.Maps[name]
	if m == nil {
		return nil, fmt.Errorf("no map %s is pinned", name)
	}
	mem, err := m.Memory()
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return mem, nil
}

func (o *objects) readAt(name string, offset int64, value any) error {
	b := make([]byte, binary.Size(value))
	if o.readOnly {
		if err := o.copyAt(name, offset, b); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	} else {
		mem, err := o.memory(name)
		if err != nil {
			return err
		}
		if _, err := mem.ReadAt(b, offset); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
	}
	_, err := binary.Decode(b, binary.NativeEndian, value)
	return err
}

// copyAt reads where there is no memory to map: the kernel maps none for a
// file descriptor that only reads. One element at most.
func (o *objects) copyAt(name string, offset int64, to []byte) error {
	m := o.Maps[name]
	if m == nil {
		return errors.New("it is not pinned")
	}
	stride := (int64(m.ValueSize()) + arrayStride - 1) &^ (arrayStride - 1)
	element, err := m.LookupBytes(uint32(offset / stride))
	if err != nil {
		return err
	}
	offset %= stride
	if offset+int64(len(to)) > int64(len(element)) {
		return fmt.Errorf("%d bytes at %d of an element of %d", len(to), offset, len(element))
	}
	copy(to, element[offset:])
	return nil
}

func (o *objects) writeAt(name string, offset int64, value any) error {
	mem, err := o.memory(name)
	if err != nil {
		return err
	}
	b, err := binary.Append(nil, binary.NativeEndian, value)
	if err != nil {
		return fmt.Errorf("map %s: %w", name, err)
	}
	if _, err := mem.WriteAt(b, offset); err != nil {
		return fmt.Errorf("map %s: %w", name, err)
	}
	return nil
}

const vipHalf = int64(bpf.VIPLines) * int64(unsafe.Sizeof(bpf.VIP{}))

// writeVIPs writes one half, of bpf.VIPLines lines, as they are in memory: encoding/binary
// takes milliseconds for them.
func (o *objects) writeVIPs(half uint32, all []bpf.VIP) error {
	mem, err := o.memory(mapVIPs)
	if err != nil {
		return err
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), len(all)*int(unsafe.Sizeof(all[0])))
	if _, err := mem.WriteAt(b, int64(half)*vipHalf); err != nil {
		return fmt.Errorf("map %s: %w", mapVIPs, err)
	}
	return nil
}

// readVIPs returns the lines of one half that are in use.
func (o *objects) readVIPs(half uint32) ([]bpf.VIP, error) {
	all := make([]bpf.VIP, bpf.VIPLines)
	if err := o.readAt(mapVIPs, int64(half)*vipHalf, all); err != nil {
		return nil, err
	}
	var used []bpf.VIP
	for _, v := range all {
		if v.Used != 0 {
			used = append(used, v)
		}
	}
	return used, nil
}

// arrayStride is the distance of elements in an array map's memory: the
// kernel rounds values up to 8 bytes.
const arrayStride = 8

// writeTables fills `tables` from entry first on.
func (o *objects) writeTables(first uint32, entries []uint32) error {
	memory, err := o.mapEntries()
	if err != nil {
		return err
	}
	if int(first)+len(entries) > len(memory) {
		return fmt.Errorf("map %s: entries %d to %d of %d", mapTables, first, int(first)+len(entries)-1, len(memory))
	}
	for i, e := range entries {
		memory[int(first)+i] = uint64(e)
	}
	return nil
}

func (o *objects) readConns(line uint32) (n int32, err error) {
	return n, o.readAt(mapConns, int64(line)*arrayStride, &n)
}

func (o *objects) writeConns(line uint32, n int32) error {
	return o.writeAt(mapConns, int64(line)*arrayStride, n)
}

// mapEntries maps `tables`, once for as long as the set is open. Maps opened
// for reading alone have no memory.
func (o *objects) mapEntries() ([]uint64, error) {
	if o.entries != nil {
		return o.entries, nil
	}
	m := o.Maps[mapTables]
	if m == nil {
		return nil, fmt.Errorf("no map %s is pinned", mapTables)
	}
	size := pages(int(m.MaxEntries()) * arrayStride)
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: map %d bytes of it into memory: %w", mapTables, size, err)
	}
	o.mapped = append(o.mapped, b)
	o.entries = unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), int(m.MaxEntries()))
	return o.entries, nil
}

func (o *objects) unmap() {
	for _, b := range o.mapped {
		_ = unix.Munmap(b) // it is a mapping of ours
	}
	o.mapped, o.entries, o.steers = nil, nil, nil
	o.letSeatsGo()
}

// pages is size, and what the last page has beyond it.
func pages(size int) int {
	page := os.Getpagesize()
	return (size + page - 1) &^ (page - 1)
}
