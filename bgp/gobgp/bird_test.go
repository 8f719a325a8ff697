package gobgp_test

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/lab/netspace"
)

// within is what a router may take to know that a machine withdraws.
const within = time.Second

var bothFour, bothSix = []string{"10.99.1.1", "10.99.2.1"}, []string{"fd99:1::1", "fd99:2::1"}

// Two machines announce, and the router's kernel spreads over both. One is unwell, and
// well again; it leaves; the other is killed, of which the router hears by the end of
// the connection.
func TestBIRD(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.bird("graceful restart off;", "")
	s := settings{HoldTime: 3 * time.Second}
	one, two := r.start("one", 1, s), r.start("two", 2, s)
	r.until("both announce", four, bothFour...)
	r.until("both announce", six, bothSix...)
	report := one.order("report")
	for _, a := range report.Addresses {
		if !a.Announced || len(a.HeardBy) != 1 || len(a.Why) != 0 {
			t.Errorf("announced: %+v", a)
		}
	}
	if len(report.Addresses) != 2 || len(report.Neighbours) != 2 || report.Neighbours[0].State != "established" {
		t.Errorf("report: %+v", report)
	}
	quick := func(what, address string, want ...string) {
		t.Helper()
		took := r.until(what, address, want...)
		t.Logf("%s: the router's kernel has it after %v", what, took.Round(10*time.Microsecond))
		if took > within {
			t.Errorf("%s: the router's kernel has it after %v, must be within %v", what, took, within)
		}
	}
	one.order("unwell")
	quick("no healthy server", four, "10.99.2.1")
	r.until("no healthy server", six, "fd99:2::1")
	one.order("well")
	quick("healthy again", four, bothFour...)
	r.until("healthy again", six, bothSix...)
	one.order("leave")
	quick("leave", four, "10.99.2.1")
	r.until("leave", six, "fd99:2::1")
	two.kill()
	quick("killed, without graceful restart", four)
}

// A speaker that is killed and comes back in time loses no route for a moment; one that
// does not loses it when the time is over.
func TestGracefulRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.bird("graceful restart on;", "")
	s := settings{HoldTime: 3 * time.Second, Restart: 6 * time.Second}
	one, two := r.start("one", 1, s), r.start("two", 2, s)
	r.until("both announce", four, bothFour...)
	r.until("both announce", six, bothSix...)
	one.kill()
	two.kill()
	killed := time.Now()
	time.Sleep(time.Second)
	one = r.start("one", 1, s)
	var gone time.Duration
	for time.Since(killed) < s.Restart+time.Second || gone == 0 {
		is := r.hops(four)
		if !slices.Contains(is, bothFour[0]) || !slices.Contains(r.hops(six), bothSix[0]) {
			t.Fatalf("%v after the kill there is no route to who came back", time.Since(killed))
		}
		if gone == 0 && !slices.Contains(is, bothFour[1]) {
			gone = time.Since(killed)
		}
		if time.Since(killed) > patience {
			t.Fatal("the route of who did not come back stays")
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Logf("killed for good: the route stays %v, graceful restart is %v", gone.Round(10*time.Millisecond), s.Restart)
	if gone < s.Restart-2*time.Second || gone > s.Restart+3*time.Second {
		t.Errorf("the route of who did not come back stays %v, graceful restart is %v", gone, s.Restart)
	}
	for _, n := range one.order("report").Neighbours {
		if !n.Established {
			t.Errorf("after the restart: %+v", n)
		}
	}
}

// What a route carries, to a router of another AS and to one of ours; a neighbour that is
// not there keeps the others waiting for no more than a moment, whether they know
// graceful restart or not.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		each    string
		as      int
		carries []string
	}{
		"another AS":               {"graceful restart on;", 65000, []string{"BGP.as_path: 65001", "BGP.next_hop: 10.99.1.1", "BGP.med: 9", "BGP.community: (65001,7)", "BGP.large_community: (65001, 1, 2)"}},
		"without graceful restart": {"graceful restart off;", 65000, []string{"BGP.as_path: 65001"}},
		"our AS":                   {"graceful restart on;", 65001, []string{"BGP.next_hop: 10.99.1.1", "BGP.local_pref: 100", "BGP.community: (65001,7)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.birdAs(c.as, c.each, "protocol direct { ipv4; ipv6; }\n") // by which iBGP's next hops are found
			r.start("one", 1, settings{HoldTime: 3 * time.Second, Restart: time.Minute, RouterAS: c.as, Routers: []string{"10.99.1.254", "10.99.1.99"}})
			r.until("it announces", four, bothFour[0])
			said := r.birdc("bird", "show", "route", "all", "for", four)
			for _, want := range c.carries {
				if !strings.Contains(said, want) {
					t.Errorf("the route lacks %s:\n%s", want, said)
				}
			}
		})
	}
}

