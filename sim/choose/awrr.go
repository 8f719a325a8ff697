package choose

import (
	"math/rand/v2"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// AWRR walks a table that is made anew from the servers' loads once an
// interval, when the next connection comes (policy.AWRRTable).
type AWRR struct {
	random  *rand.Rand
	every   sim.Time
	load    func(server int) float64
	servers []policy.Reported
	walk    *Policy
	next    sim.Time // when the table is made anew
}

// NewAWRR is for servers 0 to n-1; load is what one reported last, in any
// measure.
func NewAWRR(n int, every sim.Time, random *rand.Rand, load func(server int) float64) *AWRR {
	a := &AWRR{random: random, every: every, load: load, servers: make([]policy.Reported, n)}
	for i := range a.servers {
		a.servers[i].Slot = uint16(i)
	}
	a.walk = NewPolicy(policy.AWRR, nil, policy.State{}, nil)
	return a
}

// Choose is the server of a connection that comes now.
func (a *AWRR) Choose(now sim.Time) uint16 {
	if now >= a.next {
		for i := range a.servers {
			a.servers[i].Load = a.load(i)
		}
		a.walk.table = policy.AWRRTable(a.servers, policy.AWRRAlpha, a.random.IntN)
		a.next = now - now%a.every + a.every
	}
	return a.walk.Choose()
}
