package embedded

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/store/storetest"
)

// TestKeepsRoom: a member that is full takes writes again by itself, as soon as its past is
// all that fills it, and says once that nothing helps where it is not.
func TestKeepsRoom(t *testing.T) {
	t.Parallel()
	o := alone(t)
	o.QuotaBytes = 2 << 20
	server := started(t, o)[0]
	s := opened(t, server.Endpoints()...)
	rooms := make(chan Room, 16)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		server.KeepRoom(ctx, func(r Room) { rooms <- r })
	}()
	defer func() { cancel(); <-kept }()
	fill := func(key func(int) string) {
		t.Helper()
		var err error
		// Of values far smaller than the tenth that a roomy store has free.
		for n := 0; err == nil && n < 1000; n++ {
			_, err = s.Commit(within(t), nil, store.Op{Key: key(n), Value: make([]byte, store.MaxValue/32)})
		}
		if !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
	}
	next := func() (r Room) {
		t.Helper()
		select {
		case r = <-rooms:
		case <-time.After(storetest.Patience):
			t.Fatal("nothing is done about it")
		}
		return r
	}
	fill(func(int) string { return "past" })
	made := func() (r Room) {
		t.Helper()
		if r = next(); !r.Made { // what was is held on to for a while
			r = next()
		}
		return r
	}
	if r := made(); !r.Made || r.After >= r.Before || len(server.Alarms()) > 0 {
		t.Fatalf("%+v, alarms %q", r, server.Alarms())
	}
	put(t, s, "b", "2")
	// A file has holes, too: until it is full without.
	r := Room{Made: true}
	for round := 0; r.Made && round < 10; round++ {
		fill(func(n int) string { return fmt.Sprint("wanted", round, "-", n) })
		r = next()
	}
	if r.Made || len(server.Alarms()) != 1 {
		t.Fatalf("%+v, alarms %q", r, server.Alarms())
	}
	if _, err := s.Commit(within(t), nil, store.Op{Key: "wanted", Delete: true, Prefix: true}); err != nil {
		t.Fatal(err)
	}
	if r := next(); !r.Made {
		t.Fatalf("%+v", r)
	}
	put(t, s, "c", "3")
}
