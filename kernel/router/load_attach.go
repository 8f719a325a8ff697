package router

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	xlink "github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/kernel"
)

// linkPin is the pin's name of the attachment to a device.
func linkPin(index int) string { return "xdp-" + strconv.Itoa(index) }

// AttachError is Apply's where everything is in force but that the program is
// not on some devices: packets that come in there are the kernel's. The next
// Apply tries again.
type AttachError struct {
	Devices []string // in alphabetical order
	Err     error    // of the first of them, which it names
}

func (e *AttachError) Error() string {
	if len(e.Devices) == 1 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v; not on %s either", e.Err, strings.Join(e.Devices[1:], ", "))
}

func (e *AttachError) Unwrap() error { return e.Err }

// attach brings the program into force on these devices (by index; names are
// for errors). A link that is there has its program replaced, which loses no
// packet. Where one device fails, the others are attached all the same: the
// error is an *AttachError.
func (p *Plane) attach(devices map[int]string) error {
	if p.held == nil {
		p.held = map[int]bool{}
	}
	failed := map[string]error{}
	for index, name := range devices {
		err := p.hold(index, name)
		if p.folder.Holds(linkPin(index)) {
			p.held[index] = true
		} else if away := p.folder.Drop(linkPin(index)); away != nil {
			// A program that cannot be replaced is taken away: nothing of what it goes
			// by is kept up any more.
			err = fmt.Errorf("take the program of another build away: %w", away)
		}
		if err != nil {
			failed[name] = err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(failed))
	return &AttachError{names, fmt.Errorf("interface %s: %w", names[0], failed[names[0]])}
}

func (p *Plane) hold(index int, name string) error {
	program := p.set.program()
	return p.folder.Hold(kernel.Place{Pin: linkPin(index), At: index, Program: program,
		Attach: func(patience time.Duration) (xlink.Link, error) {
			return kernel.AttachXDP(program, index, name, patience, p.log)
		}})
}

// detachOthers takes the program away from devices that are not among these.
func (p *Plane) detachOthers(devices map[int]string) error {
	keep := map[string]bool{}
	for index := range devices {
		keep[linkPin(index)] = true
	}
	maps.DeleteFunc(p.held, func(index int, _ bool) bool { return !keep[linkPin(index)] })
	return p.folder.Settle(func(pin string) bool { return keep[pin] })
}
