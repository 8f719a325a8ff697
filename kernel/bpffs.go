// Package kernel keeps maps, programs and links in the BPF file system, so
// that they outlive the process that made them; loads, adopts, attaches, replaces
// and unloads them; and waits for packets that still read them. Shared by the balancer's, the host's and the router's kernel side.
package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where bpffs is mounted by convention, and where Ensure mounts it
// when nobody has.
const Root = "/sys/fs/bpf"

const magic = 0xcafe4a11

// Dir is the folder of the daemon of the given name.
func Dir(name string) string { return filepath.Join(Root, "fairlead", Name(name)) }

// Name is s as a pin's name: bpffs allows no dots, daemons and VLAN devices
// often have them, and a colon is what none of their names may hold.
func Name(s string) string { return strings.ReplaceAll(s, ".", ":") }

// Ensure makes sure that dir is on a bpffs, mounting one at Root if dir is
// below it and none is there.
func Ensure(dir string) error {
	if On(dir) {
		return nil
	}
	if rel, err := filepath.Rel(Root, dir); err == nil && filepath.IsLocal(rel) && !On(Root) {
		if err := unix.Mount("bpf", Root, "bpf", 0, "mode=0700"); err != nil {
			return fmt.Errorf("no bpffs at %s, and mounting one failed: %w; run: mount -t bpf bpf %s", Root, err, Root)
		}
	}
	if !On(dir) {
		return fmt.Errorf("pin folder %s is not on a bpffs; choose one below %s or mount one there", dir, Root)
	}
	return nil
}

// On says whether dir, or its nearest ancestor that exists, is on a bpffs.
func On(dir string) bool {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			return uint32(st.Type) == magic
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return false
		}
		dir = parent
	}
}

// lockTime is how long a process that was just killed may take to be gone: a
// thread of it ends once the BPF program that it runs has returned.
const lockTime = time.Second

// Lock makes sure that one process at a time changes what is pinned in dir.
// It waits a moment for one that is dying. The lock goes with the returned
// file or the process, however it ends.
func Lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockTime); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		case time.Now().After(deadline):
			f.Close()
			return nil, fmt.Errorf("%s is in use by another fairlead process; stop that first", dir)
		}
	}
}

// Each calls f for every entry of a folder; none when there is no folder.
func Each(dir string, f func(name, path string) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := f(e.Name(), filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
		}
	}
	return nil
}

// Pinner is a map, program or link.
type Pinner interface{ Pin(string) error }

// PinNew ends the name of a pin that is being made; a process that is killed
// while it replaces a pin leaves one.
const PinNew = "+new"

// Replace pins p at path. What was pinned there is replaced in one step: a
// reader finds the old or the new, never nothing.
func Replace(p Pinner, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary := path + PinNew
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.Pin(temporary); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return os.Rename(temporary, path)
}

// PinClone pins a clone, so that a later pin of the same object elsewhere is a
// second pin and not a move of the first.
func PinClone[T interface {
	Pinner
	Close() error
}](object interface{ Clone() (T, error) }, path string) error {
	c, err := object.Clone()
	if err != nil {
		return err
	}
	defer c.Close()
	return Replace(c, path)
}
