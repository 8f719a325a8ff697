package pcc

import (
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Schedule is scenario scaling's: requests that come at a rate that rises and
// falls, and servers that are added and removed meanwhile. `fairlead lab run
// scaling` carries the same one out on real packets.
type Schedule struct {
	// Servers is how many there are, Active how many of them work at the
	// start.
	Servers, Active int
	// Rate is when requests come, up to Span; their ends come later.
	Rate workload.Sinusoid
	Span sim.Time
	// Time is what all times are multiplied by, lifetimes and the curve of Rate
	// too: 1, less in small runs. Lifetimes alone are multiplied by Lifetimes.
	Time, Lifetimes float64
	Steps           []ScheduleStep
}

// ScheduleStep adds the next standby server, or removes one that works: it
// drains.
type ScheduleStep struct {
	At  sim.Time
	Add bool
}

// CheetahSchedule is that of Cheetah's figure 9. The authors' run had about
// 105,200 requests: as many as a minute of a rate with a peak of 2,500 a
// second gives.
func CheetahSchedule() Schedule {
	s := Schedule{Servers: 32, Active: 24, Rate: workload.Sinusoid{Peak: 2500}, Span: 60 * sim.Second, Time: 1, Lifetimes: 1}
	at := 20 * sim.Second
	for _, step := range []struct {
		add  bool
		wait sim.Time // after it, tenths of a second
	}{
		{true, 20}, {true, 10}, {true, 1}, {true, 10}, {true, 0}, {true, 10}, {false, 0}, {true, 50}, {true, 30},
		{false, 0}, {false, 40}, {false, 10}, {false, 10}, {false, 0}, {false, 2}, {false, 2}, {false, 0},
	} {
		s.Steps = append(s.Steps, ScheduleStep{at, step.add})
		at += step.wait * sim.Second / 10
	}
	return s
}

// Small is the schedule with so many servers, of which active work at the
// start, in a share of its time. Left out are steps that would add a server
// that there is not, or leave less than active - 1.
func (s Schedule) Small(servers, active int, share float64) Schedule {
	scale := func(t sim.Time) sim.Time { return sim.Time(math.Round(float64(t) * share)) }
	s.Servers, s.Active, s.Span, s.Time = servers, active, scale(s.Span), s.Time*share
	steps, added, working := s.Steps, 0, active
	s.Steps = nil
	for _, step := range steps {
		if step.Add && active+added == servers || !step.Add && working < active {
			continue
		}
		if step.Add {
			added, working = added+1, working+1
		} else {
			working--
		}
		s.Steps = append(s.Steps, ScheduleStep{scale(step.At), step.Add})
	}
	return s
}

// Changes says which servers the steps concern: those added are the standby
// ones in their order, those removed any that work. Stream: "which server".
func (s Schedule) Changes(seed uint64) []Change {
	r := sim.Stream(seed, "which server")
	next := uint16(s.Active)
	p := NewPool(s.Active, s.Servers-s.Active)
	var changes []Change
	for _, step := range s.Steps {
		c := Change{At: step.At, Server: next, Add: step.Add}
		if step.Add {
			next++
		} else {
			c.Server = p.Working[r.IntN(len(p.Working))]
		}
		p.Apply(c)
		changes = append(changes, c)
	}
	return changes
}

// ChunkBytes is what a server sends at a time: the paper's answers have one
// chunk for each eighth of a kilobyte.
const ChunkBytes = 128

// Request is one request, and the connection of its own that it has.
type Request struct {
	At sim.Time
	// Lasts is how long its answer takes: its Chunks come at equal distances,
	// the last one at the end.
	Lasts  sim.Time
	Chunks int
}

// Requests are those of a schedule at a share of its rate, in the order of
// their start. Streams: "arrivals", "lifetimes", "sizes".
func (s Schedule) Requests(seed uint64, share float64) []Request {
	arrivals, lifetimes, sizes := sim.Stream(seed, "arrivals"), sim.Stream(seed, "lifetimes"), sim.Stream(seed, "sizes")
	rate := workload.Sinusoid{Peak: s.Rate.Peak * share * s.Time}
	scale := func(t sim.Time) sim.Time { return sim.Time(float64(t) * s.Time) }
	var requests []Request
	for at := rate.Next(arrivals, 0); scale(at) < s.Span; at = rate.Next(arrivals, at) {
		requests = append(requests, Request{At: scale(at), Lasts: scale(sim.Time(float64(workload.WebServer.Draw(lifetimes)) * s.Lifetimes)),
			Chunks: int(workload.WebServerSizes.Draw(sizes)) / ChunkBytes})
	}
	return requests
}

// End is when the last of requests is over.
func (s Schedule) End(requests []Request) sim.Time {
	end := s.Span
	for _, r := range requests {
		end = max(end, r.At+r.Lasts)
	}
	return end
}

// At is the schedule with steps at other times, in the order of its own: when
// a lab really made them.
func (s Schedule) At(times []time.Duration) Schedule {
	s.Steps = slices.Clone(s.Steps)
	for i, t := range times {
		s.Steps[i].At = sim.Time(t)
	}
	return s
}
