// Package trace tells a packet's story through a loaded balancer: which VIP,
// what its cookie says, which server and why, how it is encapsulated, or why
// it is dropped.
//
//	pinned program and maps ─ snapshot ─▶ twin (private maps, clock stands)
//	packet ─▶ test run of the twin ─▶ action, output, what was counted
//	       └▶ scheme/model over the same maps ─▶ the explanation
//
// The outcome is the program's; the model only explains it, and where the two
// disagree the story says so. Counters, tables and flows of the balancer are
// not touched. Sources and the packet language are in spec.go.
package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Tracer runs packets through a copy of one loaded balancer. Packets of one
// Tracer meet what those before left behind, as they would in the balancer.
// Use it from one goroutine, and Close it there.
type Tracer struct {
	twin    *lb.Twin
	cpu     int
	release func()
	names   map[uint32]controller.VIP // by VIP id
	now     uint32                    // shared ms when opened
	opened  time.Time
	program Program
}

// Program says what was traced.
type Program struct {
	PinDir string `json:"pin_dir"`
	// Tag is the loaded program's digest, BuildTag that of the build which
	// traced; Same says that they are equal, so that the story is certainly
	// the loaded program's.
	Tag      string `json:"tag"`
	BuildTag string `json:"build_tag"`
	Same     bool   `json:"same"`
}

// Open takes the copy. names (may be nil) is the balancer's assignment, which
// gives names to VIPs and servers.
func Open(pinDir string, names *controller.Assignment) (t *Tracer, err error) {
	state, err := lb.OpenReadOnly(pinDir)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	t = &Tracer{names: map[uint32]controller.VIP{}, program: Program{PinDir: pinDir}}
	base, ok := state.ClockBase()
	if !ok {
		return nil, fmt.Errorf("%s: the balancer has no shared clock yet: start its daemon (fairlead lb) and wait for its first assignment", pinDir)
	}
	if t.now, err = sharedNow(base); err != nil {
		return nil, err
	}
	t.opened = time.Now()
	if t.twin, err = lb.TwinOf(state); err != nil {
		return nil, err
	}
	if t.program.Tag, t.program.BuildTag, err = t.twin.Tags(state); err != nil {
		t.twin.Close()
		return nil, err
	}
	t.program.Same = t.program.Tag == t.program.BuildTag
	if names != nil {
		for _, v := range names.VIPs {
			t.names[v.ID] = v
		}
	}
	if t.cpu, t.release, err = lb.OneCPU(); err != nil {
		t.twin.Close()
		return nil, err
	}
	return t, nil
}

// sharedNow is shared ms = CLOCK_MONOTONIC ms + base.
func sharedNow(base uint32) (uint32, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint32(ts.Nano()/1e6) + base, nil
}

// Close frees the copy.
func (t *Tracer) Close() {
	t.release()
	t.twin.Close()
}

// Spec traces a packet that is described in words.
func (t *Tracer) Spec(s *Spec) (*Story, error) {
	tables, _, err := t.twin.Model(t.cpu)
	if err != nil {
		return nil, err
	}
	frame, err := s.Frame(t.now, func(server string, src, dst netip.AddrPort, age uint32) (uint32, error) {
		return t.stamp(tables, server, src, dst, age)
	})
	if err != nil {
		return nil, err
	}
	return t.frame(frame, t.now)
}

// Frame traces an Ethernet frame as if it came in at the given moment (zero:
// when the copy was taken), so that the cookies of a capture have the age
// that they had then.
func (t *Tracer) Frame(frame []byte, at time.Time) (*Story, error) {
	now := t.now
	if !at.IsZero() {
		now += uint32(at.Sub(t.opened).Milliseconds())
	}
	return t.frame(frame, now)
}

