package bench

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
)

// flowSet is a set of flows in bench_flows; each has room for flowCount.
type flowSet int

const (
	known     flowSet = iota // cookies of the IPv4 VIPs
	bad                      // cookies that name no server; strangers to all others
	known6                   // cookies of the IPv6 VIP
	untracked                // that no change would move, neither of the table nor of anchor
	tracked                  // trackedCount that a change of either may move
	seated                   // whose cookies also name their seats of VIP stateful
	settled                  // whose bucket of VIP beamer-6m has not moved
)

// trackedCount is more than the horizon's share of flowCount connections: the
// flow table is half full of them.
const trackedCount = 1 << 17

// hotCount of these are the flows of a case whose entries stay in the cache. It
// takes the last ones: of entries that nothing has confirmed yet, the oldest
// give way.
const hotCount = 1024

func (s flowSet) count() int {
	if s == tracked {
		return trackedCount
	}
	return flowCount
}

// source is flow i's client. The low four bytes of its address and the port
// are what the harness writes.
func (s flowSet) source(r uint32, i int) netip.AddrPort {
	port := uint16(1024 + i%60000)
	if s == known6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 12: byte(r >> 16), 13: byte(r >> 8), 14: byte(r), 15: byte(i)}), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(r>>16)%223 + 1, byte(r >> 8), byte(r), byte(i)}), port)
}

// takes says whether the flow belongs to the set.
func (b *balancer) takes(s flowSet, src netip.AddrPort) bool {
	h := hash.Tuple(hashKey, src, 80)
	switch s {
	case settled:
		return !b.hashes["buckets-6m"].tracks(h)
	case tracked, untracked:
	default:
		return true
	}
	return b.hashes["table"].tracks(h) == (s == tracked) && b.hashes["anchor"].tracks(h) == (s == tracked)
}

func (b *balancer) fillFlows(sets []flowSet) error {
	layout := cheetah.Layout{Bits: cookieBits}
	b.sets = sets
	all := make([]lbBenchFlow, len(sets)*flowCount)
	for at, set := range sets {
		for i := range set.count() {
			src := set.source(b.random.Uint32(), i)
			for !b.takes(set, src) {
				src = set.source(b.random.Uint32(), i)
			}
			epoch := b.random.Uint32N(2)
			slot := b.random.Uint32N(serverCount)
			if set == bad {
				slot = serverCount + b.random.Uint32N(uint32(layout.Slots())-serverCount)
			}
			layout := layout
			if set == seated {
				epoch, slot, layout = 0, slot%uint32(statefulCookie.Slots()), statefulCookie
				h := hash.Tuple(benchKeys[epoch], src, 80)
				seat, err := b.sit(h)
				if err != nil {
					return err
				}
				b.shows(h, slot, seat)
				slot = layout.Join(slot, seat)
			}
			field := layout.Encode(hash.Tuple(benchKeys[epoch], src, 80), slot, epoch)
			ecr := layout.WireTS(field, sharedNow-b.random.Uint32N(60_000))
			a := src.Addr().AsSlice()
			f := &all[at*flowCount+i]
			f.Saddr = binary.LittleEndian.Uint32(a[len(a)-4:])
			f.Sport = tables.Key{Port: src.Port()}.PortBE()
			f.Dport = tables.Key{Port: 80}.PortBE()
			f.Ecr = binary.BigEndian.Uint32(binary.LittleEndian.AppendUint32(nil, ecr))
		}
	}
	// The map is mapped: a copy takes milliseconds, updates take seconds.
	m, err := b.o.BenchFlows.Memory()
	if err != nil {
		return err
	}
	_, err = m.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), len(all)*int(unsafe.Sizeof(all[0]))), 0)
	return err
}

// keepFlows fills the flow table with what a VIP tracks of a set of flows that
// are established, and keeps it as the table of that VIP.
func (b *balancer) keepFlows(name string, set flowSet) error {
	table := make([]byte, b.flows.Size())
	if _, err := b.flows.WriteAt(table, 0); err != nil {
		return err
	}
	c := lbCase{to: vips[name].addr, set: set, flows: uint32(set.count())}
	for range 2 { // the first packet makes an entry, the second confirms it
		if _, err := b.timed(progLB, c, xdpTX, 0, set.count()); err != nil {
			return fmt.Errorf("establish flows of VIP %s: %w", name, err)
		}
	}
	if _, err := b.flows.ReadAt(table, 0); err != nil {
		return err
	}
	b.tables[name] = table
	return nil
}

// putFlows makes the flow table what keepFlows kept under that name.
func (b *balancer) putFlows(name string) error {
	_, err := b.flows.WriteAt(b.tables[name], 0)
	return err
}
