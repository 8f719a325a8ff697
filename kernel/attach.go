package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Detaching takes the kernel up to about 300 ms after the fact: a program that
// was just detached is waited for with Patience. Who tries again by itself
// needs none.
const Patience = time.Second

// AttachXDP attaches to the device of that index in native mode, and in generic
// mode with a warning where the driver cannot. name is the device's, for errors
// and the log. A program that is there already has so long to go.
func AttachXDP(program *ebpf.Program, index int, name string, patience time.Duration, log *slog.Logger) (link.Link, error) {
	l, err := attachMode(index, program, link.XDPDriverMode, patience)
	if err == nil {
		return l, nil
	}
	if Busy(err) {
		return nil, fmt.Errorf("attach XDP: %w; another XDP program is there: %s; detach it with `ip link set dev %s xdp off` or by its owner (`bpftool net show dev %s`)", err, XDPAt(index), name, name)
	}
	native := err
	if l, err = attachMode(index, program, link.XDPGenericMode, patience); err != nil {
		return nil, fmt.Errorf("attach XDP: native: %v; generic: %w", native, err)
	}
	log.Warn("XDP runs in generic mode, several times slower: the driver has no native XDP here", "interface", name, "native", native)
	return l, nil
}

// AttachTCX attaches to tc at a device, before all that is there or after it.
func AttachTCX(program *ebpf.Program, index int, to ebpf.AttachType, anchor link.Anchor) (link.Link, error) {
	l, err := link.AttachTCX(link.TCXOptions{Program: program, Interface: index, Attach: to, Anchor: anchor})
	if err != nil {
		return nil, fmt.Errorf("attach to tc (%v): %w", to, err)
	}
	return l, nil
}

func attachMode(index int, program *ebpf.Program, mode link.XDPAttachFlags, patience time.Duration) (link.Link, error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: mode})
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return l, err
		}
	}
}

// Busy says that an error of attaching is that another program is there.
func Busy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }

// XDPAt says which XDP program is on a device of the calling thread's namespace,
// for people; empty: none, or it cannot be told.
func XDPAt(index int) string {
	dev, err := netlink.LinkByIndex(index)
	if err != nil || XDPMode(dev) == Off {
		return ""
	}
	id := dev.Attrs().Xdp.ProgId
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return fmt.Sprintf("program %d", id)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return fmt.Sprintf("program %d", id)
	}
	return fmt.Sprintf("program %d (%s)", id, info.Name)
}

// Off is the mode of XDP, or the way to tc, of a program that is not there.
const Off = "off"

// XDPMode is how XDP runs on a device: native, generic or Off.
func XDPMode(dev netlink.Link) string {
	x := dev.Attrs().Xdp
	if x == nil || !x.Attached {
		return Off
	}
	switch x.AttachMode {
	case nl.XDP_ATTACHED_DRV, nl.XDP_ATTACHED_HW:
		return "native"
	}
	return "generic"
}
