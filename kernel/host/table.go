package host

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
)

// noSlot is FL_NO_SLOT, FL_HOST_VIP_IDS is another macro; the protocols are
// the IP protocol numbers.
const (
	noSlot        = 0xffff
	schemeCheetah = uint8(bpf.SchemeCheetah)
	schemeBeamer  = uint8(bpf.SchemeBeamer)
	schemeFaild   = uint8(bpf.SchemeFaild)
	vipUnsettled  = uint16(bpf.HostVIPUnsettled)
	vipNoIPIP     = uint16(bpf.HostVIPNoIPIP)
	vipNoGUE      = uint16(bpf.HostVIPNoGUE)
	vipSources    = uint16(bpf.HostVIPSources)
	vipJoin       = uint16(bpf.HostVIPJoin)
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoICMPv6   = 58
	protoFrag     = 0x80
	maxVIPID      = 65536 // FL_HOST_VIP_IDS
	halfLines     = tables.Lines
	// ms from planning a table to the moment at which what is new in it begins;
	// four times as long at each attempt that takes longer. The first is ten
	// times what filling takes: where this process is held up between a look at
	// the clock and the flip for longer than the rest, handshakes of that time
	// are taken for the new epoch's and break (TestRotation under load).
	firstMargin = 200
	lastMargin  = 800
)

// table is what one half of host_vips holds.
type table struct {
	entries map[tables.Key]bpf.HostVIP
	// refused is which tunnels the assignment's balancers do not send; what an
	// entry's flags refuse was refused in the version before, too.
	refused map[tables.Key]uint16
	// open is the families of tunnels that are taken from anybody.
	open map[bool]bool
}

func newTable() *table {
	return &table{map[tables.Key]bpf.HostVIP{}, map[tables.Key]uint16{}, map[bool]bool{}}
}

// readTable reads the half in use.
func readTable(m *ebpf.Map, c *control) (*table, error) {
	t := newTable()
	first := (c.load(offActive) & 1) * halfLines
	for i := range uint32(halfLines) {
		var v bpf.HostVIP
		if err := m.Lookup(first+i, &v); err != nil {
			return nil, fmt.Errorf("map host_vips: %w", err)
		}
		if v.Used != 0 {
			t.entries[keyOf(&v)], t.refused[keyOf(&v)] = v, v.Flags&vipNoTunnel
		}
	}
	return t, nil
}

func (t *table) clone() *table { return &table{maps.Clone(t.entries), t.refused, t.open} }

func keyOf(v *bpf.HostVIP) tables.Key {
	return tables.Key{Addr: addrOf(v.Addr), Port: swap16(v.Port), Proto: v.Proto}
}

// addrOf undoes tables.Key.Words.
func addrOf(words [2]uint64) netip.Addr {
	var b [16]byte
	for w := range 2 {
		for i := range 8 {
			b[8*w+i] = byte(words[w] >> (8 * i))
		}
	}
	return netip.AddrFrom16(b).Unmap()
}

// swap16 is a port of a packet in this machine's order, and back.
func swap16(port uint16) uint16 { return bits.ReverseBytes16(port) }

// write fills the idle half: once it is in use, packets see the new table, and
// the old one until then.
func (t *table) write(m *ebpf.Map, c *control) error {
	keys := make([]tables.Key, 0, len(t.entries))
	for k := range t.entries {
		keys = append(keys, k)
	}
	lines, seed, err := tables.Build(keys, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	if err != nil {
		return err
	}
	values := make([]bpf.HostVIP, halfLines)
	for i, k := range keys {
		values[lines[i]] = t.entries[k]
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