// Capture traces every packet of a pcap file, in its order. With an error, and when
// ctx ends, the stories are those of the packets before.
func (t *Tracer) Capture(ctx context.Context, r io.Reader) ([]*Story, error) {
	packets, err := wire.ReadPcap(r)
	if err != nil {
		return nil, err
	}
	stories := []*Story{}
	for i, c := range packets {
		story, err := t.Frame(c.Frame, c.Time)
		if err = errors.Join(ctx.Err(), err); err != nil {
			return stories, fmt.Errorf("packet %d: %w", i+1, err)
		}
		story.Number = i + 1
		stories = append(stories, story)
	}
	return stories, nil
}

func (t *Tracer) frame(frame []byte, now uint32) (*Story, error) {
	if err := t.switched(wire.Parse(frame)); err != nil {
		return nil, err
	}
	if err := t.twin.SetClock(now); err != nil {
		return nil, err
	}
	tables, state, err := t.twin.Model(t.cpu)
	if err != nil {
		return nil, err
	}
	explained := tables.Process(state, frame, now)
	run, left, err := t.twin.Observe(frame, t.cpu)
	if err != nil {
		return nil, err
	}
	return t.story(tables, explained, run, left, now), nil
}

// stamp is what the server stamps for the connection: see Stamp.
func (t *Tracer) stamp(tables *model.Tables, server string, src, dst netip.AddrPort, age uint32) (uint32, error) {
	v := tables.Services[model.Key{Addr: dst.Addr(), Port: dst.Port(), Proto: protoTCP}]
	if v == nil {
		v = tables.Services[model.Key{Addr: dst.Addr(), Proto: protoTCP}]
	}
	if v == nil {
		return 0, fmt.Errorf("cookie-of=%s: no TCP VIP serves %v", server, dst)
	}
	if v.Scheme.Row().Finds != vip.ByCookie {
		return 0, fmt.Errorf("cookie-of=%s: the scheme of VIP %v is %v, which has no cookies", server, dst, v.Scheme)
	}
	slot, err := t.slot(tables, v, server)
	if err != nil {
		return 0, err
	}
	epoch := t.epoch(v)
	return v.Layout.Stamp(v.Keys[epoch], epoch, src, dst.Port(), v.Layout.Join(slot, 0), t.now-age), nil
}

// epoch is a parity whose key decodes. Where two do, either will: the balancer
// does not know under which the hosts stamp.
func (t *Tracer) epoch(v *model.VIP) uint32 {
	if v.Epochs&1 != 0 {
		return 0
	}
	return 1
}

// slot finds a server by name, address or slot number.
func (t *Tracer) slot(tables *model.Tables, v *model.VIP, server string) (uint32, error) {
	for _, s := range t.names[v.ID].Slots {
		if s.Server == server && s.State != controller.Resting {
			return uint32(s.Number), nil
		}
	}
	if addr, err := netip.ParseAddr(server); err == nil {
		for s := range v.Slots {
			if l := tables.Lines[v.FirstLine+s]; l.Forwarding != "" && l.Addr == addr {
				return s, nil
			}
		}
	}
	if n, err := strconv.ParseUint(server, 10, 16); err == nil && int(n) < v.Layout.Slots() {
		return uint32(n), nil
	}
	return 0, fmt.Errorf("cookie-of=%s: VIP %v has no server of this name, address or slot%s", server, v.Addr, t.known(v))
}

// known lists a VIP's servers for an error.
func (t *Tracer) known(v *model.VIP) string {
	list := ""
	for _, s := range t.names[v.ID].Slots {
		list += fmt.Sprintf(" %s (slot %d)", s.Server, s.Number)
	}
	if list == "" {
		return " (names need the daemon's state folder: --state-dir)"
	}
	return "; it has" + list
}

// interfaceName is the interface's name, if it is this namespace's: the
// balancer may run in another, where the index means something else.
func interfaceName(index uint32, mac wire.MAC) string {
	if i, err := net.InterfaceByIndex(int(index)); err == nil && bytes.Equal(i.HardwareAddr, mac[:]) {
		return i.Name
	}
	return ""
}
