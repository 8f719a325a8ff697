package swtch

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables"
)

// dumpAll is everything that anybody could see of the switch, without
// counters and ages.
func (n *network) dumpAll() string {
	return n.run(n.sw, `ip nexthop; ip neigh show dev br0 nud permanent
bridge fdb show br br0 | grep -E '^(9a|9e|96):' | grep static | sort
ip route show table main; ip -6 route show table main; ip route show table 177 2>/dev/null || true; ip -6 route show table 177 2>/dev/null || true`)
}

// changes is what differs between two such texts, line by line.
func changes(before, after string) string {
	var out strings.Builder
	for _, one := range []struct{ sign, in, notIn string }{{"-", before, after}, {"+", after, before}} {
		for l := range strings.Lines(one.in) {
			if !strings.Contains("\n"+one.notIn, "\n"+l) {
				out.WriteString(one.sign + l)
			}
		}
	}
	return out.String()
}

func lines(text string, containing ...string) (n int) {
next:
	for l := range strings.Lines(text) {
		for _, c := range containing {
			if !strings.Contains(l, c) {
				continue next
			}
		}
		n++
	}
	return n
}

func TestInstallShowAndRemove(t *testing.T) {
	n := newNetwork(t, 3)
	before := n.dumpAll()
	c := &clock{time.Unix(1_800_000_000, 0)}
	s := n.open(Options{Ports: n.ports(), Now: c.Now})
	d := desired(64, 3)
	must(t, s.Apply(d))
	// Nothing is announced before the servers' health is known.
	if text := n.run(n.sw, "ip route show table 177 2>/dev/null || true"); text != "" {
		t.Fatalf("announced: %s", text)
	}
	must(t, s.Health(all(3, nil)))
	text := n.dumpAll()
	for what, want := range map[string]int{
		"10.99.0.1 dev br0 proto 250 scope link": 1, "2001:db8:99::1 dev br0 proto 250 metric 1": 1, "nhid 4196204544": 1, "nhid 4196204545": 1, "group": 2,
		"PERMANENT": 128,
	} {
		if got := lines(text, what); got != want {
			t.Errorf("%q stands %d times, not %d", what, got, want)
		}
	}
	// Settled MACs and copies of three servers.
	if got := lines(text, "static"); got != 6 {
		t.Errorf("%d bridge entries", got)
	}
	if why := s.Ready(); len(why) != 0 {
		t.Errorf("not ready: %q", why)
	}
	must(t, s.Apply(d))
	if after := n.dumpAll(); after != text {
		t.Errorf("a second Apply changed something:\n%s", changes(text, after))
	}
	// Without VIPs nothing stays, and with them all comes back.
	must(t, s.Apply(tables.SwitchPlan{Version: 2}))
	must(t, s.Reconcile())
	if after := n.dumpAll(); after != before {
		t.Errorf("without VIPs there is left:\n%s", changes(before, after))
	}
	if why := s.Ready(); len(why) == 0 {
		t.Error("ready without VIPs")
	}
	must(t, s.Apply(d))
	if after := n.dumpAll(); after != text {
		t.Errorf("not back:\n%s", changes(text, after))
	}
	must(t, s.Remove())
	if after := n.dumpAll(); after != before {
		t.Errorf("something is left:\n%s", changes(before, after))
	}
}

