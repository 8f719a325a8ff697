package sevenpaths

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/fabrics/fabricstest"
	"github.com/fairlead/fairlead/lab/netspace"
)

// options are the tests': slower links leave processors to other tests.
func options(t *testing.T) Options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("testbeds need root: run the tests with sudo")
	}
	o := Options{Runs: 1, Rate: 10e6, Program: built.Fairlead(t), Watch: func(text string) { t.Log(text) }}
	if err := o.fill(); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestAllLinks: as many chosen subflows as links use all of them. Goodput is
// judged by the scenario, not here: other tests run at the same time.
func TestAllLinks(t *testing.T) {
	o := options(t)
	for _, c := range []struct {
		build  func(int64) testbed
		points []point
	}{
		{sevenLinks, []point{{1, false, 1}, {Paths, false, 2}, {Paths, true, 1}}},
		{twoLinks, []point{{2, false, 2}}},
	} {
		r := &Result{}
		if err := o.part(t.Context(), r, c.build, c.points); err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Runs {
			for _, run := range p.Connections {
				// Random ports need not find other links.
				if p.Ports == "chosen" && run.Used != p.Subflows || run.Used < 1 || run.Used > p.Subflows {
					t.Errorf("%s, %s ports, %d subflows: %d links used: %.2f", p.Testbed, p.Ports, p.Subflows, run.Used, run.Shares)
				}
			}
		}
		if err := r.PrintResult(t.Output()); err != nil {
			t.Error(err)
		}
	}
}

// lasting is a connection that sends as long as the test lasts.
func lasting(t *testing.T, d *traffic, six bool) {
	t.Helper()
	c, err := d.dial(t.Context(), true, d.server(six))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.SetLinger(0)
		_ = c.Close()
		<-done
	})
}

