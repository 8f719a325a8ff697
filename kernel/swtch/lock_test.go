package swtch

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
)

// Faild section 4: "a rapid sequence of downed hosts may be a symptom of a
// cascading failure, at which point a controller may decide to lock itself and
// fall back to standard ECMP".
func TestCascadeLocks(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			n := newNetwork(t, 5)
			c := &clock{time.Unix(1_800_000_000, 0)}
			var log strings.Builder
			s := n.open(Options{Ports: n.ports(), Now: c.Now, Health: HealthOptions{LockKeep: keep}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			d := desired(40, 5)
			must(t, s.Apply(d))
			must(t, s.Health(all(5, nil)))
			held := func() (loads []int) {
				for _, h := range s.Status().Hosts {
					loads = append(loads, h.Nexthops)
				}
				return loads
			}
			plain := fmt.Sprint(held())
			reports := map[int]Report{0: {Answered: true, State: Down}}
			must(t, s.Health(all(5, reports)))
			// Greedily: the four others have 10 each.
			if got := fmt.Sprint(held()); got != "[0 10 10 10 10]" {
				t.Fatalf("one down: %s", got)
			}
			c.add(time.Minute) // long ago when the rest falls
			reports[1] = Report{Answered: true, State: Down}
			must(t, s.Health(all(5, reports)))
			two := fmt.Sprint(held())
			reports[2], reports[3] = Report{Answered: true, State: Down}, Report{Answered: true, State: Down}
			c.add(time.Second)
			must(t, s.Health(all(5, reports)))
			st := s.Status()
			if !st.Locked || !strings.Contains(st.LockReason, "3 of 5 servers") || !strings.Contains(log.String(), "locked: a cascading failure") {
				t.Fatalf("%+v\n%s", st, log.String())
			}
			want := "[0 10 10 10 10]" // the old fall counts, the cascade does not
			if keep {
				want = two
			}
			if got := fmt.Sprint(held()); got != want || st.Plain == keep {
				t.Fatalf("locked: %s, want %s; plain %v", got, want, st.Plain)
			}
			// Nothing moves it but the operator.
			before := n.dumpAll()
			must(t, s.Health(all(5, nil)))
			must(t, s.Health(all(5, map[int]Report{4: {Answered: true, State: Disabled}})))
			must(t, s.Reconcile())
			if after := n.dumpAll(); after != before {
				t.Fatalf("a locked switch changes:\n%s", changes(before, after))
			}
			// What others change is still put right.
			n.run(n.sw, "ip neigh del 169.254.192.5 dev br0")
			must(t, s.Reconcile())
			if after := n.dumpAll(); after != before {
				t.Fatalf("not put right:\n%s", changes(before, after))
			}
			// Operators go on changing what they want changed.
			must(t, s.Apply(weigh(d, 4, 0, c.now)))
			if h := s.Status().Hosts; h[4].Nexthops != 0 || h[0].Nexthops != 0 || !s.Status().Locked {
				t.Fatalf("drained while locked: %+v", h)
			}
			back := d
			back.Table = d.Table.Clone()
			back.Table.Generation += 2
			must(t, s.Apply(back))
			if got := fmt.Sprint(held()); got != want {
				t.Fatalf("undrained while locked: %s, want %s", got, want)
			}
			changed, err := s.Unlock()
			must(t, err)
			must(t, s.Health(all(5, nil)))
			if got := fmt.Sprint(held()); got != plain || len(changed) == 0 || s.Status().Locked {
				t.Fatalf("unlocked and all up: %s, at first %s", got, plain)
			}
		})
	}
}

