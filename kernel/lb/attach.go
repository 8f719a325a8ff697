package lb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/kernel"
)

// Names of the programs in bpf/lb.
const (
	progLB         = "lb"
	progLineWrite  = "line_write"
	progClock      = "clock"
	progHealth     = "health"
	progHealthBack = "health_back"
	progFlowWrite  = "flow_write"
	progFlowSweep  = "flow_sweep"
)

// Interface is where the balancer is attached.
type Interface struct {
	Name string
	Mode string // native, generic
}

// attachments are the links of one balancer, one of each kind an interface.
type attachments struct {
	pinDir string
	log    *slog.Logger
	links  map[string]link.Link // by pin name
	undo   []func()
}

// Kinds of links, the first part of their pins' names.
const (
	linkXDP     = "xdp"
	linkAnswers = "answers"
	linkChecks  = "checks"
)

// place is where a program belongs.
type place struct {
	kind, program string
	device        net.Interface
}

func (p place) pin() string { return linkPin(p.kind, p.device.Name) }

// placesOn are the places of the programs: on each interface that packets come in
// by, and on the loopback, by which health checks leave. Where else their answers
// come in, see tendChecks.
func placesOn(ifaces []net.Interface) (places []place) {
	for _, i := range ifaces {
		places = append(places, place{linkXDP, progLB, i}, answersOn(i))
	}
	return append(places, place{linkChecks, progHealth, net.Interface{Index: loopbackIndex, Name: "lo"}})
}

// Pins are the pins of a balancer's links on these interfaces, and the interface that
// each link is at.
func Pins(interfaces []string) map[string]string {
	var ifaces []net.Interface
	for _, name := range interfaces {
		ifaces = append(ifaces, net.Interface{Name: name})
	}
	pins := map[string]string{}
	for _, p := range placesOn(ifaces) {
		pins[p.pin()] = p.device.Name
	}
	return pins
}

func answersOn(i net.Interface) place { return place{linkAnswers, progHealthBack, i} }

// attachAll brings programs into force on the interfaces: a pinned link has
// its program replaced, which loses no packet; where there is none the
// program is attached. If anything fails, what was done is undone. Links of
// other interfaces stay; see dropOthers.
func attachAll(pinDir string, ifaces []net.Interface, programs, before map[string]*ebpf.Program, log *slog.Logger) (*attachments, error) {
	a := &attachments{pinDir: pinDir, log: log, links: map[string]link.Link{}}
	for _, p := range placesOn(ifaces) {
		if err := a.one(p, programs[p.program], before[p.program]); err != nil {
			for n := len(a.undo) - 1; n >= 0; n-- {
				a.undo[n]()
			}
			a.close()
			return nil, err
		}
	}
	return a, nil
}

func (a *attachments) path(p place) string { return filepath.Join(a.pinDir, dirLinks, p.pin()) }

func (a *attachments) one(p place, program, before *ebpf.Program) error {
	path := a.path(p)
	// A process that was killed between pinning and renaming leaves this.
	_ = os.Rename(path+kernel.PinNew, path)
	l, err := link.LoadPinnedLink(path, nil)
	switch {
	case err == nil && isAt(l, p):
		if err := l.Update(program); err != nil {
			l.Close()
			return fmt.Errorf("interface %s: replace the %s program: %w", p.device.Name, p.kind, err)
		}
		a.links[p.pin()] = l
		if before != nil {
			a.undo = append(a.undo, func() { _ = l.Update(before) })
		}
		return nil
	case err == nil:
		// The interface that this link was for is gone, another has its name.
		l.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("interface %s: open the pinned link: %w", p.device.Name, err)
	}
	if err := a.anew(p, program, kernel.Patience); err != nil {
		return err
	}
	l = a.links[p.pin()]
	a.undo = append(a.undo, func() { _ = l.Detach(); _ = os.Remove(path) })
	return nil
}

// anew attaches a program where it is not, and pins the link in the place of any
// other.
func (a *attachments) anew(p place, program *ebpf.Program, patience time.Duration) error {
	var l link.Link
	var err error
	switch p.kind {
	case linkXDP:
		l, err = kernel.AttachXDP(program, p.device.Index, p.device.Name, patience, a.log)
	case linkAnswers:
		l, err = attachTCX(program, p.device, ebpf.AttachTCXIngress)
	case linkChecks:
		if err = alone(p.device, patience); err == nil {
			l, err = attachTCX(program, p.device, ebpf.AttachTCXEgress)
		}
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.device.Name, err)
	}
	if err := kernel.Replace(l, a.path(p)); err != nil {
		l.Close()
		return err
	}
	a.links[p.pin()] = l
	return nil
}

func attachTCX(program *ebpf.Program, device net.Interface, to ebpf.AttachType) (link.Link, error) {
	l, err := link.AttachTCX(link.TCXOptions{Program: program, Interface: device.Index, Attach: to, Anchor: link.Head()})
	if err != nil {
		return nil, fmt.Errorf("attach to tc (%v): %w", to, err)
	}
	return l, nil
}

// alone says that no other balancer's checks leave by the loopback: two would take
// each other's, and the routes of each other's. Ours are not there.
func alone(lo net.Interface, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		other, err := checksAt(lo)
		switch {
		case err != nil:
			return err
		case other == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("another balancer's health checks leave there (program %d on tc egress), and a network namespace has room for one balancer: unload the other (fairlead unload NAME), or run this one in a network namespace of its own", other)
		}
	}
}

// checksAt is the id of the program on a device by which checks leave; 0: none.
func checksAt(device net.Interface) (ebpf.ProgramID, error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: device.Index, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return 0, fmt.Errorf("ask for the programs on tc egress: %w", err)
	}
	for _, at := range all.Programs {
		program, err := ebpf.NewProgramFromID(at.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went
		}
		if err != nil {
			return 0, err
		}
		info, err := program.Info()
		program.Close()
		if err != nil {
			return 0, err
		}
		if info.Name == progHealth {
			return at.ID, nil
		}
	}
	return 0, nil
}

// isAt says that a link is attached where it belongs.
func isAt(l link.Link, p place) bool {
	at, err := kernel.Where(l)
	return err == nil && at == uint64(p.device.Index)
}

// dropOthers detaches from interfaces where nothing is to be. The ways to servers
// are found anew.
func (a *attachments) dropOthers() error {
	return kernel.Each(filepath.Join(a.pinDir, dirLinks), func(name, path string) error {
		if a.links[name] != nil || strings.HasSuffix(name, kernel.PinNew) {
			return nil
		}
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		a.log.Info("detached from an interface that is no longer used", "link", name)
		_ = l.Detach() // fails when the interface is gone, which is as good
		return os.Remove(path)
	})
}

// drop detaches what is not to be at its place any more, as its device is gone.
func (a *attachments) drop(p place) {
	if l := a.links[p.pin()]; l != nil {
		l.Close()
		_ = os.Remove(a.path(p))
		delete(a.links, p.pin())
	}
}

// close lets go of the links; pinned ones stay attached.
func (a *attachments) close() {
	for _, l := range a.links {
		l.Close()
	}
}
