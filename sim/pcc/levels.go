package pcc

import (
	"slices"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// levelWatch is a scheme whose imbalance is sampled: max/mean - 1 of the servers'
// live connections, in percent.
type levelWatch struct {
	Scheme
	servers int
	sum     float64
	samples int
}

func (w *levelWatch) Close(c *Conns) {
	if s, ok := w.Scheme.(Closer); ok {
		s.Close(c)
	}
}

func (w *levelWatch) Tick(c *Conns) (bool, error) {
	if c.Len() == 0 {
		return false, nil
	}
	conns := make([]int, w.servers)
	for _, s := range c.First {
		conns[s]++
	}
	w.sum += 100 * (float64(slices.Max(conns)*w.servers)/float64(c.Len()) - 1)
	w.samples++
	return false, nil
}

// twoChoices is policy p2c in a pool that does not change; cookies find the
// servers again.
type twoChoices struct {
	cookies
	state policy.State
	table []uint32
	conns []int32
}

func newTwoChoices(s Setup) *twoChoices {
	return &twoChoices{cookies: *newCookies(s), state: policy.State{Seed: sim.Stream(s.Seed, "p2c").Uint64}, conns: make([]int32, s.Working+s.Standby)}
}

func (t *twoChoices) Update(p *Pool, now sim.Time) error {
	t.working = p.Working
	t.slots.update(p, now)
	var members []policy.Member
	for _, n := range p.Working {
		members = append(members, policy.Member{Slot: n, Weight: 1, Name: t.setup.serverName(int(n))})
	}
	t.table = policy.Table(policy.P2C, members)
	return nil
}

func (t *twoChoices) Forget(int) {}

func (t *twoChoices) Open(c *Conns) {
	for i, key := range c.Key {
		e, _ := policy.Choose(policy.P2C, t.table, &t.state, func(s uint16) int32 { return t.conns[s] })
		c.First[i] = policy.EntrySlot(e)
		t.conns[c.First[i]]++
		c.Note[i] = t.layout.Encode(t.hash(key), uint32(t.slots.open(c.First[i])), 0)
	}
}

func (t *twoChoices) Close(c *Conns) {
	t.cookies.Close(c)
	for _, s := range c.First {
		t.conns[s]--
	}
}
