package swtch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/tables"
)

// ready is a switch with everything installed.
func ready(t *testing.T, n *network, buckets int) (*Switch, *clock, tables.SwitchPlan) {
	t.Helper()
	c := &clock{time.Unix(1_800_000_000, 0)}
	s := n.open(Options{Ports: n.ports(), Now: c.Now})
	d := desired(buckets, len(n.servers))
	must(t, s.Apply(d))
	must(t, s.Health(all(len(n.servers), nil)))
	return s, c, d
}

// Another tool's change is noticed, counted once for each object and put
// right, whatever it is.
func TestOthersChangesArePutRight(t *testing.T) {
	n := newNetwork(t, 3)
	s, _, _ := ready(t, n, 16)
	want := n.dumpAll()
	hop, hop6 := firstHop4+3, firstHop6+3
	for _, c := range []struct {
		kind, script string
		least        uint64
	}{
		{"neighbour", "ip neigh replace 169.254.192.5 lladdr 02:00:00:00:00:99 dev br0 nud permanent", 1},
		{"neighbour", "ip neigh del 169.254.192.5 dev br0", 1},
		{"neighbour", "ip -6 neigh del fe80::fa1d:0:0:7 dev br0", 1},
		{"neighbour", "ip neigh change 169.254.192.5 dev br0 nud stale lladdr 9a:00:40:00:00:00", 1},
		{"neighbour", "ip neigh add 169.254.200.0 lladdr 02:00:00:00:00:99 dev br0 nud permanent protocol 250", 1},
		{"bridge", "bridge fdb del 9a:00:40:00:00:00 dev port0 master", 1},
		{"bridge", "bridge fdb replace 9a:00:40:00:00:00 dev port2 master static", 1},
		{"bridge", "bridge fdb replace 9a:00:40:00:00:00 dev port2 master sticky static", 1},
		{"nexthop", fmt.Sprintf("ip nexthop replace id %d via 10.2.0.1 dev br0", hop), 1},
		{"nexthop", fmt.Sprintf("ip nexthop del id %d", hop), 1},
		{"nexthop", fmt.Sprintf("ip nexthop del id %d; ip nexthop add id %d blackhole", hop, hop), 1},
		{"nexthop", fmt.Sprintf("ip -6 nexthop del id %d", hop6), 1},
		{"group", fmt.Sprintf("ip nexthop replace id %d group %d/%d", groupID4, hop, hop+1), 1},
		{"group", fmt.Sprintf("ip nexthop del id %d", groupID4), 1},
		{"group", fmt.Sprintf("ip nexthop del id %d", groupID6), 1},
		{"route", "ip route replace 10.99.0.1/32 via 10.2.0.1 dev br0", 1},
		{"route", "ip route del 10.99.0.1/32", 1},
		{"route", "ip route replace blackhole 10.99.0.1/32", 1},
		{"route", "ip -6 route del 2001:db8:99::1", 1},
		{"announced", "ip route del 10.99.0.1/32 table 177", 1},
		{"announced", "ip -6 route flush table 177", 1},
		{"sysctl", "echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy", 1},
		{"sysctl", "echo 0 >/proc/sys/net/ipv6/fib_multipath_hash_policy", 1},
		{"sysctl", "echo 7 >/proc/sys/net/ipv4/fib_multipath_hash_fields; echo 99 >/proc/sys/net/ipv4/fib_multipath_hash_seed", 2},
		{"sysctl", "echo 1 >/proc/sys/net/ipv4/nexthop_compat_mode", 1},
	} {
		before := s.Status().Corrections[c.kind]
		n.run(n.sw, c.script)
		if err := s.Reconcile(); err != nil {
			t.Fatalf("%s: %v", c.script, err)
		}
		if got := s.Status().Corrections[c.kind] - before; got < c.least {
			t.Errorf("%s: %d corrections of kind %s, want %d", c.script, got, c.kind, c.least)
		}
		if is := n.dumpAll(); is != want {
			t.Fatalf("%s was not put right:\n%s", c.script, changes(want, is))
		}
		for _, setting := range Settings(12345) {
			text := n.run(n.sw, "cat /proc/sys/"+setting.path())
			if !setting.equal(text) {
				t.Errorf("%s: %s is %s", c.script, setting.Name, text)
			}
		}
		// Once put right it is right.
		total := fmt.Sprint(s.Status().Corrections)
		must(t, s.Reconcile())
		if again := fmt.Sprint(s.Status().Corrections); again != total {
			t.Errorf("%s: corrected again: %s, before %s", c.script, again, total)
		}
	}
}

