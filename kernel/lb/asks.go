package lb

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// An RST or ICMP error that names no server is handed to the daemon, which
// sends a copy through the forwarding to each server of its VIP; the one that
// knows the connection acts on it, the others ignore it. The program bounds
// how many are handed up (control.ask_rate), this side how many frames leave.

// askFrames is how many frames a second asking may cost; as many may go in
// one burst. Beyond, what is asked is forgotten, as a lost packet would be.
const askFrames = 20000

// asker sends frames as the program forwards packets.
type asker struct {
	*kernel.Frames
	source4, source6 netip.Addr
}

// ServeAsks sends what the program hands up until ctx ends.
func (l *LB) ServeAsks(ctx context.Context) error {
	for ctx.Err() == nil {
		l.mu.Lock()
		set := l.set
		var r *ringbuf.Reader
		err := errClosed
		if set != nil {
			r, err = ringbuf.NewReader(set.Maps[mapAsks])
		}
		l.mu.Unlock()
		if err != nil {
			return fmt.Errorf("read asks: %w", err)
		}
		stop := context.AfterFunc(ctx, func() { r.Close() })
		err = l.readAsks(r)
		stop()
		r.Close()
		if ctx.Err() == nil {
			return fmt.Errorf("read asks: %w", err)
		}
	}
	return nil
}

func (l *LB) readAsks(r *ringbuf.Reader) error {
	var rec ringbuf.Record
	for {
		if err := r.ReadInto(&rec); err != nil {
			return err
		}
		var ask bpf.Ask
		if _, err := binary.Decode(rec.RawSample, binary.NativeEndian, &ask); err != nil {
			return err
		}
		if int(ask.Length) > len(ask.Packet) {
			continue
		}
		l.ask(ask.VipId, ask.Packet[:ask.Length])
	}
}

// ask sends a copy of a packet to each server of a VIP.
func (l *LB) ask(vip uint32, packet []byte) {
	l.mu.Lock()
	var lines []bpf.Line
	if r, ok := l.force.ranges[vip]; ok {
		for line := r.First; line < r.End(); line++ {
			if w := l.written[line]; w.usable() {
				lines = append(lines, w.image)
			}
		}
	}
	l.mu.Unlock()
	if !l.asker.Take(len(lines), time.Now()) {
		return
	}
	for _, line := range lines {
		if err := l.asker.send(line, packet); err != nil {
			l.log.Debug("ask a server", "server", tables.AddrOf(line.Addr), "error", err)
		}
	}
}

// source is the outer source of tunnels to a server.
func (a *asker) source(server netip.Addr) netip.Addr {
	if server.Is6() {
		return a.source6
	}
	return a.source4
}

// send forwards a packet (from its IP header on) as the program would.
func (a *asker) send(line bpf.Line, packet []byte) error {
	dst := tables.AddrOf(line.Addr)
	o := wire.Outer{Src: a.source(dst), Dst: dst}
	to, from := tables.LineWord(line.MacDst), tables.LineWord(line.MacSrc)
	if forwarding := vip.ForwardingOf(uint8(to.Forwarding())); forwarding.Tunnel {
		if o.Tunnel = wire.Tunnel(forwarding.Name); o.Tunnel.Port() != 0 {
			h := fnv.New32a()
			h.Write(packet)
			o.SrcPort = wire.TunnelPorts | uint16(h.Sum32()&0x3fff)
		}
		packet = o.Encapsulate(packet)
	}
	link := wire.Link{Dst: to.MAC(), Src: from.MAC(), VLAN: from.VLAN()}
	return a.Send(line.Ifindex, link.Frame(packet))
}
