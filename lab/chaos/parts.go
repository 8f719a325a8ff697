package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab"
)

// cut is a way that is gone: from a machine to a port of another.
type cut struct {
	from, to string
	port     lab.Port
}

// Who may be parted from whom. Store members and controllers are the same processes: as
// store members they answer at their ports, as controllers they ask at others'.
const (
	stores      = "store members"
	controllers = "controllers"
	lbs         = "balancers"
	agents      = "agents"
)

// parted draws a partition of two kinds, or of machines.
func (w *world) parted() fault {
	if w.random.IntN(5) == 0 {
		return w.halves()
	}
	kinds := []string{stores, controllers, lbs, agents}
	a, b := kinds[w.random.IntN(len(kinds))], kinds[w.random.IntN(len(kinds))]
	some, others := w.some(a), w.some(b)
	text := fmt.Sprintf("%s %s parted from %s %s", a, strings.Join(some, " "), b, strings.Join(others, " "))
	var cuts []cut
	for _, x := range some {
		for _, y := range others {
			if x != y { // what is on one machine cannot be parted
				cuts = append(cuts, between(a, b, x, y)...)
				cuts = append(cuts, between(b, a, y, x)...)
			}
		}
	}
	if len(cuts) == 0 {
		return w.parted()
	}
	return w.without("part", text, cuts)
}

// some are machines of a kind: all, or one.
func (w *world) some(kind string) (machines []string) {
	switch kind {
	case lbs, agents:
		for i, d := range w.lab.Daemons() {
			if (i < balancers) == (kind == lbs) {
				machines = append(machines, d.Machine)
			}
		}
	default:
		for _, k := range w.lab.ControllerProcesses() {
			machines = append(machines, k.Machine)
		}
	}
	if w.random.IntN(2) == 0 {
		return machines
	}
	n := w.random.IntN(len(machines))
	return machines[n : n+1]
}

// between are the ways by which a kind on one machine asks a kind on another.
func between(a, b, x, y string) []cut {
	switch {
	case a == stores && b != stores || a == controllers && b == controllers: // store members are asked, and do not ask
		return nil
	case b == controllers && a != stores: // by commands
		return []cut{{x, y, lab.ControlPort}}
	case a == stores:
		return []cut{{x, y, lab.PeerPort}}
	case b == stores:
		return []cut{{x, y, lab.StorePort}}
	}
	return []cut{{x, y, lab.APIPort}}
}

// halves are machines on one side and on the other, all their ways cut.
func (w *world) halves() fault {
	var sides [2][]string
	for _, d := range w.lab.Daemons() {
		side := w.random.IntN(2)
		sides[side] = append(sides[side], d.Machine)
	}
	var cuts []cut
	for _, x := range sides[0] {
		for _, y := range sides[1] {
			for _, port := range []lab.Port{lab.APIPort, lab.ControlPort, lab.StorePort, lab.PeerPort} {
				cuts = append(cuts, cut{x, y, port}, cut{y, x, port})
			}
		}
	}
	return w.without("part", strings.Join(sides[0], " ")+" parted from "+strings.Join(sides[1], " "), cuts)
}

// without takes ways away, each once however many faults want it.
func (w *world) without(kind, text string, cuts []cut) fault {
	change := func(by int) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range cuts {
			before := w.cuts[c] > 0
			w.cuts[c] += by
			if is := w.cuts[c] > 0; is != before {
				if err := w.lab.Cut(c.from, c.to, c.port, is); err != nil {
					return err
				}
			}
		}
		return nil
	}
	touches := slices.ContainsFunc(cuts, func(c cut) bool { return c.port == lab.StorePort || c.port == lab.PeerPort })
	return fault{kind: kind, text: text, touches: touches, begin: func(context.Context) (func() error, error) {
		return func() error { return change(-1) }, change(1)
	}}
}
