package host

import (
	"fmt"
	"math/rand/v2"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
)

const (
	halfLines = bpf.VIPLines
	// ms from planning a table to the moment at which what is new in it begins;
	// four times as long at each attempt that leaves less than half of it. The first
	// is ten times what filling takes: where this process is held up between a look at
	// the clock and the flip for longer than the rest, handshakes of that time
	// are taken for the new epoch's and break (TestRotation under load).
	firstMargin = 200
	lastMargin  = 800
)

// readTable reads the half in use.
func readTable(m *ebpf.Map, c *control) (*tables.HostTable, error) {
	t := tables.NewHostTable()
	first := (c.load(offActive) & 1) * halfLines
	for i := range uint32(halfLines) {
		var v bpf.HostVIP
		if err := m.Lookup(first+i, &v); err != nil {
			return nil, fmt.Errorf("map host_vips: %w", err)
		}
		if v.Used != 0 {
			t.Entries[tables.KeyOf(&v)], t.Refused[tables.KeyOf(&v)] = v, v.Flags&tables.NoTunnel
		}
	}
	return t, nil
}

// writeTable fills the idle half with t: once it is in use, packets see the new table,
// and the old one until then.
func writeTable(m *ebpf.Map, c *control, t *tables.HostTable) error {
	values, seed, err := t.Half(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	if err != nil {
		return err
	}
	half := 1 - c.load(offActive)&1
	index := make([]uint32, halfLines)
	for i := range index {
		index[i] = half*halfLines + uint32(i)
	}
	if _, err := m.BatchUpdate(index, values, nil); err != nil {
		return fmt.Errorf("map host_vips: %w", err)
	}
	c.storeSeed(half, seed)
	return nil
}
