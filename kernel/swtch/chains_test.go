package swtch

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tables/effective"
)

// Two switches that saw other things happen learn each other's chains, so
// that a packet finds the same servers asked wherever it comes.
func TestSwitchesLearnChains(t *testing.T) {
	a, b := newNetwork(t, 4), newNetwork(t, 4)
	first, c, d := ready(t, a, 32)
	c.add(time.Second)
	must(t, first.Health(all(4, map[int]Report{1: {Answered: true, State: Down}})))
	c.add(time.Second)
	must(t, first.Health(all(4, nil))) // back: its deputies are previous now

	// The second begins when all is over.
	second := b.open(Options{Ports: b.ports(), Now: c.Now})
	must(t, second.Apply(d))
	must(t, second.Health(all(4, nil)))
	if second.Status().Chained != 0 {
		t.Fatalf("%+v", second.Status())
	}
	for page, next := 0, 0; page == 0 || next != 0; page++ {
		var rows []effective.BucketRow
		rows, _, next = first.ChainRows(next, 3)
		must(t, second.LearnChains(rows))
	}
	asked := func(s *Switch, bucket int) []uint16 {
		row := s.rows.At(bucket)
		servers := append([]uint16{row.Current}, row.Previous[:]...)
		slices.Sort(servers)
		return servers
	}
	if second.Status().Chained != 8 {
		t.Errorf("%d chains were learned", second.Status().Chained)
	}
	for i := range 32 {
		if x, y := asked(first, i), asked(second, i); !slices.Equal(x, y) {
			t.Errorf("bucket %d: one asks %d, the other %d", i, x, y)
		}
	}
	// What was learned ends, too, and does not go round.
	c.add(d.ChainTime + time.Second)
	for _, s := range []*Switch{first, second} {
		must(t, s.Reconcile())
	}
	rows, _, _ := first.ChainRows(0, 100)
	must(t, second.LearnChains(rows))
	if x, y := first.Status().Chained, second.Status().Chained; x != 0 || y != 0 {
		t.Errorf("%d and %d chains are left after the chain time", x, y)
	}
}
