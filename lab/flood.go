package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/attack"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/wire"
)

// FloodPlan is a flood of SYNs and ACKs with random sources, half of each
// kind and half of each with timestamps; or another attack.
type FloodPlan struct {
	Seed    uint64           `json:"seed"`
	Targets []netip.AddrPort `json:"targets"`
	// Attack is what is sent instead of SYNs and ACKs; nil: these.
	Attack *attack.Plan `json:"attack,omitempty"`
	// Idle is where IdleConnections are opened instead, which say nothing.
	Idle netip.AddrPort `json:"idle,omitzero"`
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
	// Attacks and Genuine are what other attacks consist of (attack.Attacker).
	Attacks int `json:"attacks,omitempty"`
	Genuine int `json:"genuine,omitempty"`
	// Refused are frames that the kernel did not take.
	Refused int `json:"refused"`
	// Rate is packets a second, as reached.
	Rate float64 `json:"rate"`
	Done bool    `json:"done"`
}

// floodSources are those of floods. The lab's router sends nothing back to them.
var floodSources = []netip.Prefix{attack.Sources4, attack.Sources6}

func (p FloodPlan) check() error {
	switch {
	case p.Seconds <= 0 || p.Seconds > MaxFloodSeconds:
		return fmt.Errorf("flood: %g seconds: must be more than 0, at most %d", p.Seconds, MaxFloodSeconds)
	case p.Idle.IsValid():
	case len(p.Targets) == 0 && p.Attack == nil:
		return errors.New("flood: no targets")
	case p.Rate < 1 || p.Rate > MaxFloodRate:
		return fmt.Errorf("flood: rate %d: must be 1 to %d packets a second", p.Rate, MaxFloodRate)
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
	if plan.Idle.IsValid() {
		return plan.idle(ctx, json.NewEncoder(out))
	}
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
	if p.Attack != nil && p.Attack.Kind == "asks" {
		// What bounds asks has a bucket for each processor.
		var one unix.CPUSet
		one.Set(0)
		runtime.LockOSThread()
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("keep to one processor: %w", err)
		}
	}
	next, err := p.frames(wire.Link{Src: wire.MAC(device.HardwareAddr), Dst: wire.MAC(p.Gateway)})
	if err != nil {
		return err
	}
	var r FloodReport
	began, told := time.Now(), time.Now()
	report := func(done bool) error {
		r.Seconds, r.Done = time.Since(began).Seconds(), done
		r.Rate = float64(r.SYNs+r.ACKs+r.Attacks+r.Genuine) / max(r.Seconds, 0.001)
		return out.Encode(r)
	}
	due := 0 // frames that have been due since the start
	for sleep(ctx, time.Millisecond) == nil {
		// A machine that was busy for long does not catch up: it would be
		// another flood.
		now := int(time.Since(began).Seconds() * float64(p.Rate))
		due = max(due, now-p.Rate/10)
		for due < now && ctx.Err() == nil {
			n := min(floodBatch, now-due)
			frames, firsts := make([][]byte, n), make([]bool, n)
			for i := range frames {
				frames[i], firsts[i] = next()
			}
			sent, err := sendFrames(socket, frames)
			if err != nil {
				return fmt.Errorf("flood: %w", err)
			}
			r.count(p.Attack != nil, firsts, sent)
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

// frames makes the plan's packets. first tells of which of two kinds one is:
// SYNs, and what is genuine among attacks.
func (p FloodPlan) frames(link wire.Link) (next func() (frame []byte, first bool), err error) {
	if p.Attack != nil {
		attacker, err := attack.New(*p.Attack, sim.Stream(p.Seed, "attack/"+p.Attack.Kind))
		if err != nil {
			return nil, err
		}
		return func() ([]byte, bool) {
			packet, genuine := attacker.Next()
			return link.Frame(packet), genuine
		}, nil
	}
	random := sim.Stream(p.Seed, "flood")
	return func() ([]byte, bool) {
		t, syn := attack.Segment(random, p.Targets[random.IntN(len(p.Targets))])
		t.Link = link
		return t.Frame(), syn
	}, nil
}

// count takes in a batch of which the kernel took the first sent.
func (r *FloodReport) count(attacks bool, firsts []bool, sent int) {
	r.Refused += len(firsts) - sent
	first := 0
	for _, is := range firsts[:sent] {
		if is {
			first++
		}
	}
	if attacks {
		r.Genuine, r.Attacks = r.Genuine+first, r.Attacks+sent-first
	} else {
		r.SYNs, r.ACKs = r.SYNs+first, r.ACKs+sent-first
	}
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