// Nothing of anybody else's is touched, not even next to ours.
func TestOthersThingsStay(t *testing.T) {
	n := newNetwork(t, 2)
	// So that routes through others' groups are shown alike all the time.
	others := `echo 0 >/proc/sys/net/ipv4/nexthop_compat_mode
ip nexthop add id 17 via 10.2.0.1 dev br0; ip nexthop add id 18 group 17; ip nexthop add id 4294967000 via 10.2.0.2 dev br0
ip neigh add 169.254.9.9 lladdr 02:00:00:00:00:09 dev br0 nud permanent; ip neigh add 10.2.0.77 lladdr 9a:00:40:00:00:00 dev br0 nud permanent
bridge fdb add 9a:11:22:33:44:55 dev port0 master static; bridge fdb add 02:11:22:33:44:55 dev port0 master static
ip route add 10.98.0.1/32 nhid 18; ip route add 10.99.0.0/24 via 10.2.0.1; ip route add 10.99.0.1/32 via 10.2.0.1 metric 50; ip route add 10.99.0.2/32 via 10.2.0.1 table 177`
	n.run(n.sw, others)
	show := "ip nexthop; ip neigh show nud permanent; bridge fdb show br br0 | grep static; ip route; ip route show table 177"
	before := n.run(n.sw, show)
	s, c, d := ready(t, n, 16)
	c.add(time.Second)
	must(t, s.Apply(weigh(d, 0, 0, c.now)))
	must(t, s.Reconcile())
	text := n.run(n.sw, show)
	for l := range strings.Lines(before) {
		if !strings.Contains(text, l) {
			t.Errorf("while installed: gone or changed: %s", l)
		}
	}
	must(t, s.Remove())
	if after := n.run(n.sw, show); after != before {
		t.Errorf("changed:\n%s", changes(before, after))
	}
}

// Where somebody else has what would be ours, the switch does not begin.
func TestConflictsAreRefused(t *testing.T) {
	for what, script := range map[string]string{
		"nexthop id":    fmt.Sprintf("ip nexthop add id %d blackhole", groupID4),
		"neighbour":     "ip neigh add 169.254.192.3 lladdr 02:00:00:00:00:09 dev br0 nud permanent",
		"route to":      "ip route add 10.99.0.1/32 via 10.2.0.1",
		"in table 177":  "ip route add 10.99.0.1/32 via 10.2.0.1 table 177",
		"does not exis": "ip link del br0",
		"is down":       "ip link set br0 down",
	} {
		n := newNetwork(t, 1)
		n.run(n.sw, script)
		before := n.dumpAllOr()
		s, err := n.tryOpen(Options{})
		if err == nil {
			err = s.Apply(desired(16, 1))
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", script, err)
		}
		if after := n.dumpAllOr(); after != before {
			t.Errorf("%s: something was changed:\n%s", script, after)
		}
	}
}

// dumpAllOr is dumpAll where there may be no bridge.
func (n *network) dumpAllOr() string {
	return n.run(n.sw, "ip nexthop; ip neigh show nud permanent; bridge fdb show | grep static || true; ip route; ip route show table 177 2>/dev/null || true")
}

