package rollout

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/controller"
)

// TestBelieved: where all daemons' reports say that they go by the store's newest version,
// a drain asks none of them; a removal does, which must know of connections, and so does
// any change while one of them goes by something else.
func TestBelieved(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	c.Memo = &Memo{}
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	looked := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, d := range s.daemons {
			n += d.looked
		}
		return n
	}
	before := looked()
	for _, kind := range []controller.Kind{controller.Drain, controller.Undrain, controller.Drain} {
		ch, err := c.Do(t.Context(), Options{}, op(kind, "s1"))
		if err != nil || !ch.believed || looked() != before {
			t.Fatalf("%s: %v, asked %d times", kind, err, looked()-before)
		}
	}
	if ch, err := c.Do(t.Context(), Options{}, op(controller.Remove, "s1")); err != nil || ch.believed || looked() == before {
		t.Errorf("a removal: %v, asked %d times", err, looked()-before)
	}
	s.away("lb1", errors.New("cut off"))
	ch, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s2"))
	if err != nil || ch.believed || len(ch.Silent) != 1 {
		t.Errorf("a balancer is away: %v", err)
	}
	if s.bad() != nil {
		t.Error(s.bad())
	}
}

// TestBelievedAndGone: who dies while his lease lives on is not waited for any longer than
// that, and is named.
func TestBelievedAndGone(t *testing.T) {
	s := newFleet(t, three)
	c, _ := s.linked()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	s.get("s3").fail = func(uint64, bool) error { // under the fleet's lock
		s.links["s3"].Cut(true)
		return errors.New("killed")
	}
	ch, err := c.Do(context.Background(), Options{}, op(controller.Drain, "s1"))
	if err != nil || !ch.believed || len(ch.Silent) != 1 || ch.Silent[0].Name != "s3" || !strings.Contains(ch.Silent[0].Err.Error(), "its lease is over") {
		t.Errorf("%+v %v", ch, err)
	}
	if s.bad() != nil {
		t.Error(s.bad())
	}
}
