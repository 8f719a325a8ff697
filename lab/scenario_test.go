package lab

import (
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/quick"
	"time"

	"github.com/fairlead/fairlead/sim"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRunOptions(t *testing.T) {
	for _, o := range []RunOptions{
		{Scenario: "nothing"},
		{Scenario: "churn", Schemes: []string{"maglev"}},
		{Scenario: "churn", Policies: []string{"rr", "best"}},
		{Scenario: "churn", Forwarding: "nat"},
		{Scenario: "churn", Schemes: []string{"jet"}, Hashes: []string{"ring", "maglev"}},
		{Scenario: "synflood", Rate: MaxFloodRate + 1},
		{Scenario: "scaling", RateFactor: 1}, {Scenario: "scaling", RateFactor: -1}, {Scenario: "scaling", RateFactor: math.NaN()}, {Scenario: "scaling", RateFactor: 1e-9},
		{Scenario: "two-tier", Schemes: []string{"jet"}}, {Scenario: "scaling", Schemes: []string{"faild"}}, {Scenario: "churn", RateFactor: 0.1},
	} {
		if err := o.fill(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	names := func(o RunOptions) (names []string) {
		if err := o.fill(); err != nil {
			t.Fatal(err)
		}
		for _, r := range o.runs() {
			names = append(names, r.Name())
		}
		return names
	}
	for _, c := range []struct {
		o    RunOptions
		want []string
	}{
		{RunOptions{Scenario: "churn"}, []string{
			"cheetah-rr-ipv4", "cheetah-rr-ipv6", "cheetah-p2c-ipv4", "cheetah-p2c-ipv6", "stateless-table-hrw-ipv4", "stateless-table-hrw-ipv6"}},
		{RunOptions{Scenario: "churn", Schemes: []string{"cheetah"}, Policies: []string{"p2c"}, IPv6: true}, []string{"cheetah-p2c-ipv6"}},
		{RunOptions{Scenario: "churn", Schemes: []string{"jet", "cheetah"}, Policies: []string{"rr"}, IPv4: true, NoTimestamps: true}, []string{
			"jet-table-hrw-ipv4-no-timestamps", "jet-anchor-ipv4-no-timestamps", "cheetah-rr-ipv4-no-timestamps"}},
		{RunOptions{Scenario: "scaling"}, []string{"cheetah-rr-ipv4", "beamer-ipip-ipv4", "jet-anchor-ipv4",
			"stateless-table-hrw-ipv4", "stateless-maglev-ipv4", "stateless-bucket-ipv4"}},
		{RunOptions{Scenario: "control", Schemes: []string{"stateless"}, Policies: []string{"rr"}, IPv4: true}, []string{"stateless-table-hrw-ipv4"}},
	} {
		if got := names(c.o); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.o, got, c.want)
		}
	}
}

// TestArrange: whatever the seed, every change happens once, in an order that
// its conditions allow, and the same seed gives the same order.
func TestArrange(t *testing.T) {
	order := func(seed uint64) (names []string) {
		c := &churn{lab: new(Lab), random: sim.Stream(seed, "churn")}
		steps, err := c.arrange(c.steps())
		if err != nil {
			t.Fatal(err)
		}
		if !fits(steps) {
			t.Errorf("seed %d: order does not fit", seed)
		}
		for _, s := range steps {
			names = append(names, s.name)
		}
		return names
	}
	different := map[string]bool{}
	check := func(seed uint64) bool {
		names := order(seed)
		different[names[0]+names[1]+names[2]] = true
		unique := slices.Clone(names)
		slices.Sort(unique)
		return len(slices.Compact(unique)) == len(names) && len(names) >= minChanges && slices.Equal(names, order(seed))
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 30}); err != nil {
		t.Error(err)
	}
	if len(different) < 10 {
		t.Errorf("30 seeds gave only %d beginnings", len(different))
	}
}