// A chain ends when the previous server says that it owns nothing of the
// bucket, not before, and without a word of single buckets when it has nothing.
func TestReportsEndChains(t *testing.T) {
	n := newNetwork(t, 4)
	s, c, d := ready(t, n, 16)
	if !s.Status().ByBucket {
		t.Fatal("this kernel hashes otherwise than the model")
	}
	c.add(time.Second)
	d = weigh(d, 0, 0, c.now) // buckets 0 to 3
	must(t, s.Apply(d))
	report := func(connections uint64, owned []byte) int {
		c.add(10 * time.Second)
		reports := all(4, nil)
		reports["server0"] = Report{Answered: true, State: Up, Connections: connections, At: c.now, Owned: owned}
		must(t, s.Health(reports))
		return s.Status().Chained
	}
	if got := report(2, nil); got != 4 {
		t.Errorf("two connections of unknown buckets: %d chains", got)
	}
	if got := report(2, []byte{0b1010}); got != 4 {
		t.Errorf("a bitmap of another length is not to be believed: %d chains", got)
	}
	if got := report(2, []byte{0b1010, 0}); got != 2 || s.rows.Previous[0][0] != buckets.None || s.rows.Previous[1][0] == buckets.None {
		t.Errorf("connections of buckets 1 and 3: %d chains", got)
	}
	// They outlast the chain time while they live.
	for range 60 {
		if got := report(1, []byte{0b1000, 0}); got != 1 {
			t.Fatalf("a connection of bucket 3: %d chains", got)
		}
	}
	if got := report(0, nil); got != 0 {
		t.Errorf("no connections: %d chains", got)
	}
}

// What agents say of buckets goes by a model of the kernel's hash.
func TestHashModelIsTheKernels(t *testing.T) {
	n := newNetwork(t, 1)
	for _, buckets := range []int{1, 2, 3, 64, 255, 256, 1000, 1024, 4093} {
		s := n.open(Options{Ports: n.ports()})
		d := desired(buckets, 1)
		d.Seed = uint32(buckets) * 2654435761 // any
		must(t, s.Apply(d))
		if err := verifyHash(s.kernel, d.VIPs, d.Seed, buckets); err != nil {
			t.Errorf("%d buckets: %v", buckets, err)
		}
		if err := verifyHash(s.kernel, d.VIPs, d.Seed+1, buckets); err == nil && buckets > 3 {
			t.Errorf("%d buckets: another seed is not told", buckets)
		}
		must(t, s.Remove())
		must(t, s.Close())
	}
}

func TestDrainAServerRepoints(t *testing.T) {
	n := newNetwork(t, 4)
	c := &clock{time.Unix(1_800_000_000, 0)}
	s := n.open(Options{Ports: n.ports(), Now: c.Now})
	d := desired(64, 4)
	must(t, s.Apply(d))
	must(t, s.Health(all(4, nil)))
	for i := range 3 {
		c.add(time.Second)
		d = weigh(d, i, 0, c.now)
		must(t, s.Apply(d))
	}
	st := s.Status()
	if st.Hosts[3].Nexthops != 64 || st.Chained != 48 {
		t.Fatalf("%+v", st)
	}
	// Ten bits of 4, which is server 3, in IPv4 and IPv6.
	const want = "lladdr 9a:01:0"
	text := n.run(n.sw, "ip neigh show dev br0 nud permanent")
	if lines(text, want) != 128 {
		t.Fatalf("not all nexthops lead to server 3:\n%s", text)
	}
	// A drained server that still forwards is itself drained: chains of more
	// than one stand.
	deep := 0
	for b := range s.rows.Len() {
		if s.rows.Previous[b][1] != 0xffff {
			deep++
		}
	}
	if deep == 0 {
		t.Fatal("no bucket has two previous servers")
	}
	// Chains end by time.
	c.add(240 * time.Second)
	must(t, s.Reconcile())
	if st := s.Status(); st.Chained != 0 {
		t.Fatalf("%d nexthops have a chain after the chain time", st.Chained)
	}
	c.add(lingerTime)
	must(t, s.Reconcile())
	if text := n.run(n.sw, "bridge fdb show br br0 | grep -E '^9a' | grep static"); lines(text, "9a:") != 1 {
		t.Fatalf("bridge entries out of use are left:\n%s", text)
	}
	if st := s.Status(); st.Corrections["bridge"] != 0 || st.Retries != 0 {
		t.Fatalf("%+v", st)
	}
}