// What one router tells, another does not hear of: a speaker is no way through.
func TestNoTransit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(netspace.In(r.name+"router", func() error { return addressed("one", "10.99.1.252/24", "10.99.1.253/24") }))
	for name, text := range map[string]string{
		"teller": `router id 10.99.0.252;
protocol static far { ipv4; route 203.0.113.0/24 blackhole; }
protocol bgp one { local 10.99.1.252 as 65002; neighbor 10.99.1.1 as 65001; passive on; strict bind on; ipv4 { import none; export all; }; }`,
		"hearer": `router id 10.99.0.253;
protocol bgp one { local 10.99.1.253 as 65003; neighbor 10.99.1.1 as 65001; passive on; strict bind on; ipv4 { import all; export none; }; }`,
	} {
		r.birdWith(name, "log stderr all;\nprotocol device {}\n"+text+"\n")
	}
	one := r.start("one", 1, settings{HoldTime: 3 * time.Second, Routers: []string{"10.99.1.252", "10.99.1.253"}, RouterAS: -1})
	heard := func() string { return r.birdc("hearer", "show", "route") }
	for began := time.Now(); !strings.Contains(heard(), four) || len(one.order("report").Addresses[0].HeardBy) < 2; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s; %+v", heard(), one.order("report"))
		}
	}
	time.Sleep(300 * time.Millisecond)
	if said := heard(); strings.Contains(said, "203.0.113.0") {
		t.Errorf("a route goes through: %s", said)
	}
}

// What docs/bgp.md has for BIRD on a router works as it stands there.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/bgp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```bird\n")
	text, _, ok := strings.Cut(text, "```\n")
	if !ok {
		t.Fatal("docs/bgp.md has no block for BIRD")
	}
	r := newRig(t)
	r.birdWith("bird", "log stderr all;\n"+strings.NewReplacer("10.0.0.11", "10.99.1.1", "10.0.0.12", "10.99.2.1",
		"2001:db8:1::11", "fd99:1::1", "2001:db8:1::12", "fd99:2::1").Replace(text))
	s := settings{HoldTime: 9 * time.Second, Restart: 30 * time.Second}
	r.start("one", 1, s)
	r.start("two", 2, s)
	r.until("both announce", four, bothFour...)
	r.until("both announce", six, bothSix...)
}

// Who falls silent, as a machine without power does, loses its routes after the hold
// time, or with BFD after three of its packets. Neither waits for graceful restart, which
// is for those whose connection ends.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bfd         time.Duration
		each        string
		signal      syscall.Signal
		least, most time.Duration
	}{
		"hold time": {0, "", syscall.SIGSTOP, time.Second, 5 * time.Second},
		"BFD":       {100 * time.Millisecond, "bfd on;", syscall.SIGSTOP, 0, within},
		// It is the daemon that speaks BFD, so that graceful restart is over with it.
		"BFD, killed": {100 * time.Millisecond, "bfd on;", syscall.SIGKILL, 0, within},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.bird("graceful restart on; "+c.each, "protocol bfd { interface \"*\" { interval 100 ms; multiplier 3; }; }\n")
			s := settings{HoldTime: 3 * time.Second, Restart: time.Minute, BFD: c.bfd}
			one, two := r.start("one", 1, s), r.start("two", 2, s)
			r.until("both announce", four, bothFour...)
			for began := time.Now(); c.bfd > 0; time.Sleep(20 * time.Millisecond) {
				up := 0
				for _, n := range append(one.order("report").Neighbours, two.order("report").Neighbours...) {
					if n.BFD == "up" {
						up++
					}
				}
				if up == 4 {
					break
				}
				if time.Since(began) > patience {
					t.Fatalf("BFD: %+v", one.order("report").Neighbours)
				}
			}
			r.stays("at work", 500*time.Millisecond, four, bothFour...)
			r.must(one.cmd.Process.Signal(c.signal))
			took := r.until("silent", four, bothFour[1])
			t.Logf("%s: silent for %v until the route went", name, took.Round(10*time.Millisecond))
			if took < c.least || took > c.most {
				t.Errorf("%s: silent for %v until the route went, want %v to %v", name, took, c.least, c.most)
			}
		})
	}
}

// An end of sessions that BFD orders while there are none does not end all that come: the
// second one stands.
func TestStaleReset(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one := r.start("one", 1, settings{HoldTime: 3 * time.Second, BFD: 100 * time.Millisecond})
	one.order("reset")
	r.bird("bfd on;", "protocol bfd { interface \"*\" { interval 100 ms; multiplier 3; }; }\n")
	r.until("announced", four, bothFour[0])
	r.stays("announced", time.Second, four, bothFour[0])
}

// A password is agreed on; a wrong one, a wrong AS and a router that is not there are
// told as what they are.
func TestReasons(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.bird("password \"sesame\";", "")
	good := r.start("one", 1, settings{HoldTime: 3 * time.Second, Password: "sesame"})
	r.until("with the password", four, bothFour[0])
	if n := good.order("report").Neighbours[0]; n.Error != "" {
		t.Errorf("established: %+v", n)
	}
	for what, s := range map[string]settings{
		"timeout":            {Password: "mellon"},
		"connection refused": {Routers: []string{"10.99.2.1"}},
		"bgp.local_as":       {Password: "sesame", LocalAS: 65009},
	} {
		s.HoldTime = 3 * time.Second
		p := r.start("two", 2, s)
		var report bgp.Report
		for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			report = p.order("report")
			if n := report.Neighbours[0]; strings.Contains(strings.ToLower(n.Error), what) {
				break
			}
			if time.Since(began) > patience {
				t.Fatalf("%s: %+v", what, report.Neighbours)
			}
		}
		if a := report.Addresses[0]; a.Announced || len(a.Why) == 0 || !strings.Contains(a.Why[0], "is not established: ") {
			t.Errorf("%s: %+v", what, a)
		}
		p.kill()
	}
}