// A switch that never saw anybody up has nothing to go by: it forwards to all,
// announces nothing, and begins as soon as there is somebody.
func TestFirstSwitchOfAll(t *testing.T) {
	n := newNetwork(t, 3)
	s := n.open(Options{Ports: n.ports()})
	d := desired(30, 3)
	must(t, s.Apply(d))
	for range 5 {
		must(t, s.Health(all(3, map[int]Report{0: silent, 1: silent, 2: silent})))
	}
	st := s.Status()
	if st.Locked || len(st.NotReady) != 1 || !strings.Contains(st.NotReady[0], "no server was up yet") {
		t.Fatalf("%+v", st)
	}
	for _, h := range st.Hosts {
		if h.Nexthops != 10 || h.State != Down {
			t.Fatalf("%+v", h)
		}
	}
	if got := n.run(n.sw, "ip route show table 177 2>/dev/null || true"); got != "" {
		t.Fatalf("announced: %s", got)
	}
	for i := range 3 {
		reports := map[int]Report{}
		for j := i + 1; j < 3; j++ {
			reports[j] = silent
		}
		must(t, s.Health(all(3, reports)))
	}
	if st := s.Status(); st.Locked || len(st.NotReady) != 0 || st.Hosts[0].Nexthops != 10 {
		t.Fatalf("all are up: %+v", st)
	}
	must(t, s.Apply(weigh(d, 0, 0, time.Now())))
}

// A daemon that starts while most servers are down for long leaves it at that;
// one that then hears nobody is blind, and locks with what stands.
func TestRestartWhileMostAreDown(t *testing.T) {
	for _, answer := range []Report{silent, down, disabled} {
		t.Run(string(answer.State)+answer.Detail, func(t *testing.T) {
			n := newNetwork(t, 5)
			s, c, d := ready(t, n, 40)
			reports := map[int]Report{}
			for i := range 3 {
				c.add(time.Hour)
				reports[i] = answer
				for range 3 {
					must(t, s.Health(all(5, reports)))
				}
			}
			loads := func() string {
				var l []int
				for _, h := range s.Status().Hosts {
					l = append(l, h.Nexthops)
				}
				return fmt.Sprint(l)
			}
			if s.Status().Locked || loads() != "[0 0 0 20 20]" {
				t.Fatalf("before: %s, locked %v", loads(), s.Status().Locked)
			}
			again := func() {
				must(t, s.Close())
				c.add(10 * time.Second)
				s = n.open(Options{Ports: n.ports(), Now: c.Now})
				must(t, s.Apply(d))
			}
			again()
			for range 30 {
				c.add(time.Second)
				must(t, s.Health(all(5, reports)))
				must(t, s.Reconcile())
				if st := s.Status(); st.Locked || loads() != "[0 0 0 20 20]" || st.Repointed != 0 {
					t.Fatalf("after the restart: %s, %+v", loads(), st)
				}
			}
			if why := s.Ready(); len(why) != 0 {
				t.Fatal(why)
			}
			again()
			for range 30 {
				c.add(time.Second)
				must(t, s.Health(all(5, map[int]Report{0: silent, 1: silent, 2: silent, 3: silent, 4: silent})))
				must(t, s.Reconcile())
				if loads() != "[0 0 0 20 20]" {
					t.Fatalf("blind: %s", loads())
				}
			}
			if st := s.Status(); !st.Locked || st.LockReason != "2 of 5 servers went down within 10s" {
				t.Fatalf("blind: %+v", st)
			}
		})
	}
}

