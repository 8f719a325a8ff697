package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Place is where a program belongs.
type Place struct {
	Pin     string // the name of its link's pin
	At      int    // the device's index; 0: anywhere, as at a cgroup
	Program *ebpf.Program
	Before  *ebpf.Program // what Undo puts back; nil: it stays
	// Attach attaches it. A program that is there already has so long to go.
	Attach func(patience time.Duration) (link.Link, error)
}

// undo is what Hold did: it updated a link that ran before, or made one.
type undo struct {
	Place
	link  link.Link
	fresh bool
}

// Hold has a program where it belongs, by a link that is held open and pinned. One
// that is pinned and there is switched over to it, which loses no packet. Where it is
// not there, or not any more, because somebody detached it or its device was deleted
// (perhaps made anew under the same name), it is attached, and the link before, if
// any, is held until then. A pin that somebody removed is made again: without it the
// attachment would go with this process.
func (f *Folder) Hold(p Place) error {
	path := f.linkPath(p.Pin)
	held := f.links[p.Pin]
	if held != nil {
		if is, err := isAt(held, p.At); err != nil {
			return err // which does not say that it is detached
		} else if is {
			return f.repin(held, path)
		}
	} else if done, err := f.adopt(p, path); done || err != nil {
		return err
	}
	patience := Patience
	if f.settled { // who tends the place tries again
		patience = 0
	}
	l, err := p.Attach(patience)
	if err != nil {
		return err
	}
	if err := Replace(l, path); err != nil {
		l.Close()
		return err
	}
	f.links[p.Pin] = l
	if held != nil {
		held.Close()
		f.log.Warn("a program was not attached any more, and is put back", "link", p.Pin)
	}
	if !f.settled {
		f.undo = append(f.undo, undo{p, l, true})
	}
	return nil
}

// adopt switches over the link that is pinned, if it is where it belongs.
func (f *Folder) adopt(p Place, path string) (bool, error) {
	// A process that was killed between pinning and renaming leaves this.
	_ = os.Rename(path+PinNew, path)
	l, err := link.LoadPinnedLink(path, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("open the pinned link: %w", err)
	}
	if is, _ := isAt(l, p.At); !is {
		l.Close()
		return false, nil
	}
	if err := l.Update(p.Program); err != nil {
		l.Close()
		return false, fmt.Errorf("replace the program: %w", err)
	}
	f.links[p.Pin] = l
	if !f.settled && p.Before != nil {
		f.undo = append(f.undo, undo{p, l, false})
	}
	return true, nil
}

// repin pins a link whose pin somebody removed.
func (f *Folder) repin(l link.Link, path string) error {
	if !Missing(path) {
		return nil
	}
	info, err := l.Info()
	if err != nil {
		return err
	}
	// Of its own: l takes itself for pinned.
	again, err := link.NewFromID(info.ID)
	if err != nil {
		return err
	}
	defer again.Close()
	f.log.Warn("the pin of a link was removed, and is made again", "pin", path)
	return Replace(again, path)
}

// Settle takes programs off where they are not to be any more, and ends what Undo
// takes back.
func (f *Folder) Settle(keep func(pin string) bool) error {
	f.forget()
	return Each(filepath.Join(f.Dir, DirLinks), func(pin, _ string) error {
		if keep(pin) {
			return nil
		}
		f.log.Info("detached from an interface that is no longer used", "link", pin)
		return f.Drop(pin)
	})
}

func (f *Folder) forget() { f.undo, f.settled = nil, true }

// Undo takes back what Hold did, unless it is settled.
func (f *Folder) Undo() {
	for n := len(f.undo) - 1; n >= 0; n-- {
		if u := f.undo[n]; u.fresh {
			_ = f.Drop(u.Pin)
		} else {
			_ = u.link.Update(u.Before)
			u.link.Close()
			delete(f.links, u.Pin)
		}
	}
	f.undo = nil
}

// Drop detaches at once what is pinned by that name, not when its last holder is
// gone. One whose device vanished is as good.
func (f *Folder) Drop(pin string) error {
	path := f.linkPath(pin)
	l := f.links[pin]
	delete(f.links, pin)
	if l == nil {
		var err error
		if l, err = link.LoadPinnedLink(path, nil); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
	}
	defer l.Close()
	err := l.Detach()
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOLINK) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Holds says that a link of that name is held, wherever it is.
func (f *Folder) Holds(pin string) bool { return f.links[pin] != nil }

// There says that a link of that name is at a device's index.
func (f *Folder) There(pin string, at int) bool {
	l := f.links[pin]
	if l == nil {
		return false
	}
	is, err := isAt(l, at)
	return err == nil && is
}

// Detached says that a link that is held is at nothing any more.
func (f *Folder) Detached() bool {
	for _, l := range f.links {
		if detached(l) {
			return true
		}
	}
	return false
}

func (f *Folder) linkPath(pin string) string { return filepath.Join(f.Dir, DirLinks, pin) }

func isAt(l link.Link, at int) (bool, error) {
	is, err := Where(l)
	return is != 0 && (at == 0 || is == uint64(at)), err
}

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
