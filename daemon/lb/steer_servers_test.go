package lb

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/vip"
)

// allGood has every path of the servers judged good, and rows written.
func (s *steering) allGood(now time.Time, servers ...string) {
	for _, a := range servers {
		p := s.probers[netip.MustParseAddr(a)]
		for range p.States() {
			p.say(probe.Good, probe.Good)
		}
	}
	s.look(now)
}

// A server that has one path keeps it whoever comes and goes, also over a restart
// of the daemon.
func TestSteeringKeepsPaths(t *testing.T) {
	const a, b, by = "10.0.1.1", "10.0.1.2", vip.SteerServer
	s, now := newSteering(t), time.Unix(5000, 0)
	s.steers(by, b)
	s.allGood(now, b)
	s.want(b, by, 64, 0)
	s.steers(by, a, b) // a sorts before b
	s.allGood(now, a)
	s.want(b, by, 64, 0)
	s.want(a, by, 0, 64)

	next := newSteering(t)
	next.plane.rows = s.plane.rows
	next.steers(by, a, b)
	next.allGood(now, a, b)
	next.want(b, by, 64, 0)
	next.want(a, by, 0, 64)
	// What left makes room for who comes.
	next.steers(by, a)
	next.look(now)
	next.steers(by, a, b)
	next.allGood(now, b)
	next.want(a, by, 0, 64)
	next.want(b, by, 64, 0)
}

// A path that no probe can take is not waited for, and not used.
func TestSteeringUnprobable(t *testing.T) {
	const a, by = "10.0.1.1", vip.SteerConnection
	s := newSteering(t)
	s.steers(by, a)
	p := s.probers[netip.MustParseAddr(a)]
	p.say(probe.Unknown, probe.Good)
	p.mu.Lock()
	p.states[0].Reason = "cannot be probed: no port takes it"
	p.mu.Unlock()
	s.look(time.Unix(5000, 0))
	s.want(a, by, 0, 64)
	var r fairleadv1.GetStatusResponse
	s.describe(&controller.Assignment{}, &r)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "is not used: cannot be probed: no port takes it") {
		t.Errorf("%q", r.Warnings)
	}
}

// Probes that have ended are told of until they run again, and what was known
// holds meanwhile.
func TestSteeringEndedIsTold(t *testing.T) {
	const a, by = "10.0.1.1", vip.SteerConnection
	s, address, now := newSteering(t), netip.MustParseAddr("10.0.1.1"), time.Unix(5000, 0)
	s.steers(by, a)
	s.probers[address].say(probe.Lost, probe.Good)
	s.look(now)
	s.probers[address].ended <- errors.New("the network is gone")
	for end := time.Now().Add(10 * time.Second); !s.unprobed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("probes that ended are taken for running")
		}
	}
	var r fairleadv1.GetStatusResponse
	s.describe(&controller.Assignment{}, &r)
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "stay on the paths that were good: its paths are not probed: the network is gone") {
		t.Errorf("%q", r.Warnings)
	}
	s.look(now)
	s.reconcile(s.ctx, &s.running)
	s.look(now)
	s.want(a, by, 0, 64)
}

// A fabric's file that has changed is taken over under connections: what stands on
// a path stays there, and what was known of it holds.
func TestSteeringReads(t *testing.T) {
	const a, b, by = "10.0.1.1", "10.0.1.2", vip.SteerServer
	s, now := newSteering(t), time.Unix(5000, 0)
	s.steers(by, a, b)
	s.probers[netip.MustParseAddr(a)].say(probe.Good, probe.Lost)
	s.probers[netip.MustParseAddr(b)].say(probe.Good, probe.Good)
	s.look(now)
	if changed, err := s.read(leafSpine(2)); changed || err != nil {
		t.Errorf("the same file: %v, %v", changed, err)
	}
	before := s.probers[netip.MustParseAddr(a)]
	if changed, err := s.read(leafSpine(3)); !changed || err != nil {
		t.Fatalf("%v, %v", changed, err)
	}
	s.reconcile(s.ctx, &s.running)
	if s.probers[netip.MustParseAddr(a)] == before || len(s.probers[netip.MustParseAddr(a)].config.Targets[0].Paths) != 3 {
		t.Fatal("paths are probed as before")
	}
	s.look(now)
	s.want(b, by, 0, 64, 0) // what was chosen stays until all paths are judged
	s.probers[netip.MustParseAddr(a)].say(probe.Good, probe.Unknown, probe.Good)
	s.probers[netip.MustParseAddr(b)].say(probe.Good, probe.Good, probe.Good)
	s.look(now)
	s.want(a, by, 64, 0, 0)
	s.want(b, by, 0, 64, 0)
	if used := s.servers[netip.MustParseAddr(a)].used; used[1] {
		t.Error("what probes had found is forgotten")
	}

	// A file that is wrong changes nothing.
	for want, change := range map[string]func(f []string) []string{
		"no host called lb1": func(n []string) []string { n[2] = "lb9"; return n },
		"10.0.1.2":           func(n []string) []string { n[4] = ""; return n },
	} {
		f := leafSpine(2)
		names := make([]string, len(f.Nodes))
		for i := range f.Nodes {
			names[i] = f.Nodes[i].Name
		}
		for i, name := range change(names) {
			if f.Nodes[i].Name = name; name == "" {
				f.Nodes[i].Addresses = nil
			}
		}
		kept := s.fabric
		if changed, err := s.read(f); changed || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", changed, err, want)
		}
		if s.fabric != kept || s.unprobed() {
			t.Error("a file that is wrong was taken over")
		}
	}
}

