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
	"golang.org/x/sys/unix"

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

// broadcaster sends copies on any interface of its network namespace.
type broadcaster struct {
	fd int
	// A bucket of frames; the reader of asks alone uses it.
	frames float64
	filled time.Time
}

// openBroadcaster belongs to the calling thread's network namespace.
func openBroadcaster() (*broadcaster, error) {
	// Protocol 0: the socket sends and receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w; run as root, or with CAP_NET_RAW", err)
	}
	return &broadcaster{fd: fd, frames: copyFrames, filled: time.Now()}, nil
}

func (b *broadcaster) close() { unix.Close(b.fd) }

// take says whether n frames may be sent now.
func (b *broadcaster) take(n int, now time.Time) bool {
	b.frames = min(copyFrames, b.frames+copyFrames*now.Sub(b.filled).Seconds())
	b.filled = now
	if b.frames < float64(n) {
		return false
	}
	b.frames -= float64(n)
	return true
}

// send sends a copy of packet (from its IP header on) to a slot.
func (b *broadcaster) send(ifindex uint32, from net.HardwareAddr, slot uint16, packet []byte) error {
	none := [wire.FaildChain]uint16{wire.FaildNone, wire.FaildNone, wire.FaildNone}
	to, err := wire.EncodeFaild(wire.Faild{Kind: wire.FaildCopy, Current: slot, Previous: none})
	if err != nil {
		return err
	}
	frame := wire.Link{Dst: to, Src: wire.MAC(from)}.Frame(packet)
	return unix.Sendto(b.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: int(ifindex), Halen: 6})
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
	if !a.broadcaster.take(len(to), time.Now()) {
		return
	}
	a.copies.Add(uint64(len(to)))
	for _, slot := range to {
		if err := a.broadcaster.send(ask.Ifindex, from, slot, ask.Packet[:ask.Length]); err != nil {
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
