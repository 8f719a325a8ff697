package pcc

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// Slots are used again and break nothing; without their rest, and without
// looking at who lives, they do.
func TestSlotsRest(t *testing.T) {
	b := small(Cheetah)
	b.Standby, b.Active, b.Seconds = 12, 1000, 1500
	for _, rests := range []bool{true, false} {
		k := newCookies(b.setup(3))
		var s Scheme = k
		if !rests {
			k.slots.rest = 0
			s = forgetful{k}
		}
		r := b.run(3, workload.Updates{PerMinute: 6})
		r.Contenders = []Contender{{Name: Cheetah, Scheme: s}}
		tally, err := r.Play(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if broken := tally.Schemes[0].Broken; (broken == 0) != rests || k.slots.reused == 0 {
			t.Errorf("rests: %t: %d broken, %d slots used again", rests, broken, k.slots.reused)
		}
	}
}

// forgetful takes every connection for ended when the pool changes.
type forgetful struct{ *cookies }

func (f forgetful) Update(p *Pool, now sim.Time) error {
	clear(f.slots.live)
	return f.cookies.Update(p, now)
}
