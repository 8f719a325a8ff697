package rollout

import (
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// TestSettledStaysOpen: looking what became of a lost answer does not say that all daemons
// go by the version before.
func TestSettledStaysOpen(t *testing.T) {
	f := newFleet(t, twoOfEach)
	c := f.coordinator()
	a, err := controller.First(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	head, err := c.Ledger.Append(t.Context(), ledger.Head{}, nil, a, ledger.Change{Who: "a test", Turn: Kinds})
	if err != nil || !head.Open {
		t.Fatal(head, err)
	}
	if now, err := c.settled(t.Context(), head); err != nil || !now.Open || now.Version != head.Version {
		t.Errorf("%+v, %v", now, err)
	}
	if now, err := c.Ledger.Head(t.Context()); err != nil || !now.Open {
		t.Errorf("in the store %+v, %v", now, err)
	}
	// What was on its way is refused.
	next := a.Clone()
	next.Version++
	if _, err := c.Ledger.Append(t.Context(), head, a, next, ledger.Change{Who: "a test", Turn: 1}); err == nil {
		t.Error("what comes late is agreed on")
	}
}
