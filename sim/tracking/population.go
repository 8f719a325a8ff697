package tracking

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// population is the connections of one seed, as they arrive and end: the same
// for all schemes, hashes and rates of failures, so that these are compared
// over the same events and the events are drawn and ordered once.
type population struct {
	seed      uint64
	gap       float64 // mean time between arrivals, in nanoseconds
	end       sim.Time
	lifetimes *workload.Distribution

	arrivals, lives *rand.Rand

	queue       sim.Queue[int32] // handles; arrival stands for the next one
	idle        []int32          // handles to use again
	handles     int32
	connections uint64
}

// arrival, in place of a handle, is the next connection's arrival.
const arrival = -1

// event is a connection's arrival or end. Its handle is its own until it ends.
type event struct {
	at     sim.Time
	key    uint64 // of an arrival
	handle int32
	ends   bool
}

// newPopulation has active connections live at a time in the mean, once that
// has settled (Little): nobody is there at first.
func newPopulation(active int, lifetimes *workload.Distribution, end sim.Time, seed uint64) *population {
	p := &population{
		seed: seed, gap: lifetimes.Mean() / float64(active), end: end, lifetimes: lifetimes,
		arrivals: sim.Stream(seed, "arrivals"), lives: sim.Stream(seed, "lifetimes"),
	}
	p.queue.Put(workload.Exponential(p.arrivals, p.gap), arrival)
	return p
}

// next fills batch with the events that follow, in their order. It is empty
// when there are none before the end.
func (p *population) next(batch []event) []event {
	batch = batch[:0]
	for len(batch) < cap(batch) {
		at, handle, ok := p.queue.Next()
		if !ok || at > p.end {
			p.queue = sim.Queue[int32]{} // what is later is of no use
			break
		}
		if handle == arrival {
			batch = append(batch, p.arrive(at))
			continue
		}
		p.idle = append(p.idle, handle)
		batch = append(batch, event{at: at, handle: handle, ends: true})
	}
	return batch
}

func (p *population) arrive(at sim.Time) event {
	p.queue.Put(at+workload.Exponential(p.arrivals, p.gap), arrival)
	// The key is the connection's number, so that no other draw moves it.
	key := sim.SplitMix(sim.SplitMix(p.seed+0x9e3779b97f4a7c15) + p.connections)
	p.connections++
	handle := p.handles
	if n := len(p.idle); n > 0 {
		handle, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		p.handles++
	}
	p.queue.Put(at+p.lifetimes.Draw(p.lives), handle)
	return event{at: at, key: key, handle: handle}
}
