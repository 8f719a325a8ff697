package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
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

func attachMode(index int, program *ebpf.Program, mode link.XDPAttachFlags, patience time.Duration) (link.Link, error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: mode})
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return l, err
		}
	}
}

// Detach ends an attachment at once, not when its last holder is gone, and
// removes its pin at path. One whose device vanished is as good.
func Detach(l link.Link, path string) error {
	err := l.Detach()
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOLINK) {
		return err
	}
	return os.Remove(path)
}
