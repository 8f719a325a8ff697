package host

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
)

// control is host_control, mapped: one word is changed at a time, so that a
// program that raises `lookup` is never undone.
type control struct{ memory *ebpf.Memory }

// Offsets of struct fl_host_control.
const (
	offActive  = unsafe.Offsetof(bpf.HostControl{}.Active)
	offLookup  = unsafe.Offsetof(bpf.HostControl{}.Lookup)
	offSeed    = unsafe.Offsetof(bpf.HostControl{}.VipSeed)
	offClock   = unsafe.Offsetof(bpf.HostControl{}.ClockBase)
	offJiffies = unsafe.Offsetof(bpf.HostControl{}.JiffiesBase)
	offLayout  = unsafe.Offsetof(bpf.HostControl{}.Layout)
	offClocked = unsafe.Offsetof(bpf.HostControl{}.ClockSet)
)

func openControl(m *ebpf.Map) (*control, error) {
	memory, err := m.Memory()
	if err != nil {
		return nil, fmt.Errorf("map host_control: %w", err)
	}
	return &control{memory}, nil
}

// The map's memory lives as long as control does, and the offsets lie in it:
// neither access can fail.

func (c *control) load(off uintptr) uint32 {
	var b [4]byte
	_, _ = c.memory.ReadAt(b[:], int64(off))
	return binary.LittleEndian.Uint32(b[:])
}

func (c *control) store(off uintptr, v uint32) {
	b := binary.LittleEndian.AppendUint32(nil, v)
	_, _ = c.memory.WriteAt(b, int64(off))
}

// storeSeed sets the odd multiplier of a half's VIP table.
func (c *control) storeSeed(half uint32, seed uint64) {
	b := binary.LittleEndian.AppendUint64(nil, seed)
	_, _ = c.memory.WriteAt(b, int64(offSeed)+8*int64(half))
}
