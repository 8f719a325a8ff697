package lb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
)

// What one balancer keeps in bpffs, so that packets go on without a process:
//
//	PinDir/maps/NAME        the maps in force
//	PinDir/programs/NAME    the programs in force
//	PinDir/links/xdp-IFACE      attachment of `lb`
//	PinDir/links/checks-lo      attachment of `health`
//	PinDir/links/answers-IFACE  attachment of `health_back`
//	PinDir/next/…               a set that is being brought in (see swap.go)
const (
	dirMaps     = "maps"
	dirPrograms = "programs"
	dirLinks    = "links"
	dirNext     = "next"
)

// linkPin is the pin's name of a link.
func linkPin(kind, iface string) string { return kind + "-" + kernel.Name(iface) }

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

// DefaultPinDir is the folder of the daemon of the given name.
func DefaultPinDir(name string) string { return kernel.Dir(name) }

// objects are one set of loaded maps and programs, by the name of their pins.
type objects struct {
	maps     map[string]*ebpf.Map
	programs map[string]*ebpf.Program
	readOnly bool        // opened without the right to write
	entries  []uint64    // of `tables`, once mapEntries mapped it
	steers   []bpf.Steer // of `steers`, likewise
	mapped   [][]byte    // all of these mappings
}

// newObjects takes a collection over. Maps that nobody pins are closed: their
// program holds them.
func newObjects(c *ebpf.Collection) *objects {
	o := &objects{maps: map[string]*ebpf.Map{}, programs: c.Programs}
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
	o.unmap()
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
	o := &objects{maps: map[string]*ebpf.Map{}, programs: map[string]*ebpf.Program{}, readOnly: opts != nil && opts.ReadOnly}
	err := kernel.Each(filepath.Join(dir, dirMaps), func(name, path string) error {
		m, err := ebpf.LoadPinnedMap(path, opts)
		o.maps[name] = m
		return err
	})
	if err == nil {
		err = kernel.Each(filepath.Join(dir, dirPrograms), func(name, path string) error {
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

// pin pins every map and program of the set below dir, meta last: where that
// stands, everything does.
func (o *objects) pin(dir string) error {
	for name, m := range o.maps {
		if name == mapMeta {
			continue
		}
		if err := kernel.PinClone(m, filepath.Join(dir, dirMaps, name)); err != nil {
			return err
		}
	}
	for name, p := range o.programs {
		if err := kernel.PinClone(p, filepath.Join(dir, dirPrograms, name)); err != nil {
			return err
		}
	}
	return kernel.PinClone(o.maps[mapMeta], filepath.Join(dir, dirMaps, mapMeta))
}

// removePins removes what pin made below dir.
func removePins(dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, dirMaps)), os.RemoveAll(filepath.Join(dir, dirPrograms)))
}

// unpinOthers removes pins that are not the set's: maps and programs that
// this build has no more, and what a killed process left half done.
func (o *objects) unpinOthers(dir string) error {
	err := kernel.Each(filepath.Join(dir, dirMaps), func(name, path string) error {
		if o.maps[name] != nil {
			return nil
		}
		return os.Remove(path)
	})
	if err != nil {
		return err
	}
	return kernel.Each(filepath.Join(dir, dirPrograms), func(name, path string) error {
		if o.programs[name] != nil {
			return nil
		}
		return os.Remove(path)
	})
}

// Unload detaches a balancer's programs and removes everything pinned under
// pinDir: packets go to the kernel untouched from then on. The routes of health
// checks go, too, if it runs in the balancer's network namespace. Nothing pinned
// is no error.
func Unload(pinDir string) error {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !kernel.On(pinDir) {
		return fmt.Errorf("%s is not on a bpffs; name the folder that fairlead status calls pin_dir", pinDir)
	}
	lock, err := kernel.Lock(pinDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	err = kernel.Each(filepath.Join(pinDir, dirLinks), func(_, path string) error {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		return kernel.Detach(l, path)
	})
	if err != nil {
		return fmt.Errorf("unload: %w", err)
	}
	return errors.Join(unrouteChecks(), os.RemoveAll(pinDir))
}
