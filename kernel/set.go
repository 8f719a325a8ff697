package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Set is loaded maps and programs, by the names of their pins.
type Set struct {
	Maps     map[string]*ebpf.Map
	Programs map[string]*ebpf.Program
}

// PinName is the pin's name of a map, "" for maps that belong to one program
// alone (its constants). Globals in a section of their own are pinned by the
// section's last word.
func PinName(name string) string {
	if n, ok := strings.CutPrefix(name, ".data."); ok {
		return n
	}
	if strings.HasPrefix(name, ".") {
		return ""
	}
	return name
}

// NewSet takes a collection over. Maps that nobody pins are closed: their program
// holds them.
func NewSet(c *ebpf.Collection) *Set {
	s := &Set{map[string]*ebpf.Map{}, c.Programs}
	for name, m := range c.Maps {
		if n := PinName(name); n != "" {
			s.Maps[n] = m
		} else {
			m.Close()
		}
	}
	return s
}

// Load loads the programs of what, over the maps in replace, which stay the
// caller's, and maps of their own.
func Load(spec *ebpf.CollectionSpec, what string, replace map[string]*ebpf.Map, log *slog.Logger) (*Set, error) {
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err == nil {
		return NewSet(c), nil
	}
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		log.Debug("verifier", "log", fmt.Sprintf("%+v", verifier))
	}
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("load %s: %w; %s", what, err, needRights)
	}
	return nil, fmt.Errorf("load %s: %w; Linux %s or later with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF is needed: fairlead doctor says what is lacking", what, err, MinKernel)
}

// OpenSet opens what is pinned below dir. A folder that does not exist gives an
// empty set.
func OpenSet(dir string, opts *ebpf.LoadPinOptions) (*Set, error) {
	s := &Set{map[string]*ebpf.Map{}, map[string]*ebpf.Program{}}
	err := errors.Join(
		openAll(filepath.Join(dir, DirMaps), s.Maps, func(path string) (*ebpf.Map, error) { return ebpf.LoadPinnedMap(path, opts) }),
		openAll(filepath.Join(dir, DirPrograms), s.Programs, func(path string) (*ebpf.Program, error) { return ebpf.LoadPinnedProgram(path, opts) }))
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open what is pinned: %w", err)
	}
	return s, nil
}

func openAll[T any](dir string, into map[string]T, open func(path string) (T, error)) error {
	return Each(dir, func(name, path string) error {
		if strings.HasSuffix(name, PinNew) {
			return nil // nor was it in force when its process was killed
		}
		o, err := open(path)
		if err == nil {
			into[name] = o
		}
		return err
	})
}

// Close lets go of the set.
func (s *Set) Close() {
	if s == nil {
		return
	}
	for _, m := range s.Maps {
		m.Close()
	}
	for _, p := range s.Programs {
		p.Close()
	}
}

// Adoptable pairs the maps of a pinned set with a spec's: replace are those, by the
// spec's names, that can go on in use, misfits the names of those that are there in
// another form.
func (s *Set) Adoptable(spec *ebpf.CollectionSpec) (replace map[string]*ebpf.Map, misfits []string) {
	replace = map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		pinned := s.Maps[PinName(name)]
		if pinned == nil {
			continue
		}
		if strings.HasPrefix(name, ".data") {
			// The loader makes global data mappable, after this comparison.
			m = m.Copy()
			m.Flags |= unix.BPF_F_MMAPABLE
		}
		if m.Compatible(pinned) == nil {
			replace[name] = pinned
		} else {
			misfits = append(misfits, name)
		}
	}
	return replace, misfits
}

// Pin pins the set below dir, the map of name last at the end: where that stands,
// everything does. Pins that are not the set's go: of maps and programs that this
// build has no more, and what a killed process left half done.
func (s *Set) Pin(dir, last string) error {
	maps, programs := filepath.Join(dir, DirMaps), filepath.Join(dir, DirPrograms)
	for name, m := range s.Maps {
		if name == last {
			continue
		}
		if err := PinClone(m, filepath.Join(maps, name)); err != nil {
			return err
		}
	}
	for name, p := range s.Programs {
		if err := PinClone(p, filepath.Join(programs, name)); err != nil {
			return err
		}
	}
	if err := PinClone(s.Maps[last], filepath.Join(maps, last)); err != nil {
		return err
	}
	return errors.Join(dropOthers(maps, s.Maps), dropOthers(programs, s.Programs))
}

func dropOthers[T any](dir string, keep map[string]T) error {
	return Each(dir, func(name, path string) error {
		if _, ok := keep[name]; ok {
			return nil
		}
		return os.Remove(path)
	})
}

// Pinned says that all that Pin makes below dir is there.
func (s *Set) Pinned(dir string) bool {
	for name := range s.Maps {
		if Missing(filepath.Join(dir, DirMaps, name)) {
			return false
		}
	}
	for name := range s.Programs {
		if Missing(filepath.Join(dir, DirPrograms, name)) {
			return false
		}
	}
	return true
}

// SetConstants sets constants of a program that is not loaded yet.
func SetConstants(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		v, ok := spec.Variables[name]
		if !ok {
			return fmt.Errorf("the program has no constant %s", name)
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}

// ProgramID is the kernel's number of a program; 0: it cannot be told.
func ProgramID(p *ebpf.Program) ebpf.ProgramID {
	info, err := p.Info()
	if err != nil {
		return 0
	}
	id, _ := info.ID()
	return id
}

// Exchange swaps two folders of pins in one step. What stands at b takes a's place
// also if nothing is at a, as after somebody removed pins by hand.
func Exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		if _, statErr := os.Stat(a); errors.Is(statErr, fs.ErrNotExist) {
			err = os.Rename(b, a)
		}
	}
	if err != nil {
		return fmt.Errorf("exchange %s and %s: %w", a, b, err)
	}
	return nil
}
