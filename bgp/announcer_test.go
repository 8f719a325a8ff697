package bgp_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/bgp/bgptest"
)

// node is a daemon that a test changes.
type node struct {
	mu  sync.Mutex
	is  bgp.Node
	err error
}

func (n *node) look() (bgp.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.is, n.err
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func healthy(n int) []bgp.VIP {
	return []bgp.VIP{{Name: "web", Address: four, Servers: 2, Healthy: n}}
}

// A daemon's life: nothing is said, and no session opened, until it is ready; then
// what is healthy is announced, withdrawn, announced again; a look that fails changes
// nothing; before its end all is withdrawn, and stays so.
func TestAnnouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{is: bgp.Node{Name: "lb1", NotReady: []string{"it starts"}, VIPs: healthy(2)}}
		neighbour := bgp.Neighbour{Address: netip.MustParseAddr("10.0.0.254"), State: "established", Established: true}
		s := bgptest.New(neighbour)
		a := bgp.New(s, n.look, bgp.Options{Log: slog.New(slog.DiscardHandler), Restart: 30 * time.Second})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		told := func(when string, open bool, want ...string) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if is, sessions := s.Told(); !slices.Equal(is, want) || sessions != open {
				t.Errorf("%s: told %v, sessions open %t", when, is, sessions)
			}
		}
		why := func(when, want string) {
			t.Helper()
			r := a.Report()
			if len(r.Addresses) != 1 || r.Addresses[0].Announced != (want == "") || !strings.Contains(strings.Join(r.Addresses[0].Why, "; "), want) {
				t.Errorf("%s: %+v", when, r)
			}
		}
		told("starting", false)
		why("starting", "lb1 is not ready: it starts")
		if r := a.Report(); r.Neighbours[0].State != bgp.Waiting {
			t.Errorf("starting: %+v", r.Neighbours)
		}
		n.change(func() { n.is.NotReady = nil })
		a.Poke()
		told("ready", true, "192.0.2.1")
		why("ready", "")
		since := a.Report().Addresses[0].Since

		n.change(func() { n.is.VIPs = healthy(0) })
		time.Sleep(600 * time.Millisecond) // nobody tells
		told("unhealthy", true)
		why("unhealthy", "no healthy server in VIP web, of 2")
		if !a.Report().Addresses[0].Since.After(since) {
			t.Error("unhealthy since it was healthy")
		}
		n.change(func() { n.is.VIPs = healthy(1) })
		a.Poke()
		told("healthy again", true, "192.0.2.1")

		n.change(func() { n.err = errors.New("no memory") })
		a.Poke()
		told("a look fails", true, "192.0.2.1")
		if r := a.Report(); !strings.Contains(r.Failed, "no memory") {
			t.Errorf("a look fails: %+v", r)
		}
		n.change(func() { n.err = nil })
		neighbour.Established, neighbour.State, neighbour.Error = false, "active", "connect: refused"
		s.Change(neighbour)
		told("a neighbour is away", true, "192.0.2.1")
		why("a neighbour is away", "neighbour 10.0.0.254 is not established: active: connect: refused")

		a.Leave()
		a.Poke()
		told("leaving", true)
		why("leaving", "the daemon is stopping")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		told("the end", false)
		if s.Sets() != 5 {
			t.Errorf("%d changes", s.Sets())
		}
	})
}

// Sessions are opened when neighbours can have kept nothing, though the daemon is not
// ready; and what the speaker refuses is tried again.
func TestAnnouncerLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{is: bgp.Node{Name: "lb1", NotReady: []string{"it starts"}, VIPs: healthy(2)}}
		s := bgptest.New()
		s.Fail(errors.New("no such AS"))
		a := bgp.New(s, n.look, bgp.Options{Log: slog.New(slog.DiscardHandler), Restart: 10 * time.Second})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		time.Sleep(9 * time.Second)
		if _, open := s.Told(); open || !strings.Contains(a.Report().Failed, "no such AS") {
			t.Errorf("at first: open %t, %+v", open, a.Report())
		}
		s.Fail(nil)
		time.Sleep(2 * time.Second)
		if _, open := s.Told(); !open || a.Report().Failed != "" {
			t.Errorf("later: open %t, %+v", open, a.Report())
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
