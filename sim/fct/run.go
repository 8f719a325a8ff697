package fct

import (
	"context"
	"slices"

	"github.com/fairlead/fairlead/sim"
)

// setting is what a run has beside its requests.
type setting struct {
	servers int
	// cores that the servers run on; slowed as in newServers.
	cores  int
	slowed float64
	end    sim.Time
	// report is how often servers report their load, delay how long a report
	// takes.
	report, delay sim.Time
	// probeDelay is the time between a probe and its answer.
	probeDelay sim.Time
	// window over which the share of time busy is measured.
	window sim.Time
}

// outcome of a run.
type outcome struct {
	p99       sim.Time
	completed int
	// variance of the servers' shares of time busy, in %², over the servers,
	// averaged over the windows; load in %.
	variance, load float64
}

// run is one policy's.
type run struct {
	setting
	*servers
	q       *requests
	chooser chooser
	met     []int32    // by request: others at its server when it came
	times   []sim.Time // of those that ended
	meter   meter
	reports *reporter // nil: nobody listens
}

// play carries out a policy's run of the requests. What a policy draws comes
// from streams of the seed.
func play(ctx context.Context, name string, seed uint64, set setting, q *requests) (outcome, error) {
	r := &run{setting: set, servers: newServers(set.servers, set.cores, set.slowed, len(q.at)), q: q, meter: newMeter(set),
		met: make([]int32, len(q.at)), times: make([]sim.Time, 0, len(q.at))}
	c, err := newChooser(name, seed, r)
	if err != nil {
		return outcome{}, err
	}
	r.chooser = c
	if listens(name) {
		r.reports = newReporter(set.report, set.delay, set.servers)
	}
	arrived := 0
	for step := 0; ; step++ {
		if step%100_000 == 0 && ctx.Err() != nil {
			return outcome{}, ctx.Err()
		}
		arrival := never
		if arrived < len(q.at) {
			arrival = q.at[arrived]
		}
		done, i := r.first()
		report := r.reports.next()
		// At one time: what ends, then what is measured and reported, then what
		// begins.
		switch now := min(done, r.meter.next, report, arrival); {
		case now > set.end:
			return r.outcome(), nil
		case now == done:
			r.finished(now, i)
		case now == r.meter.next:
			r.meter.take(r.servers)
		case now == report:
			r.reports.take(r.servers, c)
		default:
			r.send(now, arrived)
			arrived++
		}
	}
}

// send has the policy choose a server for a request.
func (r *run) send(now sim.Time, request int) {
	i := r.chooser.choose(now, request)
	r.met[request] = r.each[i].open
	r.add(now, i, int32(request), r.q.work)
}

// finished: the request that server i works at.
func (r *run) finished(now sim.Time, i int) {
	request := r.finish(now, i, r.q.work)
	took := now - r.q.at[request]
	r.times = append(r.times, took)
	r.chooser.ended(now, i, int(r.met[request]), took)
}

// outcome has the time that 99 % of the requests which ended were done within:
// like a load generator, which does not know of others.
func (r *run) outcome() outcome {
	o := outcome{completed: len(r.times), variance: r.meter.variance(), load: r.meter.mean()}
	if len(r.times) > 0 {
		slices.Sort(r.times)
		o.p99 = r.times[(len(r.times)-1)*99/100]
	}
	return o
}
