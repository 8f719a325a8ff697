package workload

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/wire"
)

// maxCut is the most that a capture may have cut from a packet: IP's longest.
const maxCut = 1 << 16

// EachPacket calls f for each whole TCP or UDP packet of a pcap file, in the
// file's order; p is valid until f returns. skipped counts the others: neither
// TCP nor UDP, fragments, malformed. A file that is cut is an error that names
// the packet and the byte, and so is one that has no such packet.
func EachPacket(r io.Reader, f func(at time.Time, p *wire.Parsed) error) (skipped int, err error) {
	used := 0
	err = wire.EachPcap(r, func(c wire.Captured) error {
		// A capture with a short snapshot length has the headers all the
		// same; the rest may be zeros.
		if missing := c.Length - len(c.Frame); missing > 0 && missing <= maxCut {
			c.Frame = append(c.Frame, make([]byte, missing)...)
		}
		p := wire.Parse(c.Frame)
		if p.Version == 0 || p.Err != nil || p.Fragmented() || p.Protocol != wire.ProtoTCP && p.Protocol != wire.ProtoUDP {
			skipped++
			return nil
		}
		used++
		return f(c.Time, p)
	})
	if err == nil && used == 0 {
		err = errors.New("read pcap: no whole TCP or UDP packet of IP is in it; capture with: tcpdump -w FILE 'tcp or udp'")
	}
	return skipped, err
}

// ReadCapture makes connections of a pcap file. The client is who sends the
// SYN; of a connection that began before the capture, or of datagrams, who has
// the higher port. A connection lasts from its first packet to its last of
// either direction; a SYN after a FIN or RST begins another.
func ReadCapture(r io.Reader, name string) (*Record, error) {
	c := collector{record: &Record{Name: name}, open: map[tuple]int{}, over: map[int]bool{}}
	skipped, err := EachPacket(r, func(at time.Time, p *wire.Parsed) error {
		c.packet(sim.Time(at.UnixNano()), p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.record.Skipped = skipped
	return c.record.settle(), nil
}

// collector puts a capture's packets together.
type collector struct {
	record *Record
	open   map[tuple]int // index of the flow
	over   map[int]bool  // a FIN or RST was seen
}

type tuple struct {
	client, server netip.AddrPort
	protocol       uint8
}

func (c *collector) packet(at sim.Time, p *wire.Parsed) {
	t := tuple{p.Source(), p.Destination(), p.Protocol}
	back := tuple{t.server, t.client, t.protocol}
	i, ok := c.open[t]
	if !ok {
		i, ok = c.open[back]
	}
	syn := p.Protocol == wire.ProtoTCP && p.Flags&(wire.SYN|wire.ACK) == wire.SYN
	if !ok || syn && c.over[i] {
		if !syn && t.client.Port() < t.server.Port() {
			t, back = back, t
		}
		i = len(c.record.Flows)
		delete(c.open, back)
		c.open[t] = i
		c.record.Flows = append(c.record.Flows, Flow{Start: at, Source: t.client, Destination: t.server, Protocol: t.protocol})
	}
	f := &c.record.Flows[i]
	// A capture's packets may be out of order.
	end := max(f.Start+f.Duration, at)
	f.Start = min(f.Start, at)
	f.Duration = end - f.Start
	f.Bytes += int64(p.TotalLen)
	if p.Protocol == wire.ProtoTCP && p.Flags&(wire.FIN|wire.RST) != 0 {
		c.over[i] = true
	}
}
