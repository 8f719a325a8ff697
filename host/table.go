package host

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/viptable"
)

// noSlot is FL_NO_SLOT, the other constants are those of fairlead.h and of
// the IP protocol numbers.
const (
	noSlot        = 0xffff
	schemeCheetah = 1
	schemeBeamer  = 4
	schemeFaild   = 5
	vipUnsettled  = uint16(hostFlHostVipFlagsFL_HOST_VIP_UNSETTLED)
	vipNoIPIP     = uint16(hostFlHostVipFlagsFL_HOST_VIP_NO_IPIP)
	vipNoGUE      = uint16(hostFlHostVipFlagsFL_HOST_VIP_NO_GUE)
	vipSources    = uint16(hostFlHostVipFlagsFL_HOST_VIP_SOURCES)
	vipJoin       = uint16(hostFlHostVipFlagsFL_HOST_VIP_JOIN)
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoICMPv6   = 58
	protoFrag     = 0x80
	maxVIPID      = 65536 // FL_HOST_VIP_IDS
	halfLines     = viptable.Lines
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
	entries map[viptable.Key]hostFlHostVip
	// refused is which tunnels the assignment's balancers do not send; what an
	// entry's flags refuse was refused in the version before, too.
	refused map[viptable.Key]uint16
	// open is the families of tunnels that are taken from anybody.
	open map[bool]bool
}

func newTable() *table {
	return &table{map[viptable.Key]hostFlHostVip{}, map[viptable.Key]uint16{}, map[bool]bool{}}
}

// readTable reads the half in use.
func readTable(m *ebpf.Map, c *control) (*table, error) {
	t := newTable()
	first := (c.load(offActive) & 1) * halfLines
	for i := range uint32(halfLines) {
		var v hostFlHostVip
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

func keyOf(v *hostFlHostVip) viptable.Key {
	return viptable.Key{Addr: addrOf(v.Addr), Port: swap16(v.Port), Proto: v.Proto}
}

// addrOf undoes viptable.Key.Words.
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
	keys := make([]viptable.Key, 0, len(t.entries))
	for k := range t.entries {
		keys = append(keys, k)
	}
	lines, seed, err := viptable.Build(keys, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	if err != nil {
		return err
	}
	values := make([]hostFlHostVip, halfLines)
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
