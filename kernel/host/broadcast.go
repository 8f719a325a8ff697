package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// An ICMP error of scheme faild reaches any server, because switches hash the
// router that sent it, not the connection that it quotes. The server that it
// reaches hands it up unless the connection is its own, and a copy goes to
// each of the VIP's other servers (Faild, NSDI'18, §4.2, "ICMP"). The copies'
// MACs say that they are copies, so nobody asks on. The program bounds how
// many are handed up, in all and for each source; this side how many frames
// leave.

// copyFrames is how many copies may leave a second; as many may go in one
// burst. Beyond, an error is forgotten as one that was lost on its way.
const copyFrames = 20000

// copyTo sends a copy of packet (from its IP header on) to a slot.
func (a *Agent) copyTo(ifindex uint32, from net.HardwareAddr, slot uint16, packet []byte) error {
	none := [wire.FaildChain]uint16{wire.FaildNone, wire.FaildNone, wire.FaildNone}
	to, err := wire.EncodeFaild(wire.Faild{Kind: wire.FaildCopy, Current: slot, Previous: none})
	if err != nil {
		return err
	}
	return a.frames.Send(ifindex, wire.Link{Dst: to, Src: wire.MAC(from)}.Frame(packet))
}

// serveAsks sends what the program hands up until ctx ends.
func (a *Agent) serveAsks(ctx context.Context) error {
	r, err := ringbuf.NewReader(a.set.HostAsks)
	if err != nil {
		return fmt.Errorf("host agent: read asks: %w", err)
	}
	defer context.AfterFunc(ctx, func() { r.Close() })()
	defer r.Close()
	var rec ringbuf.Record
	for {
		err := r.ReadInto(&rec)
		if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("host agent: read asks: %w", err)
		}
		var ask bpf.HostAsk
		if _, err := binary.Decode(rec.RawSample, binary.NativeEndian, &ask); err != nil {
			return fmt.Errorf("host agent: read asks: %w", err)
		}
		if int(ask.Length) <= len(ask.Packet) {
			a.broadcast(&ask)
		}
	}
}

// broadcast sends a copy to each other server of the ask's VIP.
func (a *Agent) broadcast(ask *bpf.HostAsk) {
	from, ok := a.macOf(ask.Ifindex)
	if !ok {
		return // no VIP of scheme faild is left
	}
	a.peers.mu.Lock()
	var to []uint16
	for key := range a.peers.want {
		if key.VipId == ask.VipId {
			to = append(to, key.Slot)
		}
	}
	a.peers.mu.Unlock()
	if !a.frames.Take(len(to), time.Now()) {
		return
	}
	a.copies.Add(uint64(len(to)))
	for _, slot := range to {
		if err := a.copyTo(ask.Ifindex, from, slot, ask.Packet[:ask.Length]); err != nil {
			a.log.Debug("copy an ICMP error", "slot", slot, "error", err)
		}
	}
}

// macBytes is the MAC in bytes 0-5 of a word.
func macBytes(word uint64) net.HardwareAddr {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], word)
	return b[:6]
}
