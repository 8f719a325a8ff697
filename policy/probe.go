package policy

import (
	"math"
	"slices"
)

// Probe chooses by probes: small questions to a few servers, whose answers,
// requests in flight and latency, are kept and used by later requests. It is
// Prequal's way (Wydrowski, Kleinberg, Rumble, Archer: Load is not what you
// should balance, NSDI'24, §4). The data plane does not have it; the
// simulator runs it.
//
// Taken from there: asynchronous probes of random servers at a rate a request;
// a bounded pool of answers; an answer's end by age, by use, or by removal, in
// turn of the oldest and of the worst; the rule hot/cold lexicographic; one
// more in flight for a server just chosen; latency estimated by the server
// among requests that met as many in flight as there are now (Latencies).
// Ours: one answer a server (the newer), a pool of at most half the servers but
// with room for two answers, without which there is nothing to choose from, and
// the window over which the quantile is taken.
const Probe = "probe"

// Prequal's parameters (§5: its baseline), and our window.
const (
	ProbeRate     = 3    // probes a request
	ProbePool     = 16   // answers kept
	ProbeMaxAge   = 1e9  // ns
	ProbeQuantile = 0.84 // of requests in flight; a server above it is hot
	probeFewest   = 2    // answers, with which there is a choice
	probeWindow   = 128  // answers over which the quantile is taken
	probeMost     = 1023 // in flight; more count as so many there
)

// Probes is a balancer's pool of answers.
type Probes struct {
	servers, size int
	uses          float64 // how often an answer is used, on average
	below         func(n int) int
	pool          []answer // oldest first
	recent        []int    // requests in flight of the last answers, a ring
	at            int
	counts        [probeMost + 1]int // of recent, by requests in flight
	oldest        bool               // what the next removal takes
}

type answer struct {
	server, inFlight int
	latency, at      int64
	uses             int
}

// NewProbes is an empty pool for a number of servers, by index from 0. below(n)
// is a random number from 0 to n-1.
func NewProbes(servers int, below func(n int) int) *Probes {
	size := max(probeFewest, min(ProbePool, servers/2))
	p := &Probes{servers: servers, size: size, below: below}
	// NSDI'24, equation 1, with δ = 1 and one removal a request: as often as
	// it takes for the pool not to run dry.
	p.uses = 1
	if gain := (1-float64(size)/float64(servers))*ProbeRate - 1; gain > 0 {
		p.uses = max(1, 2/gain)
	}
	return p
}

// Targets appends the servers to probe because of one more request: ProbeRate
// of them, no two alike.
func (p *Probes) Targets(to []int) []int {
	first := len(to)
	for len(to)-first < min(ProbeRate, p.servers) {
		if s := p.below(p.servers); !slices.Contains(to[first:], s) {
			to = append(to, s)
		}
	}
	return to
}

// Answer takes a server's answer in: how many requests it has in flight and
// what latency in ns it expects (0: it does not know yet). now is in ns. Where
// the pool is full, the oldest answer goes.
func (p *Probes) Answer(now int64, server, inFlight int, latency int64) {
	p.remember(min(inFlight, probeMost))
	p.pool = slices.DeleteFunc(p.pool, func(a answer) bool { return a.server == server })
	if len(p.pool) == p.size {
		p.pool = slices.Delete(p.pool, 0, 1)
	}
	p.pool = append(p.pool, answer{server, inFlight, latency, now, p.drawUses()})
}

// remember adds to the answers over which the quantile is taken.
func (p *Probes) remember(inFlight int) {
	p.counts[inFlight]++
	if len(p.recent) < probeWindow {
		p.recent = append(p.recent, inFlight)
		return
	}
	p.counts[p.recent[p.at]]--
	p.recent[p.at] = inFlight
	p.at = (p.at + 1) % probeWindow
}

// drawUses is p.uses, rounded up or down at random so that it is the mean.
func (p *Probes) drawUses() int {
	const parts = 1 << 16
	whole := math.Floor(p.uses)
	if float64(p.below(parts)) < (p.uses-whole)*parts {
		whole++
	}
	return int(whole)
}

// Choose is the server of a request, by the rule hot/cold lexicographic: of
// the answers that are not hot, the one with the least latency; if all are
// hot, the one with the fewest in flight. With fewer than two answers it is
// any server. now is in ns.
func (p *Probes) Choose(now int64) int {
	p.pool = slices.DeleteFunc(p.pool, func(a answer) bool { return now-a.at > ProbeMaxAge })
	if len(p.pool) < probeFewest {
		return p.below(p.servers)
	}
	hot := p.threshold()
	best := 0
	for i := range p.pool {
		if better(p.pool[i], p.pool[best], hot) {
			best = i
		}
	}
	chosen := &p.pool[best]
	server := chosen.server
	chosen.inFlight++
	if chosen.uses--; chosen.uses <= 0 {
		p.pool = slices.Delete(p.pool, best, best+1)
	}
	p.remove(hot)
	return server
}

// threshold: servers with more in flight are hot.
func (p *Probes) threshold() int {
	rest := int(ProbeQuantile * float64(len(p.recent)-1))
	at := 0
	for ; rest >= p.counts[at]; at++ {
		rest -= p.counts[at]
	}
	return at
}

// better tells whether a is to be chosen before b.
func better(a, b answer, hot int) bool {
	if coldA, coldB := a.inFlight <= hot, b.inFlight <= hot; coldA != coldB {
		return coldA
	} else if coldA {
		return a.latency < b.latency
	}
	return a.inFlight < b.inFlight
}

// remove takes one answer out of the pool: in turn the oldest, since it may no
// longer be true, and the worst, since a pool of leftovers would be all bad.
func (p *Probes) remove(hot int) {
	if len(p.pool) == 0 {
		return
	}
	out := 0
	if p.oldest = !p.oldest; !p.oldest {
		for i := range p.pool {
			if better(p.pool[out], p.pool[i], hot) {
				out = i
			}
		}
	}
	p.pool = slices.Delete(p.pool, out, out+1)
}
