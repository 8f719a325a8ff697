package fct

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// requests are all of one run: when each begins, how much work it is, and from
// where it comes. Every policy of a run is given the same.
type requests struct {
	at   []sim.Time
	work []sim.Time
	// from is the client's address, by number, and its port.
	from []tuple
}

type tuple struct {
	client uint8
	port   uint16
}

// Ports of Linux clients (net.ipv4.ip_local_port_range).
const firstPort, ports = 32768, 28232

// drawRequests draws a run: Poisson arrivals with a rate a second, until end.
func drawRequests(seed uint64, rate float64, service workload.Service, clients int, end sim.Time) *requests {
	arrivals, work := sim.Stream(seed, "arrivals"), sim.Stream(seed, "service")
	tuples := sim.Stream(seed, "tuples")
	expect := int(rate*float64(end)/float64(sim.Second)*1.02) + 100
	q := &requests{make([]sim.Time, 0, expect), make([]sim.Time, 0, expect), make([]tuple, 0, expect)}
	mean := float64(sim.Second) / rate
	for at := workload.Exponential(arrivals, mean); at < end; at += workload.Exponential(arrivals, mean) {
		q.at = append(q.at, at)
		q.work = append(q.work, service.Draw(work))
		q.from = append(q.from, drawTuple(tuples, clients))
	}
	return q
}

func drawTuple(r *rand.Rand, clients int) tuple {
	return tuple{uint8(r.IntN(clients)), uint16(firstPort + r.IntN(ports))}
}
