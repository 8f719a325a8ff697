package tracking

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/wire"
)

// ReadTrace makes a trace of a pcap file: its TCP and UDP packets in their
// order, not in their time; every destination (address, port and protocol) is
// a VIP. A file that is cut is an error that names the packet and the byte.
func ReadTrace(r io.Reader, name string) (*Trace, error) {
	type flow struct {
		source netip.AddrPort
		vip    uint32
	}
	t := &Trace{Name: name}
	vips, flows, sources := map[VIP]uint32{}, map[flow]uint32{}, map[netip.Addr]uint32{}
	var six []bool
	any6 := false
	add := func(p *wire.Parsed) error {
		v := VIP{p.Destination(), p.Protocol}
		vip, ok := vips[v]
		if !ok {
			vip = uint32(len(t.VIPs))
			vips[v] = vip
			t.VIPs = append(t.VIPs, v)
			six = append(six, p.Version == 6)
			any6 = any6 || p.Version == 6
		}
		f := flow{p.Source(), vip}
		id, ok := flows[f]
		if !ok {
			id = uint32(len(t.Flows))
			flows[f] = id
			pkt := Packet{Ports: portsWord(p.SrcPort, p.DstPort), VIP: vip, Flow: id}
			pkt.Source = t.source(p.Src, sources)
			t.Flows = append(t.Flows, pkt)
		}
		if len(t.Packets) == maxPackets {
			return fmt.Errorf("read trace: more than %d packets; cut the capture", maxPackets)
		}
		t.Packets = append(t.Packets, t.Flows[id])
		return nil
	}
	skipped, err := workload.EachPacket(r, func(_ time.Time, p *wire.Parsed) error { return add(p) })
	if err != nil {
		return nil, err
	}
	t.Skipped = skipped
	if any6 {
		t.six = six
	}
	return t, nil
}

// source is the word of an address, or the index of a long one.
func (t *Trace) source(a netip.Addr, known map[netip.Addr]uint32) uint32 {
	if a.Is4() {
		b := a.As4()
		return binary.LittleEndian.Uint32(b[:])
	}
	i, ok := known[a]
	if !ok {
		i = uint32(len(t.sources))
		known[a] = i
		b := a.As16()
		t.sources = append(t.sources, [2]uint64{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])})
	}
	return i
}
