package lb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
)

// State reads a loaded balancer through its pins and changes nothing; the
// daemon need not run.
type State struct {
	pinDir string
	o      *objects
}

// ErrNotLoaded says that no balancer is pinned where one was looked for.
var ErrNotLoaded = errors.New("no balancer is loaded")

// OpenReadOnly opens what is pinned under pinDir for reading.
func OpenReadOnly(pinDir string) (*State, error) {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w there; start one with fairlead lb", pinDir, ErrNotLoaded)
	}
	o, err := loadPinned(pinDir, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	s := &State{pinDir, o}
	layout, err := o.layout()
	switch {
	case err != nil || o.Programs[progLB] == nil:
		err = fmt.Errorf("%s: %w there; start one with fairlead lb", pinDir, ErrNotLoaded)
	case layout != bpf.Layout:
		err = fmt.Errorf("%s: a fairlead with layout %d loaded it, this one reads layout %d; use that build, or restart the daemon with this one", pinDir, layout, bpf.Layout)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close lets go of the pins.
func (s *State) Close() { s.o.close() }

// Program is a pinned program, nil if there is none of that name.
func (s *State) Program(name string) *ebpf.Program { return s.o.Programs[name] }

// Map is a pinned map, open for reading, nil if there is none of that name.
// It is the State's: do not close it.
func (s *State) Map(name string) *ebpf.Map { return s.o.Maps[name] }

// ClockBase is D of this boot (see LB.ClockBase).
func (s *State) ClockBase() (d uint32, ok bool) {
	m, err := s.o.meta()
	return m.ClockD, err == nil && m.ClockSet != 0
}