// TestSchedule: long connections end within the plan, and another kind's
// number changes no other kind.
func TestSchedule(t *testing.T) {
	p := LoadPlan{Seed: 5, Seconds: 30, Short: 50, Stream: 20, Upload: 10, Idle: 10}
	jobs := p.schedule()
	if len(jobs) != 90 {
		t.Fatalf("%d jobs", len(jobs))
	}
	for _, j := range jobs {
		if j.at < 0 || j.at+j.length > seconds(p.Seconds) {
			t.Errorf("%+v leaves the plan", j)
		}
	}
	q := p
	q.Short = 5
	if !slices.Equal(jobs[50:], q.schedule()[5:]) {
		t.Error("fewer short connections change the long ones")
	}
}

// TestJudge: what must be 0, and what must not.
func TestJudge(t *testing.T) {
	good := []RunTally{
		{Scheme: "cheetah", Connections: 2000, Completed: 1990, Survived: 400, LostWithServer: 10},
		{Scheme: "stateless", Connections: 2000, Completed: 1890, Survived: 400, LostWithServer: 10, Broken: 100},
	}
	judge := func(o RunOptions, changes int, runs ...RunTally) int {
		o.Scenario, o.Scale = "churn", FullScale
		return len((&runner{o: o, changes: changes, result: &Result{Runs: runs}}).judge())
	}
	scaling := func(broken int) int {
		r := &runner{o: RunOptions{Scenario: "scaling"}, changes: 17, result: &Result{Runs: []RunTally{
			{Scheme: "stateless", Connections: 100, Completed: 100 - broken, Broken: broken, Survived: 9}}}}
		return len(r.judge())
	}
	broken := RunTally{Scheme: "cheetah", Connections: 2000, Completed: 1999, Survived: 1, Broken: 1}
	harmless := RunTally{Scheme: "stateless", Connections: 2000, Completed: 2000, Survived: 1}
	for i, c := range []struct{ got, want int }{
		{judge(RunOptions{}, 17, good...), 0},
		{judge(RunOptions{}, 11, good...), 1},
		{judge(RunOptions{}, 17, broken), 1},
		{judge(RunOptions{NoTimestamps: true}, 17, broken), 1},
		{judge(RunOptions{}, 17, RunTally{Scheme: "jet", Connections: 2000, Completed: 1999, Survived: 1, Broken: 1}), 1},
		{judge(RunOptions{}, 17, RunTally{Scheme: "full-ct", Connections: 2000, Completed: 1999, Survived: 1, Broken: 1}), 0},
		{judge(RunOptions{}, 17, harmless), 1},
		{judge(RunOptions{}, 17, RunTally{Scheme: "beamer", Connections: 2000, Completed: 2000, Survived: 9, Resets: 1}), 1},
		{judge(RunOptions{}, 17, RunTally{Scheme: "beamer", Connections: 2000, Completed: 2000, Survived: 9, LateResets: 1}), 1},
		{judge(RunOptions{}, 17, RunTally{Scheme: "jet", Connections: 2000, Completed: 2000, Survived: 9, LateResets: 1}), 0},
		{judge(RunOptions{}, 17, RunTally{Scheme: "faild", Connections: 2000, Completed: 2000}), 1},
		{judge(RunOptions{}, 17, RunTally{Scheme: "cheetah", Connections: 1999, Completed: 1999, Survived: 1}), 1},
		{judge(RunOptions{}, 17, RunTally{Scheme: "cheetah", Connections: 2000, Completed: 1999, Survived: 1}), 1},
		{scaling(5), 0}, {scaling(0), 1},
	} {
		if c.got != c.want {
			t.Errorf("case %d: %d complaints, want %d", i, c.got, c.want)
		}
	}
}

// TestLost: a connection without an answer belongs to a crashed server only
// if it was last heard of just before the crash.
func TestLost(t *testing.T) {
	listener := listen(t)
	t.Cleanup(func() { listener.Close() })
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	now := time.Now()
	crash := func(at time.Duration) outage { return outage{from: now.Add(at), to: now.Add(at)} }
	timeout := fmt.Errorf("await answer: %w", os.ErrDeadlineExceeded)
	for i, c := range []struct {
		server string
		err    error
		crash  outage
		want   bool
	}{
		{"", timeout, crash(500 * time.Millisecond), true},
		{"", timeout, crash(5 * time.Second), false},
		{"", timeout, crash(-5 * time.Second), false},
		{"", syscall.ECONNRESET, crash(500 * time.Millisecond), false},
		{"s1", syscall.ECONNRESET, crash(-5 * time.Second), true},
		{"s2", timeout, crash(500 * time.Millisecond), false},
	} {
		l := &load{outages: map[string][]outage{"s1": {c.crash}}}
		if got := l.lost(&connection{Conn: conn, server: c.server}, c.err); got != c.want {
			t.Errorf("case %d: %v, want %v", i, got, c.want)
		}
	}
}

