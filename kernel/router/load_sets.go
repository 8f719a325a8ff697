package router

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	xdp "github.com/cilium/ebpf/link"

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
const (
	dirMaps     = "maps"
	dirPrograms = "programs"
	dirLinks    = "links"
)

var setDirs = [2]string{"a", "b"}

// Maps that no program reads.
const (
	mapMeta = "meta" // u32 at 0: the layout (FL_ROUTER_LAYOUT)
	// mapCarried: what went out by hops that are no more, one fl_hop_count.
	mapCarried = "carried"
)

// layoutVersion is FL_ROUTER_LAYOUT; a test holds them together. Maps of other
// sizes or kinds are not taken over in any layout.
const layoutVersion = 1

func addOwnMaps(spec *ebpf.CollectionSpec) {
	spec.Maps[mapMeta] = &ebpf.MapSpec{Name: "fl_meta", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	spec.Maps[mapCarried] = &ebpf.MapSpec{Name: "fl_carried", Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 1}
}

// set is a program with its maps.
type set struct {
	dir     string // where it is pinned; "": nowhere yet
	maps    map[string]*ebpf.Map
	program *ebpf.Program
	hops    []hopWords // the map's memory; nil in a set that is only looked at
	unmap   func()
}

// newSet takes a collection over. The program's constants stay with it alone.
func newSet(c *ebpf.Collection) *set {
	s := &set{maps: map[string]*ebpf.Map{}, program: c.Programs[bpf.RouterProgRouter]}
	for name, m := range c.Maps {
		if name[0] == '.' {
			m.Close()
		} else {
			s.maps[name] = m
		}
	}
	return s
}

func (s *set) close() {
	if s == nil {
		return
	}
	if s.unmap != nil {
		s.unmap()
	}
	for _, m := range s.maps {
		m.Close()
	}
	s.program.Close()
}

// openSet opens what is pinned in a folder; nil if that is no whole set.
func openSet(dir string) (*set, error) {
	s := &set{dir: dir, maps: map[string]*ebpf.Map{}}
	err := kernel.Each(filepath.Join(dir, dirMaps), func(name, path string) error {
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err == nil {
			s.maps[name] = m
		}
		return err
	})
	if err == nil {
		s.program, err = ebpf.LoadPinnedProgram(filepath.Join(dir, dirPrograms, bpf.RouterProgRouter), nil)
	}
	if errors.Is(err, fs.ErrNotExist) {
		s.close()
		return nil, nil
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("open what is pinned: %w", err)
	}
	return s, nil
}

// openInForce opens the set whose program the links run; nil: there is none.
func openInForce(pinDir string) (*set, error) {
	running, err := runningProgram(pinDir)
	if err != nil || running == 0 {
		return nil, err
	}
	for _, d := range setDirs {
		s, err := openSet(filepath.Join(pinDir, d))
		if err != nil {
			return nil, err
		}
		if s != nil && programID(s.program) == running {
			return s, nil
		}
		s.close()
	}
	return nil, nil
}

// runningProgram is the id of the program that the links run; 0: none. A
// process that was killed while it switched them leaves two: either will do.
func runningProgram(pinDir string) (id ebpf.ProgramID, err error) {
	err = kernel.Each(filepath.Join(pinDir, dirLinks), func(_, path string) error {
		l, err := xdp.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		if info, err := l.Info(); err == nil && info.XDP() != nil && info.XDP().Ifindex != 0 {
			id = info.Program
		}
		return nil
	})
	return id, err
}

func programID(p *ebpf.Program) ebpf.ProgramID {
	info, err := p.Info()
	if err != nil {
		return 0
	}
	id, _ := info.ID()
	return id
}

// adoptable gives the maps of a set that this build's program can go on with:
// all, or nil.
func (s *set) adoptable(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	if s == nil {
		return nil
	}
	layout := uint32(0)
	if m := s.maps[mapMeta]; m == nil || m.Lookup(uint32(0), &layout) != nil || layout != layoutVersion {
		return nil
	}
	replace := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		if name[0] == '.' {
			continue
		}
		pinned := s.maps[name]
		if pinned == nil || m.Compatible(pinned) != nil {
			return nil
		}
		replace[name] = pinned
	}
	return replace
}

func (s *set) writeLayout() error {
	if err := s.maps[mapMeta].Put(uint32(0), uint32(layoutVersion)); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	return nil
}

// pin pins the set in the folder of pinDir that is not in force.
func (s *set) pin(pinDir string, inForce string) error {
	dir := filepath.Join(pinDir, setDirs[0])
	if dir == inForce {
		dir = filepath.Join(pinDir, setDirs[1])
	}
	if err := os.RemoveAll(dir); err != nil { // of a process that was killed
		return err
	}
	for name, m := range s.maps {
		if err := kernel.PinClone(m, filepath.Join(dir, dirMaps, name)); err != nil {
			return err
		}
	}
	if err := kernel.PinClone(s.program, filepath.Join(dir, dirPrograms, bpf.RouterProgRouter)); err != nil {
		return err
	}
	s.dir = dir
	return nil
}

// pinned: all that pin made is there.
func (s *set) pinned() bool {
	there := func(path ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{s.dir}, path...)...))
		return err == nil
	}
	for name := range s.maps {
		if !there(dirMaps, name) {
			return false
		}
	}
	return there(dirPrograms, bpf.RouterProgRouter)
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
		if _, err := os.Stat(filepath.Join(pinDir, d, dirPrograms, bpf.RouterProgRouter)); err == nil {
			return true
		}
	}
	return false
}

// Unload detaches a router's program and removes everything pinned under
// pinDir: the kernel forwards everything from then on. Nothing pinned is no
// error.
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
		l, err := xdp.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		return kernel.Detach(l, path)
	})
	if err != nil {
		return fmt.Errorf("unload: %w", err)
	}
	return os.RemoveAll(pinDir)
}
