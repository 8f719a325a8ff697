package swtch

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/vip"
)

// Draining a switch withdraws what is announced and forwards on.
func TestDrainASwitch(t *testing.T) {
	n := newNetwork(t, 2)
	s, _, _ := ready(t, n, 16)
	before := n.dumpAll()
	lines, err := s.Drain(true)
	must(t, err)
	if len(lines) != 1 || !strings.Contains(lines[0], "2 routes withdrawn") {
		t.Fatal(lines)
	}
	if got := changes(before, n.dumpAll()); got != "-10.99.0.1 dev br0 proto 250 scope link \n-2001:db8:99::1 dev br0 proto 250 metric 1 pref medium\n" {
		t.Fatalf("draining changed\n%s", got)
	}
	if why := s.Ready(); len(why) != 1 || !strings.Contains(why[0], "drained") {
		t.Fatal(why)
	}
	must(t, s.Reconcile())
	// It stays drained over a restart when it is told to.
	must(t, s.Close())
	again := n.open(Options{Ports: n.ports(), Drained: true})
	must(t, again.Apply(desired(16, 2)))
	must(t, again.Health(all(2, nil)))
	if got := n.run(n.sw, "ip route show table 177"); got != "" {
		t.Fatal(got)
	}
	if _, err = again.Drain(false); err != nil {
		t.Fatal(err)
	}
	if after := n.dumpAll(); after != before {
		t.Fatalf("undrained:\n%s", changes(before, after))
	}
	if why := again.Ready(); len(why) != 0 {
		t.Fatal(why)
	}
}

// Ports are found by the servers' addresses, follow a server that moves, and
// are remembered while it is silent.
func TestPortsAreFound(t *testing.T) {
	n := newNetwork(t, 3)
	c := &clock{time.Unix(1_800_000_000, 0)}
	s := n.open(Options{Now: c.Now, Ports: map[string]string{"server2": "port2"}})
	must(t, s.Apply(desired(12, 3)))
	must(t, s.Health(all(3, nil)))
	eventually(t, "the servers are asked and answer", func() bool {
		must(t, s.Reconcile())
		h := s.Status().Hosts
		return h[0].Port == "port0" && h[1].Port == "port1" && h[2].Port == "port2"
	})
	if why := s.Ready(); len(why) != 0 {
		t.Fatal(why)
	}
	// Forgotten by kernel and bridge: the last port known stays.
	n.run(n.sw, "ip neigh flush dev br0 nud reachable; ip neigh flush dev br0 nud stale; ip neigh flush dev br0 nud delay; ip link set port0 down; ip link set port0 up")
	must(t, s.Reconcile())
	if h := s.Status().Hosts[0]; h.Port != "port0" {
		t.Fatalf("%+v", h)
	}
	// The server moves to another port.
	n.pair(n.sw, "port9", n.servers[0], "eth1")
	n.run(n.sw, "ip link set port9 master br0 up")
	n.run(n.servers[0], "ip link set eth0 down; ip addr flush dev eth0; ip link set eth1 address 02:00:00:00:03:01 up; ip addr add 10.2.0.1/24 dev eth1")
	n.run(n.sw, "ip neigh del 10.2.0.1 dev br0 || true")
	eventually(t, "the new port is found", func() bool {
		c.add(askEvery)
		must(t, s.Reconcile())
		return s.Status().Hosts[0].Port == "port9"
	})
	if text := n.run(n.sw, "bridge fdb show br br0"); lines(text, "9a:00:40:00:00:00", "port9", "static") != 1 {
		t.Fatal(text)
	}
	// A port that is configured and not there is said.
	n.run(n.sw, "ip link del port2")
	must(t, s.Reconcile())
	if why := s.Ready(); len(why) != 1 || !strings.Contains(why[0], "server2") {
		t.Fatal(why)
	}
}

// The largest switch: 1,023 servers, 8,191 nexthops, both families; every
// bucket changes hands three times, and chains name four servers.
func TestLargest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	n := newNetwork(t, 1)
	c := &clock{time.Unix(1_800_000_000, 0)}
	d := desired(vip.MaxNexthops, 1023)
	ports := map[string]string{}
	for _, s := range d.Servers {
		ports[s.Name] = "port0"
	}
	s := n.open(Options{Ports: ports, Now: c.Now})
	start := time.Now()
	must(t, s.Apply(d))
	t.Logf("installed in %v", time.Since(start))
	for step := range 3 {
		c.add(time.Second)
		var moves []buckets.Move
		for b, at := range d.Table.Current {
			moves = append(moves, buckets.Move{Bucket: uint32(b), To: (at + 100) % 1023})
		}
		d.Table, _ = d.Table.Apply(moves, buckets.Options{Now: seconds(c.now), ChainTime: 240})
		must(t, s.Apply(d))
		t.Logf("step %d: all %d nexthops repointed in %v", step, 2*vip.MaxNexthops, s.Status().LastChange)
	}
	for b := range s.rows.Len() {
		if s.rows.Previous[b][2] == buckets.None {
			t.Fatalf("bucket %d: %v", b, s.rows.At(b))
		}
	}
	must(t, s.Reconcile())
	for kind, count := range s.Status().Corrections {
		if count != 0 {
			t.Errorf("%d corrections of %s", count, kind)
		}
	}
	// Routes can still be listed by anybody.
	if text := n.run(n.sw, "ip route"); lines(text, "10.99.0.1 nhid") != 1 {
		t.Errorf("ip route shows %q", text)
	}
	must(t, s.Close())
	s = n.open(Options{Ports: ports, Now: c.Now})
	must(t, s.Apply(d))
	if st := s.Status(); st.Repointed != 0 || st.Chained != vip.MaxNexthops {
		t.Errorf("after a restart: %d repointed, %d with a chain", st.Repointed, st.Chained)
	}
	must(t, s.Remove())
}

// Where nobody is up, who was taken out and answers has what the dead had.
func TestAllDisabledAndOneDies(t *testing.T) {
	n := newNetwork(t, 5)
	s, c, _ := ready(t, n, 40)
	reports := map[int]Report{0: disabled, 1: disabled, 2: disabled, 3: disabled, 4: disabled}
	must(t, s.Health(all(5, reports)))
	if st := s.Status(); st.Deputies != 0 {
		t.Fatalf("all disabled: %+v", st)
	}
	reports[0] = silent
	for range 4 {
		c.add(time.Second)
		must(t, s.Health(all(5, reports)))
	}
	if st := s.Status(); st.Locked || st.Hosts[0].Nexthops != 0 || st.Deputies != 8 {
		t.Fatalf("one of them died: %+v", st)
	}
}
