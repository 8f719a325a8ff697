package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// FloodPlan is a flood of SYNs and ACKs with random sources, half of each
// kind and half of each with timestamps.
type FloodPlan struct {
	Seed    uint64           `json:"seed"`
	Targets []netip.AddrPort `json:"targets"`
	// Rate is packets a second, 1 to MaxFloodRate.
	Rate int `json:"rate"`
	// Seconds is the longest that it may last, at most MaxFloodSeconds; it
	// ends before when its input does.
	Seconds float64 `json:"seconds"`
	// Gateway is the Ethernet address that the frames go to.
	Gateway net.HardwareAddr `json:"gateway"`
}

// Bounds of a flood.
const (
	MaxFloodRate    = 200_000
	MaxFloodSeconds = 600
)

// FloodReport is what a flood has sent: every half second, and once, with
// Done, at the end.
type FloodReport struct {
	Seconds float64 `json:"seconds"`
	SYNs    int     `json:"syns"`
	ACKs    int     `json:"acks"`
	// Refused are frames that the kernel did not take.
	Refused int `json:"refused"`
	// Rate is packets a second, as reached.
	Rate float64 `json:"rate"`
	Done bool    `json:"done"`
}

// Sources of floods: RFC 2544's and RFC 5180's prefixes for benchmarks. The
// lab's router sends nothing back to them.
var (
	floodSources4 = netip.MustParsePrefix("198.18.0.0/15")
	floodSources6 = netip.MustParsePrefix("2001:2::/48")
)

func (p FloodPlan) check() error {
	switch {
	case len(p.Targets) == 0:
		return errors.New("flood: no targets")
	case p.Rate < 1 || p.Rate > MaxFloodRate:
		return fmt.Errorf("flood: rate %d: must be 1 to %d packets a second", p.Rate, MaxFloodRate)
	case p.Seconds <= 0 || p.Seconds > MaxFloodSeconds:
		return fmt.Errorf("flood: %g seconds: must be more than 0, at most %d", p.Seconds, MaxFloodSeconds)
	case len(p.Gateway) != 6:
		return fmt.Errorf("flood: gateway %q: must be an Ethernet address", p.Gateway)
	}
	return nil
}

// floodBatch is how many frames go to the kernel at a time.
const floodBatch = 64

// RunFlood carries out the plan that it reads from in by raw frames out of
// this machine's uplink, and writes reports to out. It ends with its time, or
// when in ends.
func RunFlood(ctx context.Context, in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(in)
	lines := json.NewDecoder(reader)
	var plan FloodPlan
	if err := lines.Decode(&plan); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	if err := plan.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, seconds(plan.Seconds))
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, io.MultiReader(lines.Buffered(), reader))
	}()
	return plan.run(ctx, json.NewEncoder(out))
}

func (p FloodPlan) run(ctx context.Context, out *json.Encoder) error {
	device, err := net.InterfaceByName(uplink)
	if err != nil {
		return fmt.Errorf("flood: %w", err)
	}
	// Protocol 0: it sends only.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open raw socket: %w", err)
	}
	defer unix.Close(socket)
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Ifindex: device.Index}); err != nil {
		return fmt.Errorf("bind raw socket to %s: %w", uplink, err)
	}
	random := stream(p.Seed, "flood")
	link := wire.Link{Src: wire.MAC(device.HardwareAddr), Dst: wire.MAC(p.Gateway)}
	var r FloodReport
	began, told := time.Now(), time.Now()
	report := func(done bool) error {
		r.Seconds, r.Done = time.Since(began).Seconds(), done
		r.Rate = float64(r.SYNs+r.ACKs) / max(r.Seconds, 0.001)
		return out.Encode(r)
	}
	due := 0 // frames that have been due since the start
	for sleep(ctx, time.Millisecond) == nil {
		// A machine that was busy for long does not catch up: it would be
		// another flood.
		next := int(time.Since(began).Seconds() * float64(p.Rate))
		due = max(due, next-p.Rate/10)
		for due < next && ctx.Err() == nil {
			n := min(floodBatch, next-due)
			frames, syns := make([][]byte, n), 0
			for i := range frames {
				var syn bool
				if frames[i], syn = p.frame(random, link); syn {
					syns++
				}
			}
			sent, err := sendFrames(socket, frames)
			if err != nil {
				return fmt.Errorf("flood: %w", err)
			}
			r.Refused += n - sent
			r.SYNs += syns * sent / n
			r.ACKs += sent - syns*sent/n
			due += n
		}
		if time.Since(told) > 500*time.Millisecond {
			told = time.Now()
			if err := report(false); err != nil {
				return err
			}
		}
	}
	return report(true)
}

// frame draws the next packet.
func (p FloodPlan) frame(random *rand.Rand, link wire.Link) (frame []byte, syn bool) {
	to := p.Targets[random.IntN(len(p.Targets))]
	from := floodSources4
	if to.Addr().Is6() {
		from = floodSources6
	}
	draw := random.Uint64()
	t := wire.TCP{
		Src: netip.AddrPortFrom(randomAddress(random, from), uint16(1024+random.IntN(64512))), Dst: to,
		Seq: random.Uint32(), Flags: wire.SYN, Link: link,
	}
	syn = draw&1 == 0
	if !syn {
		t.Flags, t.Ack = wire.ACK, random.Uint32()
	}
	switch stamped := draw&2 == 0; {
	case syn && stamped:
		t.Options = wire.SYNOptions(1460, random.Uint32())
	case syn:
		t.Options = wire.MSS(1460)
	case stamped:
		t.Options = wire.Timestamp(random.Uint32(), random.Uint32())
	}
	return t.Frame(), syn
}

// randomAddress draws an address of a prefix.
func randomAddress(random *rand.Rand, prefix netip.Prefix) netip.Addr {
	b := prefix.Addr().AsSlice()
	for i := range b {
		keep := min(8, max(0, prefix.Bits()-8*i)) // bits of this byte
		mask := byte(0xff) >> keep
		b[i] |= byte(random.Uint32()) & mask
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// sendFrames hands frames to the kernel in one call and says how many it
// took: a full queue takes fewer.
func sendFrames(socket int, frames [][]byte) (sent int, err error) {
	parts := make([]unix.Iovec, len(frames))
	messages := make([]mmsghdr, len(frames))
	for i, f := range frames {
		parts[i].Base = &f[0]
		parts[i].SetLen(len(f))
		messages[i].header.Iov = &parts[i]
		messages[i].header.SetIovlen(1)
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(socket), uintptr(unsafe.Pointer(&messages[0])), uintptr(len(messages)), 0, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.ENOBUFS, unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, fmt.Errorf("send frames: %w", errno)
}