// Run notices at once, by what the kernel tells, and survives the bridge's
// going away and coming back.
func TestRunFollowsTheKernel(t *testing.T) {
	n := newNetwork(t, 2)
	s, _, _ := ready(t, n, 16)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	want := n.dumpAll()
	for range 3 {
		n.run(n.sw, "ip neigh del 169.254.192.5 dev br0; bridge fdb del 9a:00:40:00:00:00 dev port0 master")
		eventually(t, "put right", func() bool { return n.dumpAll() == want })
	}
	n.run(n.sw, "ip link set br0 down")
	eventually(t, "an error stands in the status", func() bool { return strings.Contains(s.Status().Error, "br0 is down") })
	if why := s.Ready(); len(why) == 0 {
		t.Error("ready without a bridge")
	}
	n.run(n.sw, "ip link set br0 up")
	eventually(t, "installed again", func() bool {
		return s.Status().Error == "" && lines(n.dumpAll(), "proto 250") == lines(want, "proto 250")
	})
	// A bridge of the same name is another device.
	n.run(n.sw, "ip link del br0; ip link add br0 type bridge; ip link set br0 up; ip link set port0 master br0; ip link set port1 master br0")
	eventually(t, "installed on the new bridge", func() bool {
		return s.Status().Error == "" && lines(n.dumpAll(), "proto 250") == lines(want, "proto 250")
	})
}

// Killed and started again: what is right stays, to the byte; chains are read
// back from MACs, and deputies of servers that are down stay deputies. What the bridge
// learned of a machine whose own address looks like a Faild MAC stays, too.
func TestRestartChangesNothing(t *testing.T) {
	n := newNetwork(t, 5)
	s, c, d := ready(t, n, 64)
	for i := range 2 {
		c.add(time.Second)
		d = weigh(d, i, 0, c.now)
		must(t, s.Apply(d))
	}
	reports := all(5, map[int]Report{2: {}})
	c.add(time.Second)
	must(t, s.Health(reports))
	must(t, s.Health(reports))
	if h := s.Status().Hosts; h[2].Nexthops != 0 || h[2].State != Down {
		t.Fatalf("%+v", h)
	}
	c.add(lingerTime)
	must(t, s.Reconcile())
	want := n.dumpAll()
	must(t, s.Close()) // nothing else happens to the kernel when a daemon dies
	n.run(n.sw, "bridge fdb replace 96:00:70:ab:13:2f dev port1 master dynamic")

	c.add(10 * time.Second)
	s = n.open(Options{Ports: n.ports(), Now: c.Now})
	must(t, s.Apply(d))
	if is := n.dumpAll(); is != want {
		t.Fatalf("Apply changed\n%s", changes(want, is))
	}
	if is := n.run(n.sw, "bridge fdb show br br0"); !strings.Contains(is, "96:00:70:ab:13:2f dev port1 master br0") {
		t.Errorf("Apply changed what the bridge learned of another machine:\n%s", is)
	}
	must(t, s.Reconcile())
	must(t, s.Health(reports))
	must(t, s.Health(reports))
	if is := n.dumpAll(); is != want {
		t.Fatalf("health changed\n%s", changes(want, is))
	}
	if st := s.Status(); st.Repointed != 0 || st.Generation != d.Table.Generation || fmt.Sprint(st.Corrections) != fmt.Sprint(map[string]uint64{"announced": 0, "bridge": 0, "group": 0, "neighbour": 0, "nexthop": 0, "route": 0, "sysctl": 0}) {
		t.Errorf("%+v", st)
	}
	// The chains of deputies, whose age nobody knows, last their whole time
	// from now on, and then end.
	c.add(d.ChainTime - time.Second)
	must(t, s.Reconcile())
	if s.Status().Chained == 0 {
		t.Error("chains ended early")
	}
	c.add(2 * time.Second)
	must(t, s.Health(reports))
	if st := s.Status(); st.Chained != 0 {
		t.Errorf("%d chains do not end", st.Chained)
	}
}

// refusing is a kernel that refuses some messages.
type refusing struct {
	kernel
	// refuse says which; n counts messages of changes from 0.
	refuse func(n int, m netlink.Message) bool
	n      int
}

