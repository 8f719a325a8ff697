package pcc

import (
	"time"

	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
)

// slots are the numbers by which cheetah's cookies name servers, by the
// controller's rule: a server that is added gets the lowest free one. That of
// one that was removed rests, and cookies go on to name the server by it. It is
// free once it has rested and none of its connections lives. A server that is
// added before then has it back.
//
// All balancers know a slot before any of them gives it connections (state
// joining), and so all see the same.
type slots struct {
	rest sim.Time
	// owners and the others by slot; Broken: it is free.
	owners []uint16
	// until when it rests; 0: its server works.
	until []sim.Time
	live  []int
	// of is each server's slot, noSlot: it has none.
	of []int
	// reused counts slots that another server had before.
	reused int
	had    []bool
}

const noSlot = -1

// handingOver is how long, beside the time for which cookies may be echoed, a
// slot rests: the controller's.
const handingOver = time.Minute

func newSlots(s Setup) slots {
	n := s.Working + s.Standby
	t := slots{
		rest:   sim.Time(cheetah.Layout{Bits: cheetah.MaxBits}.IdleLimit() + handingOver),
		owners: make([]uint16, n), until: make([]sim.Time, n), live: make([]int, n), of: make([]int, n), had: make([]bool, n),
	}
	for i := range n {
		t.owners[i], t.of[i] = Broken, noSlot
	}
	return t
}

// update gives slots to those that work now and has those of the others rest.
func (t *slots) update(p *Pool, now sim.Time) {
	for slot, server := range t.owners {
		if server == Broken {
			continue
		}
		works := p.State[server] == Working
		switch until := t.until[slot]; {
		case works:
			t.until[slot] = 0
		case until == 0:
			t.until[slot] = now + t.rest
		case until <= now && t.live[slot] == 0:
			t.owners[slot], t.of[server] = Broken, noSlot
		}
	}
	free := 0
	for _, server := range p.Working {
		if t.of[server] != noSlot {
			continue
		}
		for t.owners[free] != Broken { // there are as many slots as servers
			free++
		}
		if t.had[free] {
			t.reused++
		}
		t.owners[free], t.of[server], t.until[free], t.live[free], t.had[free] = server, free, 0, 0, true
	}
}

// open is a connection of a server that begins.
func (t *slots) open(server uint16) (slot int) {
	slot = t.of[server]
	t.live[slot]++
	return slot
}

// close is a connection that ends, whose cookie names a slot.
func (t *slots) close(slot uint32) {
	if int(slot) < len(t.live) && t.live[slot] > 0 {
		t.live[slot]--
	}
}

// owner of a slot; false: it is free, or there is no such slot.
func (t *slots) owner(slot uint32) (server uint16, ok bool) {
	if int(slot) >= len(t.owners) || t.owners[slot] == Broken {
		return 0, false
	}
	return t.owners[slot], true
}