// listed is what the command says of the client's connections.
func listed(t *testing.T, d *traffic) []mptcp.Listed {
	t.Helper()
	out, err := fabricstest.Run(t.Context(), d.fabric, "client", d.program, "mptcp", "list", "-f", d.fabric.Path(), "-o", "json")
	var answer struct{ Connections []mptcp.Listed }
	if err == nil {
		err = json.Unmarshal([]byte(out), &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Connections
}

// open are the links between the routers that a connection's open subflows
// use, sorted.
func open(c mptcp.Listed) (used []string) {
	for _, s := range c.Subflows {
		if s.State == "open" && len(s.Links) == 3 {
			used = append(used, s.Links[1])
		}
	}
	slices.Sort(used)
	return used
}

// links are those that open subflows of all connections use now.
func links(t *testing.T, d *traffic) (used []string) {
	t.Helper()
	for _, c := range listed(t, d) {
		used = append(used, open(c)...)
	}
	slices.Sort(used)
	return used
}

// until waits for the links that subflows use to be as they should be.
func until(t *testing.T, d *traffic, what string, as func(used []string) bool) []string {
	t.Helper()
	var used []string
	if !netspace.WaitFor(time.Minute, func() bool { used = links(t, d); return as(used) }) {
		t.Fatalf("%s: subflows are on %v; the daemon says:\n%s", what, used, d.manager.Log())
	}
	return used
}

// sevenTestbed is the first testbed for a test.
func sevenTestbed(t *testing.T, name string) *traffic {
	t.Helper()
	o := options(t)
	b := sevenLinks(o.Rate)
	f, err := fabrics.Up(t.Context(), b.fabric, fabrics.Options{Name: fmt.Sprint("m", name, os.Getpid()), Program: o.Program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
	})
	d, err := newTraffic(t.Context(), f, b, o.Program, experiment.Ports(experiment.Random(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

// TestRefused: a peer that takes two subflows beside the first keeps them, and
// the daemon says once what would help. A connection that began before the
// daemon is the kernel's: it is left as it is, without a word.
func TestRefused(t *testing.T) {
	d := sevenTestbed(t, "refuse")
	d.peer.Stop()
	lasting(t, d, false)
	if err := d.manage(point{subflows: Paths}); err != nil {
		t.Fatal(err)
	}
	lasting(t, d, false)
	said := func() int { return strings.Count(d.manager.Log(), "level=WARN") }
	const kernels, managed = 1, 3
	until(t, d, "with a peer that refuses", func(used []string) bool { return len(used) == kernels+managed && said() > 0 })
	if n := said(); n != 1 || !strings.Contains(d.manager.Log(), "takes no more subflows") {
		t.Errorf("warned %d times:\n%s", n, d.manager.Log())
	}
}

// TestFailure: a link that loses everything is left, whatever else happens the
// connection goes on, and it comes back when the link does. A daemon that is
// killed and started again goes on where it was.
func TestFailure(t *testing.T) {
	d := sevenTestbed(t, "fail")
	f, b := d.fabric, d.bed
	const wanted = 3
	if err := d.manage(point{subflows: wanted}); err != nil {
		t.Fatal(err)
	}
	lasting(t, d, true)
	distinct := func(used []string) bool {
		return len(used) == wanted && len(slices.Compact(slices.Clone(used))) == wanted
	}
	used := until(t, d, "at first", distinct)

	// Each link that is lost is left for another.
	lost := func(name string) int {
		i := slices.IndexFunc(b.counted, func(l int) bool { return f.Topology().LinkName(l) == name })
		if i < 0 {
			t.Fatalf("no link %s", name)
		}
		return b.counted[i]
	}
	bad := used[:2]
	for _, name := range bad {
		if err := fabricstest.Lose(f, lost(name), 1); err != nil {
			t.Fatal(err)
		}
	}
	until(t, d, "after two links were lost", func(used []string) bool {
		return distinct(used) && !slices.Contains(used, bad[0]) && !slices.Contains(used, bad[1])
	})
	if got := d.received.Load(); !netspace.WaitFor(20*time.Second, func() bool { return d.received.Load() > got+1<<20 }) {
		t.Error("the connection does not go on")
	}

	// The daemon dies; a new one wants more subflows.
	d.manager.Kill()
	d.manager = nil
	if err := d.manage(point{subflows: wanted + 2}); err != nil {
		t.Fatal(err)
	}
	until(t, d, "after the daemon was killed", func(used []string) bool {
		return len(used) == wanted+2 && len(slices.Compact(slices.Clone(used))) == wanted+2
	})

	// The links come back.
	for _, name := range bad {
		if err := fabricstest.Lose(f, lost(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	d.manager.Kill()
	d.manager = nil
	if err := d.manage(point{subflows: Paths}); err != nil {
		t.Fatal(err)
	}
	until(t, d, "after the links came back", func(used []string) bool {
		return len(used) == Paths && len(slices.Compact(slices.Clone(used))) == Paths
	})
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"":                          {Runs: DefaultRuns, Rate: DefaultRate},
		"--runs 0: must be 1 to":    {Rate: DefaultRate},
		"--runs 5000: must be 1 to": {Runs: 5000, Rate: DefaultRate},
		"--rate 8bit: must be 1Mbit to 200Mbit, such as 20Mbit": {Runs: 1, Rate: 8},
		"--rate 1Gbit: must be":                                 {Runs: 1, Rate: 1e9},
	} {
		if err := o.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	run := func(used int, ratio float64) OneRun { return OneRun{Used: used, Ratio: ratio} }
	r := &Result{Runs: []Point{
		{Testbed: "seven-links", Ports: "chosen", Subflows: 7, Links: 7, Connections: []OneRun{run(7, 6.5), run(7, 6.4)}},
		{Testbed: "two-links", Ports: "chosen", Subflows: 2, Links: 2, Connections: []OneRun{run(2, 1.95)}},
		{Testbed: "seven-links", Ports: "random", Subflows: 7, Links: 7, Connections: []OneRun{run(4, 4)}},
	}}
	judge := func() []string {
		for i := range r.Runs {
			p := &r.Runs[i]
			p.AllUsed, p.MeanUsed = 0, 0
			p.sum()
		}
		r.Verdict = nil
		r.judge()
		return r.Verdict
	}
	if v := judge(); len(v) != 0 {
		t.Errorf("%v", v)
	}
	r.Runs = append(r.Runs, Point{Testbed: "two-links", Ports: "random", Subflows: 2, Links: 2, Connections: []OneRun{run(1, 1)}})
	if v := judge(); len(v) != 0 {
		t.Errorf("random ports are judged: %v", v)
	}
	r.Runs[0].Connections[1].Used = 6
	r.Runs[1].Connections[0].Ratio = 1.8
	if v := judge(); len(v) != 2 {
		t.Errorf("%v, want two", v)
	}
}
