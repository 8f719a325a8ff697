// Package router is the kernel side of `fairlead router`: the XDP program that
// forwards what the kernel would forward, and picks among equal next hops by
// the packet's selector (fabric/pathsel).
//
//	netlink ──follow_*.go──▶ Tables ──Plane.Apply (maps_*.go)──▶ maps ◀── program
//
// The kernel's tables stay the truth: what the program does not forward by
// itself, from time exceeded to fragments, is left to the kernel, counted by
// reason. The program needs no process: everything is pinned (load_*.go), Open
// adopts what it finds, and packets go on while the daemon is dead.
package router

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/kernel"
)

// Options say what to load.
type Options struct {
	// Name of the router in its fabric: its hash and its folder of pins.
	Name   string
	PinDir string // default kernel.Dir(Name)
	// Selector is the fabric's.
	Selector *pathsel.Selector
	// Plain: go by the hash alone, whatever packets select.
	Plain bool
}

// Plane is a router's program with its maps.
type Plane struct {
	o      Options
	log    *slog.Logger
	folder *kernel.Folder

	mu     sync.Mutex
	set    *set          // nil: closed
	state  *state        // what set's maps hold
	held   map[int]bool  // devices, by index, that the program is held to; nil before the first Apply
	astray kernel.Astray // what Tend could not do
	// adopted: the maps, with what they hold, are those of a process before.
	adopted bool
}

var errClosed = errors.New("the router's plane is closed")

// Open loads this build's program over what is pinned, if that has its form,
// else over maps of its own. Packets go on as before, until the first Apply.
func Open(o Options, log *slog.Logger) (plane *Plane, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := kernel.CheckSystem(ebpf.XDP); err != nil {
		return nil, err
	}
	folder, err := kernel.Claim(o.PinDir, log)
	if err != nil {
		return nil, err
	}
	p := &Plane{o: o, log: log, folder: folder}
	defer func() {
		if err != nil {
			folder.Abandon()
			p.release()
		}
	}()
	if err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// complete fills in defaults and refuses what cannot be.
func (o *Options) complete() error {
	if o.Name == "" {
		return errors.New("the router has no name; give it one of fabric.yaml's routers with --name")
	}
	if o.Selector == nil {
		return errors.New("the router has no selector; name the fabric's file with -f")
	}
	if o.Plain {
		c := o.Selector.Config()
		c.Permutation = pathsel.None
		var err error
		if o.Selector, err = pathsel.New(c); err != nil {
			return err
		}
	}
	var err error
	o.PinDir, err = kernel.PinDir("router", o.Name, o.PinDir)
	return err
}

// load makes p.set and p.state.
func (p *Plane) load() error {
	spec, err := p.spec()
	if err != nil {
		return err
	}
	before, err := openInForce(p.o.PinDir)
	if err != nil {
		return err
	}
	defer before.close()
	replace := before.adoptable(spec)
	loaded, err := kernel.Load(spec, "the router's program", replace, p.log)
	if err != nil {
		return err
	}
	p.set = &set{Set: loaded}
	if err := p.set.writeLayout(); err != nil {
		return err
	}
	if p.state, err = readState(p.set); err != nil {
		return fmt.Errorf("read the tables in force: %w", err)
	}
	p.adopted = replace != nil
	switch {
	case p.adopted:
		p.log.Info("adopted what was pinned", "pin_dir", p.o.PinDir, "routes", len(p.state.routes))
	case before != nil:
		p.log.Info("what is pinned has another form: new maps are filled beside it and take over; counters begin at zero", "pin_dir", p.o.PinDir)
	}
	return nil
}

// Sizes of the maps: room for what goes and what comes with a change.
const (
	maxInputs = 2 * mostDevices
	maxRoutes = 2 * mostRoutes // of each family; memory is taken as they come
	maxGroups = 2 * mostGroups
	maxHops   = 2 * mostHops
)

// spec is this build's program and maps, sized and with its constants.
func (p *Plane) spec() (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadRouter()
	if err != nil {
		return nil, fmt.Errorf("read the router's program: %w", err)
	}
	addOwnMaps(spec)
	return spec, Configure(spec, p.o.Selector, p.o.Name)
}

// Configure sizes the maps of the program and sets its constants, for a router of
// that name.
func Configure(spec *ebpf.CollectionSpec, s *pathsel.Selector, name string) error {
	for name, size := range map[string]uint32{bpf.RouterMapInputs: maxInputs, bpf.RouterMapRoutes4: maxRoutes, bpf.RouterMapRoutes6: maxRoutes,
		bpf.RouterMapGroups: maxGroups, bpf.RouterMapHops: maxHops, bpf.RouterMapHopCounts: maxHops} {
		spec.Maps[name].MaxEntries = size
	}
	return kernel.SetConstants(spec, map[string]any{
		bpf.RouterVarSelector: s.Material(), bpf.RouterVarSeed: pathsel.NewRouter(s, name).Seed()})
}

// Fill has a program that is configured, and attached nowhere, go by tables: to
// measure it. Its maps are by their names in the program.
func Fill(maps map[string]*ebpf.Map, s *pathsel.Selector, t Tables) (err error) {
	p := &Plane{o: Options{Selector: s}, set: &set{Set: &kernel.Set{Maps: maps}}}
	if p.state, err = readState(p.set); err != nil {
		return err
	}
	defer p.set.unmap()
	return newChange(p, &t).run(func() error { return nil })
}

// Close lets go of everything; it stays pinned and attached.
func (p *Plane) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release()
	return nil
}

func (p *Plane) release() {
	p.set.close()
	p.set, p.held = nil, nil
	p.folder.Close()
}

// PinDir is the folder of bpffs that holds this router.
func (p *Plane) PinDir() string { return filepath.Clean(p.o.PinDir) }
