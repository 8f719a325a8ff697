package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// What a daemon holds open it can attach and pin again after somebody took it
// away. This is what its watch needs for that.

// Where is what a link is attached to: a device's index, or a cgroup's id. 0: it
// is at nothing any more, because somebody detached it (bpftool link detach) or
// its device is gone. Such a link stays so; another has to be made.
func Where(l link.Link) (uint64, error) {
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("what a link is at: %w", err)
	}
	switch {
	case info.XDP() != nil:
		return uint64(info.XDP().Ifindex), nil
	case info.TCX() != nil:
		return uint64(info.TCX().Ifindex), nil
	case info.Cgroup() != nil:
		return info.Cgroup().CgroupId, nil
	}
	return 0, nil
}

// Device is the interface of that name in the calling thread's namespace; nil: there
// is none. An error says nothing of the interface: it could not be looked up, as where
// no descriptor is left.
func Device(name string) (*net.Interface, error) {
	dev, err := net.InterfaceByName(name)
	var local unix.Errno
	if errors.As(err, &local) {
		return nil, fmt.Errorf("look interface %s up: %w", name, err)
	}
	return dev, nil // its other errors are that there is none
}

// Missing says that nothing is at path. What cannot be told is taken to be there.
func Missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Repin pins a link whose pin somebody removed: without it the attachment would go
// with this process. It says whether it did.
func Repin(l link.Link, path string) (bool, error) {
	if !Missing(path) {
		return false, nil
	}
	info, err := l.Info()
	if err != nil {
		return false, err
	}
	// Of its own: l takes itself for pinned.
	again, err := link.NewFromID(info.ID)
	if err != nil {
		return false, err
	}
	defer again.Close()
	return true, Replace(again, path)
}

// Keep pins a map or program again whose pin somebody removed.
func Keep[T interface {
	Pinner
	Close() error
}](object interface{ Clone() (T, error) }, path string, log *slog.Logger) error {
	if !Missing(path) {
		return nil
	}
	log.Warn("a pin was removed, and is made again", "pin", path)
	return PinClone(object, path)
}

// Hold locks dir again where that was removed and made anew since f was locked, so
// that there is still one process at a time.
func Hold(f *os.File, dir string) (*os.File, error) {
	was, err := f.Stat()
	if err != nil {
		return f, err
	}
	if is, err := os.Stat(dir); err == nil && os.SameFile(was, is) {
		return f, nil
	}
	if err := Ensure(dir); err != nil {
		return f, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f, err
	}
	again, err := Lock(dir)
	if err != nil {
		return f, err
	}
	f.Close()
	return again, nil
}

// XDPAt says which XDP program is on a device of the calling thread's namespace,
// for people; empty: none, or it cannot be told.
func XDPAt(index int) string {
	dev, err := netlink.LinkByIndex(index)
	if err != nil || dev.Attrs().Xdp == nil || !dev.Attrs().Xdp.Attached {
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

// InNamespace runs f on a thread in the network namespace ns: devices are attached
// to by their index there.
func InNamespace(ns netns.NsHandle, f func() error) error {
	runtime.LockOSThread()
	here, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("network namespace: %w", err)
	}
	defer here.Close()
	if here.Equal(ns) {
		defer runtime.UnlockOSThread()
		return f()
	}
	if err := netns.Set(ns); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("network namespace: %w", err)
	}
	failed := f()
	if netns.Set(here) == nil {
		runtime.UnlockOSThread() // else the thread goes with this goroutine
	}
	return failed
}

// Busy says that an error of attaching is that another program is there.
func Busy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }
