package host

import (
	"errors"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host"
	"github.com/fairlead/fairlead/vip"
)

// TestEarlier: of what there was when a migration began, the agent counts what lives still,
// and names that alone from then on.
func TestEarlier(t *testing.T) {
	at := func(port uint16) host.Connection {
		return host.Connection{Client: netip.AddrPortFrom(netip.MustParseAddr("203.0.113.7"), port), Port: 443}
	}
	sockets := map[host.Connection]host.Opened{at(1): true, at(2): true}
	var failed error
	h := hads{list: func(s netip.AddrPort) (map[host.Connection]host.Opened, error) {
		if s != netip.MustParseAddrPort("192.0.2.1:443") {
			t.Errorf("%v is listed", s)
		}
		return maps.Clone(sockets), failed
	}}
	hashes := vip.Settings{Name: "web", Address: netip.MustParseAddr("192.0.2.1"), Port: 443, Protocol: vip.TCP, Scheme: vip.JET}
	cookies := hashes
	cookies.Scheme, cookies.CookieBits = vip.Cheetah, 12
	a := &controller.Assignment{VIPs: []controller.VIP{{ID: 3, Settings: cookies,
		Migration: &controller.Migration{From: hashes, Stage: controller.StageCollect, Version: 5},
		Slots:     []controller.Slot{{Server: "s", State: controller.Active}}}}}
	v := &a.VIPs[0]
	is := func(what string, want int, named int) {
		t.Helper()
		if err := h.follow(a, "s", func(uint32) bool { return false }); err != nil {
			t.Fatal(err)
		}
		got, err := h.earlier(v)
		if err != nil || (got == nil) != (want < 0) || got != nil && *got != uint64(want) {
			t.Errorf("%s: %v, %v; must be %d", what, got, err, want)
		}
		if all, err := h.now(v); err != nil || len(all) != named {
			t.Errorf("%s: names %v, %v", what, all, err)
		}
	}
	is("it begins", 2, 2)
	sockets[at(3)] = true
	is("one was opened", 2, 2)
	delete(sockets, at(2))
	is("one has ended", 1, 1)
	sockets[at(2)] = true
	is("its port is used again", 1, 1)
	v.Migration = &controller.Migration{From: hashes, Stage: controller.StageBoth, Version: 5}
	is("it goes on", 1, 1)
	h.of = nil
	is("the agent was restarted", 3, 3)
	v.Migration = nil
	is("it is over", -1, 3)
	// Away from cookies the list is of when nothing new is stamped.
	v.Settings = hashes
	v.Migration = &controller.Migration{From: cookies, Stage: controller.StageCollect, Version: 9}
	is("collect", -1, 3)
	v.Migration = &controller.Migration{From: cookies, Stage: controller.StageEnding, Version: 9}
	is("ending", 3, 3)
	if err := h.follow(a, "other", func(uint32) bool { return false }); err != nil || len(h.of) > 0 {
		t.Errorf("a server that is not in it lists: %v, %v", h.of, err)
	}
	failed = errors.New("no netlink")
	if err := h.follow(a, "s", func(uint32) bool { return false }); err == nil {
		t.Error("a list that fails goes unnoticed")
	}
}

// TestHadAtOnce: balancers ask while others do, and connections end meanwhile; who asks at
// once has one look at the sockets together.
func TestHadAtOnce(t *testing.T) {
	const clients, balancers = 1000, 16
	var looks atomic.Int32
	entered, goes := make(chan struct{}), make(chan struct{})
	h := hads{list: func(netip.AddrPort) (map[host.Connection]host.Opened, error) {
		n := looks.Add(1)
		if n == 2 { // the first that a balancer has
			close(entered)
			<-goes
		}
		all := map[host.Connection]host.Opened{}
		for port := uint16(n) * 10; port < clients; port++ {
			all[host.Connection{Client: netip.AddrPortFrom(netip.MustParseAddr("203.0.113.7"), port), Port: 443}] = true
		}
		return all, nil
	}}
	v := controller.VIP{ID: 3, Settings: vip.Settings{Address: netip.MustParseAddr("192.0.2.1"), Port: 443, Protocol: vip.TCP, Scheme: vip.Cheetah, CookieBits: 12},
		Migration: &controller.Migration{From: vip.Settings{Scheme: vip.JET}, Stage: controller.StageBoth, Version: 5}, Slots: []controller.Slot{{Server: "s", State: controller.Active}}}
	if err := h.follow(&controller.Assignment{VIPs: []controller.VIP{v}}, "s", func(uint32) bool { return false }); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 50 {
		for range balancers {
			all.Go(func() {
				had, err := h.now(&v)
				if err != nil {
					t.Error(err)
				}
				for c := range had { // as GetHad does
					_ = c
				}
			})
		}
		all.Go(func() {
			if _, err := h.earlier(&v); err != nil {
				t.Error(err)
			}
		})
		if n == 0 {
			<-entered
			close(goes)
		}
	}
	all.Wait()
	if n := looks.Load(); n < 2 || n > 50*balancers/2 {
		t.Errorf("%d looks for %d answers", n, 51*balancers)
	}
}
