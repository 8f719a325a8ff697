package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// What one balancer keeps in bpffs, so that packets go on without a process:
//
//	PinDir/maps/NAME        the maps in force
//	PinDir/programs/NAME    the programs in force
//	PinDir/links/xdp-IFACE  attachment of `lb`
//	PinDir/links/tcx-IFACE  attachment of `health`
//	PinDir/next/…           a set that is being brought in (see swap.go)
const (
	dirMaps     = "maps"
	dirPrograms = "programs"
	dirLinks    = "links"
	dirNext     = "next"
)

// Names in bpffs must not hold a dot. VLAN devices often do; a colon is what
// no interface's name may hold.
func linkPin(kind, iface string) string { return kind + "-" + strings.ReplaceAll(iface, ".", ":") }

// mapPin is the pin's name of a map, "" for maps that belong to one program
// alone (its constants). Globals in a section of their own are pinned by the
// section's last word.
func mapPin(name string) string {
	if n, ok := strings.CutPrefix(name, ".data."); ok {
		return n
	}
	if strings.HasPrefix(name, ".") {
		return ""
	}
	return name
}

// bpffsRoot is where bpffs is mounted by convention, and where we mount it
// when nobody has.
const bpffsRoot = "/sys/fs/bpf"

// DefaultPinDir is the folder of the daemon of the given name.
func DefaultPinDir(name string) string { return filepath.Join(bpffsRoot, "fairlead", name) }

const bpffsMagic = 0xcafe4a11

// ensureBPFFS makes sure that dir is on a bpffs, mounting one at /sys/fs/bpf
// if dir is below it and none is there.
func ensureBPFFS(dir string) error {
	if onBPFFS(dir) {
		return nil
	}
	if rel, err := filepath.Rel(bpffsRoot, dir); err == nil && filepath.IsLocal(rel) && !onBPFFS(bpffsRoot) {
		if err := unix.Mount("bpf", bpffsRoot, "bpf", 0, "mode=0700"); err != nil {
			return fmt.Errorf("no bpffs at %s, and mounting one failed: %w; run: mount -t bpf bpf %s", bpffsRoot, err, bpffsRoot)
		}
	}
	if !onBPFFS(dir) {
		return fmt.Errorf("pin folder %s is not on a bpffs; choose one below %s or mount one there", dir, bpffsRoot)
	}
	return nil
}

// onBPFFS says whether dir, or its nearest ancestor that exists, is on bpffs.
func onBPFFS(dir string) bool {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			return uint32(st.Type) == bpffsMagic
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return false
		}
		dir = parent
	}
}

// lockDir makes sure that one process at a time changes what is pinned. The
// lock goes with the process, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use by another fairlead process; stop that first", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// objects are one set of loaded maps and programs, by the name of their pins.
type objects struct {
	maps     map[string]*ebpf.Map
	programs map[string]*ebpf.Program
}

// newObjects takes a collection over. Maps that nobody pins are closed: their
// program holds them.
func newObjects(c *ebpf.Collection) *objects {
	o := &objects{map[string]*ebpf.Map{}, c.Programs}
	for name, m := range c.Maps {
		if n := mapPin(name); n != "" {
			o.maps[n] = m
		} else {
			m.Close()
		}
	}
	return o
}

func (o *objects) close() {
	if o == nil {
		return
	}
	for _, m := range o.maps {
		m.Close()
	}
	for _, p := range o.programs {
		p.Close()
	}
}

// loadPinned opens what is pinned under dir/maps and dir/programs. A folder
// that does not exist gives empty sets.
func loadPinned(dir string, opts *ebpf.LoadPinOptions) (*objects, error) {
	o := &objects{map[string]*ebpf.Map{}, map[string]*ebpf.Program{}}
	err := eachPin(filepath.Join(dir, dirMaps), func(name, path string) error {
		m, err := ebpf.LoadPinnedMap(path, opts)
		o.maps[name] = m
		return err
	})
	if err == nil {
		err = eachPin(filepath.Join(dir, dirPrograms), func(name, path string) error {
			p, err := ebpf.LoadPinnedProgram(path, opts)
			o.programs[name] = p
			return err
		})
	}
	if err != nil {
		for n, m := range o.maps {
			if m == nil {
				delete(o.maps, n)
			}
		}
		for n, p := range o.programs {
			if p == nil {
				delete(o.programs, n)
			}
		}
		o.close()
		return nil, fmt.Errorf("open what is pinned: %w", err)
	}
	return o, nil
}

// eachPin calls f for every entry of a folder; none when there is no folder.
func eachPin(dir string, f func(name, path string) error) error {
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

// pinNew ends the name of a pin that is being made (bpffs allows no dot).
const pinNew = "+new"

type pinner interface{ Pin(string) error }

// pinAs pins at path, replacing what is pinned there in one step: a reader
// finds the old or the new, never nothing.
func pinAs(p pinner, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary := path + pinNew
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.Pin(temporary); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return os.Rename(temporary, path)
}

// pin pins every map and program of the set below dir.
func (o *objects) pin(dir string) error {
	for name, m := range o.maps {
		// Clones are pinned, so that a later pin of the same map elsewhere
		// is a second pin and not a move of the first.
		c, err := m.Clone()
		if err != nil {
			return err
		}
		err = pinAs(c, filepath.Join(dir, dirMaps, name))
		c.Close()
		if err != nil {
			return err
		}
	}
	for name, p := range o.programs {
		c, err := p.Clone()
		if err != nil {
			return err
		}
		err = pinAs(c, filepath.Join(dir, dirPrograms, name))
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Unload detaches a balancer's programs and removes everything pinned under
// pinDir: packets go to the kernel untouched from then on. Nothing pinned is
// no error.
func Unload(pinDir string) error {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !onBPFFS(pinDir) {
		return fmt.Errorf("%s is not on a bpffs; name the folder that fairlead status calls pin_dir", pinDir)
	}
	lock, err := lockDir(pinDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	err = eachPin(filepath.Join(pinDir, dirLinks), func(_, path string) error {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		// Detaching at once, not when the last holder is gone; a link whose
		// interface vanished says so, and that is as good.
		if err := l.Detach(); err != nil && !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOLINK) {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		return fmt.Errorf("unload: %w", err)
	}
	return os.RemoveAll(pinDir)
}