// A lock outlasts the daemon, and what switches tell each other of chains is
// taken meanwhile.
func TestLockOutlastsTheDaemon(t *testing.T) {
	n := newNetwork(t, 4)
	c := &clock{time.Unix(1_800_000_000, 0)}
	var kept *Lock
	var refuse error
	o := Options{Ports: n.ports(), Now: c.Now, KeepLock: func(l *Lock) error {
		if refuse == nil {
			kept = l
		}
		return refuse
	}}
	s := n.open(o)
	d := desired(40, 4)
	must(t, s.Apply(d))
	must(t, s.Health(all(4, nil)))
	reports := map[int]Report{3: down}
	must(t, s.Health(all(4, reports)))
	c.add(time.Hour)
	reports[0], reports[1], reports[2] = down, down, down
	must(t, s.Health(all(4, reports)))
	if kept == nil || fmt.Sprint(kept.Out) != "[server3]" || !kept.Plain || !kept.Since.Equal(c.now) {
		t.Fatalf("kept %+v", kept)
	}
	want := n.dumpAll()
	must(t, s.Close())
	c.add(time.Minute)
	o.Locked = kept
	s = n.open(o)
	must(t, s.Apply(d))
	must(t, s.Health(all(4, reports)))
	must(t, s.Health(all(4, nil)))
	must(t, s.Reconcile())
	if st := s.Status(); !st.Locked || st.LockReason != kept.Reason || st.Hosts[3].Nexthops != 0 {
		t.Fatalf("after the restart: %+v", st)
	}
	if is := n.dumpAll(); is != want {
		t.Fatalf("a locked switch that starts again changes:\n%s", changes(want, is))
	}
	must(t, s.LearnChains([]effective.BucketRow{{Bucket: 0, Row: buckets.Row{Current: 0, Previous: [buckets.Chain]uint16{2, buckets.None, buckets.None}, Since: seconds(c.now)}}}))
	if s.rows.Previous[0][0] != 2 {
		t.Errorf("a locked switch learned nothing: %v", s.rows.At(0))
	}
	refuse = errors.New("disk full")
	if _, err := s.Unlock(); err == nil || !s.Status().Locked {
		t.Errorf("unlocked, but not on disk: %v", err)
	}
	refuse = nil
	if _, err := s.Unlock(); err != nil || kept != nil || s.Status().Locked {
		t.Errorf("%v, kept %v", err, kept)
	}
}

// An agent may answer by another network while its server's port is down.
func TestPortDown(t *testing.T) {
	n := newNetwork(t, 3)
	s, _, _ := ready(t, n, 30)
	for _, script := range []string{"ip link set port1 down", "ip link set port1 up", "ip -n peer link set eth0 down"} {
		want := map[bool]int{true: 10, false: 0}[strings.HasSuffix(script, " up")]
		if strings.Contains(script, "peer") {
			n.run(n.servers[1], "ip link set eth0 down")
		} else {
			n.run(n.sw, script)
		}
		eventually(t, script, func() bool {
			must(t, s.Reconcile())
			must(t, s.Health(all(3, nil)))
			return s.Status().Hosts[1].Nexthops == want
		})
		if h := s.Status().Hosts[1]; (h.State == Up) != (want == 10) || want == 0 && h.Detail != "its port port1 of the bridge is down" {
			t.Fatalf("%s: %+v", script, h)
		}
	}
	// All of them: no cascade, there is nothing to be in doubt of.
	n.run(n.sw, "ip link set port0 down")
	must(t, s.Reconcile())
	must(t, s.Health(all(3, nil)))
	if st := s.Status(); st.Locked || st.Hosts[2].Nexthops != 30 {
		t.Fatalf("%+v", st)
	}
}

// A version that cannot be put in force leaves what is known of the servers
// that it is without.
func TestRefusedApplyKeepsHealth(t *testing.T) {
	n := newNetwork(t, 3)
	s, c, d := ready(t, n, 30)
	must(t, s.Health(all(3, map[int]Report{2: down})))
	k := &refusing{kernel: s.kernel, refuse: func(int, netlink.Message) bool { return true }}
	s.kernel = k
	without := weigh(d, 2, 0, c.now)
	without.Servers = without.Servers[:2]
	if err := s.Apply(without); err == nil {
		t.Fatal("nothing refused")
	}
	k.refuse = nil
	if rows, _, _ := s.ChainRows(0, 100); len(rows) != 10 {
		t.Errorf("after a refused Apply %d rows are told", len(rows))
	}
	must(t, s.Health(all(2, nil)))
	if h := s.Status().Hosts; len(h) != 3 || h[2].State != Down || h[2].Nexthops != 0 {
		t.Fatalf("after a refused Apply: %+v", h)
	}
}

// One bridge, one switch.
func TestOneSwitchABridge(t *testing.T) {
	n := newNetwork(t, 1)
	s := n.open(Options{Ports: n.ports()})
	if _, err := n.tryOpen(Options{}); err == nil || !strings.Contains(err.Error(), "another process has bridge br0") {
		t.Fatalf("a second one: %v", err)
	}
	other := newNetwork(t, 1) // another machine
	other.open(Options{})
	must(t, s.Close())
	n.open(Options{})
}