// TestParts: faild has a lab of its own, drains one for each number, and a
// scenario knows its schemes.
func TestParts(t *testing.T) {
	labs := func(o RunOptions) (labs [][]string) {
		if err := o.fill(); err != nil {
			t.Fatal(err)
		}
		for _, p := range scenarios()[o.Scenario].parts(o) {
			var names []string
			for _, r := range p.runs {
				names = append(names, r.Name())
			}
			labs = append(labs, names)
		}
		return labs
	}
	for _, c := range []struct {
		o    RunOptions
		want [][]string
	}{
		{RunOptions{Scenario: "churn", Schemes: []string{"faild", "beamer", "stateless"}, IPv4: true},
			[][]string{{"beamer-ipip-ipv4", "beamer-gue-ipv4", "stateless-table-hrw-ipv4"}, {"faild-ipv4"}}},
		{RunOptions{Scenario: "chain", IPv6: true, Forwarding: "gue"}, [][]string{{"beamer-gue-ipv6"}, {"faild-ipv6"}}},
		{RunOptions{Scenario: "drain-switch", IPv4: true}, [][]string{{"faild-ipv4", "ecmp-ipv4", "resilient-ipv4"}}},
		{RunOptions{Scenario: "synflood", Schemes: []string{"beamer"}, IPv4: true, Forwarding: "ipip", Drained: []int{0, 4}}, [][]string{
			{"beamer-ipip-ipv4-drained-0"}, {"beamer-ipip-ipv4-drained-4"}}},
		{RunOptions{Scenario: "synflood", Schemes: []string{"beamer"}, IPv4: true, Forwarding: "ipip"}, [][]string{
			{"beamer-ipip-ipv4-drained-0", "full-ct-table-hrw-ipv4-drained-0"}, {"beamer-ipip-ipv4-drained-1", "full-ct-table-hrw-ipv4-drained-1"},
			{"beamer-ipip-ipv4-drained-2", "full-ct-table-hrw-ipv4-drained-2"}, {"beamer-ipip-ipv4-drained-4", "full-ct-table-hrw-ipv4-drained-4"}}},
	} {
		if got := labs(c.o); !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%+v: %v, want %v", c.o, got, c.want)
		}
	}
	for _, o := range []RunOptions{
		{Scenario: "chain", Schemes: []string{"jet"}},
		{Scenario: "drain-switch", Schemes: []string{"beamer"}},
		{Scenario: "churn", Schemes: []string{"beamer"}, Forwarding: "l2"},
		{Scenario: "churn", Drained: []int{1}},
		{Scenario: "synflood", Schemes: []string{"beamer"}, Drained: []int{8}},
		{Scenario: "synflood", Schemes: []string{"faild", "beamer"}},
	} {
		if err := o.fill(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestCalm: whatever the seed, no more changes force a bucket within a
// connection's life than a chain is long.
func TestCalm(t *testing.T) {
	for _, scheme := range []string{"beamer", "faild"} {
		for seed := range uint64(20) {
			c := &churn{calm: 7, random: sim.Stream(seed, "churn"), lab: &Lab{Options: Options{LBs: churnLBs, Servers: churnServers, VIPs: []VIP{{Scheme: scheme, Policy: "hash"}}}}}
			steps, err := c.arrange(c.steps())
			if err != nil {
				t.Fatal(err)
			}
			if !fits(steps) || len(steps) < minChanges {
				t.Errorf("%s, seed %d: %d steps that do not fit", scheme, seed, len(steps))
			}
			for i := range steps {
				forced := 0
				for _, s := range steps[i:min(i+7, len(steps))] {
					if s.forces {
						forced++
					}
				}
				if forced > 3 {
					t.Errorf("%s, seed %d: %d changes force buckets from the %dth on", scheme, seed, forced, i+1)
				}
			}
		}
	}
}
