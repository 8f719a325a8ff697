package fct

import (
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/choose"
)

// awrr goes by a table that follows what servers reported.
type awrr struct {
	blind
	*choose.AWRR
	load []float64 // as reported last
}

func newAWRR(r *run, random *rand.Rand) *awrr {
	a := &awrr{load: make([]float64, len(r.each))}
	a.AWRR = choose.NewAWRR(len(r.each), r.report, random, func(server int) float64 { return a.load[server] })
	return a
}

func (a *awrr) reported(i int, load float64)   { a.load[i] = load }
func (a *awrr) choose(now sim.Time, _ int) int { return int(a.Choose(now)) }

// leastReported goes by reports alone.
type leastReported struct {
	blind
	*policy.Reports
	random *rand.Rand
}

func (l *leastReported) reported(i int, load float64) {
	l.Report(i, load, l.random.IntN)
}
func (l *leastReported) choose(sim.Time, int) int { return l.Choose() }

// listens tells whether a chooser goes by reports.
func listens(name string) bool { return name == policy.AWRR || name == policy.LeastReported }

// probing asks servers as Prequal does. Answers take their time, and
// hold what was true when the server was asked.
type probing struct {
	blind
	r         *run
	pool      *policy.Probes
	latencies []policy.Latencies
	due       []probe
	asked     []int
}

type probe struct {
	at               sim.Time
	server, inFlight int
	latency          int64
}

func (p *probing) ended(now sim.Time, i, met int, took sim.Time) {
	p.latencies[i].Finished(int64(now), met, int64(took))
}

func (p *probing) choose(now sim.Time, _ int) int {
	came := 0
	for ; came < len(p.due) && p.due[came].at <= now; came++ {
		d := p.due[came]
		p.pool.Answer(int64(d.at), d.server, d.inFlight, d.latency)
	}
	p.due = slices.Delete(p.due, 0, came)
	p.asked = p.pool.Targets(p.asked[:0])
	for _, i := range p.asked {
		open := int(p.r.each[i].open)
		p.due = append(p.due, probe{now + p.r.probeDelay, i, open, p.latencies[i].Estimate(int64(now), open)})
	}
	return p.pool.Choose(int64(now))
}