// Moves are counted by the way in which a server is steered to.
func TestSteeringMovedByWay(t *testing.T) {
	const a = "10.0.1.1"
	s, now := newSteering(t), time.Unix(5000, 0)
	address := netip.MustParseAddr(a)
	slots := []controller.Slot{{Server: a, Address: address}}
	both := &controller.Assignment{VIPs: []controller.VIP{{Settings: vip.Settings{Name: "one", Steer: vip.SteerServer}, Slots: slots}, {Settings: vip.Settings{Name: "all", Steer: vip.SteerConnection}, Slots: slots}}}
	s.follow(both)
	s.reconcile(s.ctx, &s.running)
	s.allGood(now, a)
	s.probers[address].say(probe.Good, probe.Lost)
	s.look(now)
	var r fairleadv1.GetStatusResponse
	s.describe(both, &r)
	for _, row := range r.Steered {
		if want := map[string]uint64{vip.SteerServer: 0, vip.SteerConnection: 32}[row.By]; row.Moved != want {
			t.Errorf("by %s: %d parts moved, want %d", row.By, row.Moved, want)
		}
	}
	if len(r.Steered) != 2 {
		t.Errorf("%v", r.Steered)
	}
}

// warns wants just these warnings of the server's status, each a part of one.
func (s *steering) warns(want ...string) {
	s.t.Helper()
	var r fairleadv1.GetStatusResponse
	s.describe(&controller.Assignment{}, &r)
	for i, w := range want {
		if len(r.Warnings) != len(want) || !strings.Contains(r.Warnings[i], w) {
			s.t.Errorf("warnings %q, want %q", r.Warnings, want)
			return
		}
	}
}

// A path that is held is better than one that is lost; and what is used is said.
func TestSteeringHeld(t *testing.T) {
	const a, by = "10.0.1.1", vip.SteerConnection
	s, now := newSteering(t), time.Now() // describe looks at the clock
	s.steers(by, a)
	p := s.probers[netip.MustParseAddr(a)]
	for _, step := range []struct {
		says []probe.Verdict
		want []int
	}{
		{[]probe.Verdict{probe.Good, probe.Good}, []int{32, 32}},
		{[]probe.Verdict{probe.Slow, probe.Good}, []int{0, 64}},
		{[]probe.Verdict{probe.Good, probe.Good}, []int{32, 32}},
		{[]probe.Verdict{probe.Slow, probe.Good}, []int{0, 64}},
		{[]probe.Verdict{probe.Good, probe.Good}, []int{0, 64}}, // the first is held
		{[]probe.Verdict{probe.Good, probe.Lost}, []int{64, 0}},
		{[]probe.Verdict{probe.Lost, probe.Lost}, []int{64, 0}},
		{[]probe.Verdict{probe.Lost, probe.Slow}, []int{0, 64}},
		{[]probe.Verdict{probe.Good, probe.Slow}, []int{64, 0}}, // held again
	} {
		p.say(step.says...)
		s.look(now)
		s.want(a, by, step.want...)
	}
	s.warns("is good again, as it was shortly before it turned bad; it is used, as no other one is better", "is slow: slow")
	p.mu.Lock()
	p.states[1].Silent = "nobody answers"
	p.mu.Unlock()
	s.look(now)
	s.warns("is answered over any path (nobody answers), so its tunnels stay on the paths that they had")
}