var errRefused = &netlink.OpError{Op: "receive", Err: unix.ENOBUFS, Message: "refused by the test"}

func (r *refusing) execute(messages []netlink.Message) error {
	var first error
	for _, m := range messages {
		if r.refuse != nil && r.refuse(r.n, m) {
			if first == nil {
				first = errRefused
			}
		} else if err := r.kernel.execute([]netlink.Message{m}); err != nil && first == nil {
			first = err
		}
		r.n++
	}
	return first
}

// At any message of any change the kernel may refuse once, or from then on,
// or one message always: afterwards everything is as it shall be, or as it
// was and said so.
func TestRefusalsMidwayLeaveNothingHalf(t *testing.T) {
	random := soak.Rand(t)
	n := newNetwork(t, 4)
	c := &clock{time.Unix(1_800_000_000, 0)}
	var k *refusing
	var s *Switch
	must(t, n.sw.Do(func() error {
		own, err := openKernel()
		if err != nil {
			return err
		}
		k = &refusing{kernel: own}
		s, err = open(Options{Bridge: "br0", Ports: n.ports(), Now: c.Now}, k)
		return err
	}))
	defer s.Close()
	empty := n.dumpAll()
	d := desired(32, 4)
	// A first installation that fails leaves nothing behind.
	for at := range 40 {
		k.n, k.refuse = 0, func(i int, m netlink.Message) bool {
			return i >= at*5 && m.Header.Type != unix.RTM_DELNEXTHOP && m.Header.Type != unix.RTM_DELNEIGH && m.Header.Type != unix.RTM_DELROUTE
		}
		err := s.Apply(d)
		k.refuse = nil
		if err == nil {
			if at < 20 {
				t.Fatalf("no error though message %d on were refused", at*5)
			}
			break
		}
		if !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
		if is := n.dumpAll(); is != empty {
			t.Fatalf("refused from message %d on: %v; left is\n%s", at*5, err, is)
		}
	}
	must(t, s.Apply(d))
	must(t, s.Health(all(4, nil)))
	reference := n.open(Options{Ports: n.ports(), Now: c.Now}) // only looks
	_ = reference
	rolledBack, forward := 0, 0
	for round := range 60 {
		c.add(lingerTime + time.Second)
		must(t, s.Reconcile())
		before := n.dumpAll()
		next := weigh(d, random.IntN(4), random.IntN(2), c.now)
		once, victim := random.IntN(2) == 0, random.IntN(40)
		k.n, k.refuse = 0, func(i int, m netlink.Message) bool {
			if once {
				return i == victim
			}
			return i >= victim && i < victim+200 // through all attempts
		}
		err := s.Apply(next)
		k.refuse = nil
		is := n.dumpAll()
		switch {
		case err != nil && is != before:
			// What could not be brought back then is with the next look.
			must(t, s.Reconcile())
			if is = n.dumpAll(); is != before {
				t.Fatalf("round %d: %v; not as before:\n%s", round, err, changes(before, is))
			}
			rolledBack++
		case err != nil:
			rolledBack++
		default:
			d = next
			forward++
		}
		must(t, s.Reconcile())
		if again := n.dumpAll(); err == nil && again != is {
			t.Fatalf("round %d: Apply said it was done, and was not", round)
		}
		if st := s.Status(); st.Generation != d.Table.Generation || st.Error != "" {
			t.Fatalf("round %d: %+v, want generation %d", round, st, d.Table.Generation)
		}
	}
	st := s.Status()
	t.Logf("%d changes went through, %d were rolled back; %d retries, %d rollbacks", forward, rolledBack, st.Retries, st.Rollbacks)
	if forward == 0 || rolledBack == 0 || st.Retries == 0 || st.Rollbacks == 0 {
		t.Error("one of the ways was never taken")
	}
	for kind, count := range st.Corrections {
		if count != 0 {
			t.Errorf("own failures count as %d corrections of %s", count, kind)
		}
	}
}
