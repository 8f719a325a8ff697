package bpffs

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

// AttachXDP attaches to the device of that index in native mode, and in generic
// mode with a warning where the driver cannot. name is the device's, for errors
// and the log.
func AttachXDP(program *ebpf.Program, index int, name string, log *slog.Logger) (link.Link, error) {
	l, err := attachMode(index, program, link.XDPDriverMode)
	if err == nil {
		return l, nil
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("attach XDP: %w; another XDP program is there: see `ip link show dev %s`, detach it with `ip link set dev %s xdp off` or by its owner", err, name, name)
	}
	native := err
	if l, err = attachMode(index, program, link.XDPGenericMode); err != nil {
		return nil, fmt.Errorf("attach XDP: native: %v; generic: %w", native, err)
	}
	log.Warn("XDP runs in generic mode, several times slower: the driver has no native XDP here", "interface", name, "native", native)
	return l, nil
}

// attachMode waits for a program that was just detached to be gone: the
// kernel finishes detaching after the fact, within about 300 ms.
func attachMode(index int, program *ebpf.Program, mode link.XDPAttachFlags) (link.Link, error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
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
