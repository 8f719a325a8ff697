package router

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
)

// What one router keeps in bpffs:
//
//	PinDir/a, PinDir/b      a set: maps/NAME and programs/router
//	PinDir/links/xdp-INDEX  attachment to the device of that index
//
// One of a and b is in force: that whose program the links run. The other is
// there for a moment only, while a process takes over: it pins its own set in
// the free folder, switches the links, and removes the folder before. Killed
// anywhere in between, the links say what is in force. Both sets may have the
// same maps.
var setDirs = [2]string{"a", "b"}

// Maps that no program reads.
const (
	mapMeta = "meta" // u32 at 0: the layout (FL_ROUTER_LAYOUT)
	// mapCarried: what went out by hops that are no more, one fl_hop_count.
	mapCarried = "carried"
)

func addOwnMaps(spec *ebpf.CollectionSpec) {
	spec.Maps[mapMeta] = &ebpf.MapSpec{Name: "fl_meta", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	spec.Maps[mapCarried] = &ebpf.MapSpec{Name: "fl_carried", Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 1}
}

// set is a program with its maps.
type set struct {
	*kernel.Set
	dir   string     // where it is pinned; "": nowhere yet
	hops  []hopWords // the map's memory; nil in a set that is only looked at
	unmap func()
}

func (s *set) program() *ebpf.Program { return s.Programs[bpf.RouterProgRouter] }

func (s *set) close() {
	if s == nil {
		return
	}
	if s.unmap != nil {
		s.unmap()
	}
	s.Close()
}

// openInForce opens the set whose program the links run; nil: there is none.
func openInForce(pinDir string) (*set, error) {
	running, err := kernel.Running(pinDir)
	if err != nil || running == 0 {
		return nil, err
	}
	for _, d := range setDirs {
		dir := filepath.Join(pinDir, d)
		s, err := kernel.OpenSet(dir, nil)
		if err != nil {
			return nil, err
		}
		if p := s.Programs[bpf.RouterProgRouter]; p != nil && kernel.ProgramID(p) == running {
			return &set{Set: s, dir: dir}, nil
		}
		s.Close()
	}
	return nil, nil
}

// adoptable gives the maps of a set that this build's program can go on with:
// all, or nil.
func (s *set) adoptable(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	if s == nil {
		return nil
	}
	layout := uint32(0)
	if m := s.Maps[mapMeta]; m == nil || m.Lookup(uint32(0), &layout) != nil || layout != bpf.RouterLayout {
		return nil
	}
	replace, _ := s.Adoptable(spec)
	for name := range spec.Maps {
		if kernel.PinName(name) != "" && replace[name] == nil {
			return nil
		}
	}
	return replace
}

func (s *set) writeLayout() error {
	if err := s.Maps[mapMeta].Put(uint32(0), uint32(bpf.RouterLayout)); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	return nil
}

// pinBeside pins the set in the folder of pinDir that is not in force.
func (s *set) pinBeside(pinDir, inForce string) error {
	dir := filepath.Join(pinDir, setDirs[0])
	if dir == inForce {
		dir = filepath.Join(pinDir, setDirs[1])
	}
	if err := s.Pin(dir, mapMeta); err != nil {
		return err
	}
	s.dir = dir
	return nil
}

// dropOther removes the folder that is not the set's.
func (s *set) dropOther(pinDir string) error {
	for _, d := range setDirs {
		if dir := filepath.Join(pinDir, d); dir != s.dir {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// PinnedAt says whether what is pinned under a folder is a router's.
func PinnedAt(pinDir string) bool {
	for _, d := range setDirs {
		if _, err := os.Stat(filepath.Join(pinDir, d, kernel.DirPrograms, bpf.RouterProgRouter)); err == nil {
			return true
		}
	}
	return false
}

// Unload detaches a router's program and removes everything pinned under
// pinDir: the kernel forwards everything from then on. Nothing pinned is no
// error.
func Unload(pinDir string) error { return kernel.Unload(pinDir) }
