package workload

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
)

// Connection is one of a load.
type Connection struct {
	// Start is when its first packet comes. It is negative where the
	// connection lives at time 0 already.
	Start sim.Time
	// Lifetime is how long it lives from its start: 0 at least, and more than
	// -Start.
	Lifetime sim.Time
	// Key is the balancer's hash of its addresses and ports: well mixed.
	Key uint64
}

// End is when it is over.
func (c Connection) End() sim.Time { return c.Start + c.Lifetime }

// Arrivals yields connections: first those that live at time 0 in any order,
// then the others in the order of their start.
type Arrivals interface {
	// Next is the next one; false: there is none, and never will be.
	Next() (c Connection, ok bool)
}

// Poisson is connections that arrive independently, in the steady state from
// time 0 on. It never ends.
type Poisson struct {
	seed            uint64
	n               uint64
	lifetimes       *Distribution
	gap             float64
	alive           int
	at              sim.Time
	arrivals, lives *rand.Rand
}

// NewPoisson has active connections live at a time in the mean (a Poisson
// number of them), by Little's law. Streams: "arrivals" and "lifetimes" of the
// seed; keys follow the connections' numbers.
func NewPoisson(seed uint64, active float64, lifetimes *Distribution) *Poisson {
	p := &Poisson{
		seed: sim.SplitMix(seed + 0x9e3779b97f4a7c15), lifetimes: lifetimes, gap: lifetimes.Mean() / active,
		arrivals: sim.Stream(seed, "arrivals"), lives: sim.Stream(seed, "lifetimes"),
	}
	p.alive = PoissonNumber(p.arrivals, active)
	return p
}

// FromEmpty has nobody live at time 0, and returns p. Those who arrive later
// stay the same.
func (p *Poisson) FromEmpty() *Poisson {
	for ; p.alive > 0; p.alive-- {
		p.lifetimes.Stationary(p.lives)
		p.n++
	}
	return p
}

// Next is the next connection.
func (p *Poisson) Next() (Connection, bool) {
	c := Connection{Key: sim.SplitMix(p.seed + p.n)}
	p.n++
	if p.alive > 0 {
		p.alive--
		age, residual := p.lifetimes.Stationary(p.lives)
		c.Start, c.Lifetime = -age, age+residual
		return c, true
	}
	p.at += Exponential(p.arrivals, p.gap)
	c.Start, c.Lifetime = p.at, p.lifetimes.Draw(p.lives)
	return c, true
}
