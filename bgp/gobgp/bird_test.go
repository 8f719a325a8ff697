package gobgp_test

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/bgp"
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
	r.birdWith("log stderr all;\n" + strings.NewReplacer("10.0.0.11", "10.99.1.1", "10.0.0.12", "10.99.2.1",
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
