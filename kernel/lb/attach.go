package lb

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
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

// holdAll has the programs at their places on the interfaces. before are those that
// a failure puts back.
func (l *LB) holdAll(before *objects) error {
	for _, p := range placesOn(l.ifaces) {
		if err := l.hold(p, before.Programs[p.program]); err != nil {
			return err
		}
	}
	return nil
}

func (l *LB) hold(p place, before *ebpf.Program) error {
	program := l.set.Programs[p.program]
	err := l.folder.Hold(kernel.Place{Pin: p.pin(), At: p.device.Index, Program: program, Before: before,
		Attach: func(patience time.Duration) (link.Link, error) {
			switch p.kind {
			case linkXDP:
				return kernel.AttachXDP(program, p.device.Index, p.device.Name, patience, l.log)
			case linkAnswers:
				return kernel.AttachTCX(program, p.device.Index, ebpf.AttachTCXIngress, link.Head())
			}
			if err := alone(p.device, patience); err != nil {
				return nil, err
			}
			return kernel.AttachTCX(program, p.device.Index, ebpf.AttachTCXEgress, link.Head())
		}})
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.device.Name, err)
	}
	return nil
}

// there says that a place has its program.
func (l *LB) there(p place) bool { return l.folder.There(p.pin(), p.device.Index) }

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
