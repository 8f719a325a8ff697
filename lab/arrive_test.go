package lab

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netspace"
)

// retry is how often balancers ask servers of a VIP that came.
const retry = 2 * time.Second

// TestBalancersCome puts balancers before servers that run, and have connections which a
// router has spread over them. None breaks when packets go by the balancers, but, without
// cookies, of those that were opened a moment before.
//
//	client ─ router ─┬─ server1 ─┐          client ─ router ─┬─ lb1 ─┬─▶ server1, 2, 3
//	                 ├─ server2  ├─▶                         └─ lb2 ─┘
//	                 └─ server3 ─┘
func TestBalancersCome(t *testing.T) {
	for _, scheme := range []string{"cheetah", "jet"} {
		t.Run(scheme, func(t *testing.T) {
			o := Options{Name: fmt.Sprint("come", os.Getpid(), scheme), Plain: true, Servers: 3, LBs: 2, Scheme: scheme, Program: testProgram(t)}
			l, err := Up(t.Context(), o, false)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = Down(o.Name) })
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(l.routeBy([]string{serverAddress4(1), serverAddress4(2), serverAddress4(3)},
				[]string{serverAddress6(1), serverAddress6(2), serverAddress6(3)}, 7))
			plan := LoadPlan{Seed: 1, Seconds: 30, Short: 400, Stream: 40, Upload: 20, Idle: 80, Hold: true,
				Targets: []Target{{"web", "10.77.7.1:80"}, {"web6", "[fd77:7::1]:80"}}}
			load, err := l.startLoad(t.Context(), plan)
			must(err)
			// A third of the plan is over, so that some have lived long.
			if !netspace.WaitFor(time.Minute, func() bool {
				now := load.report()
				return now.Tallies["web"].Started >= 180 && now.Tallies["web6"].Started >= 180
			}) {
				t.Fatalf("few connections: %+v", load.report().Tallies)
			}
			must(load.tell(LoadNotice{Begins: true}))
			l.Plain = false
			must(l.comes(t.Context()))
			must(load.tell(LoadNotice{Made: true}))
			must(load.tell(LoadNotice{Over: true}))
			last, err := load.wait()
			must(err)
			young := map[string]int{}
			for _, f := range last.Failures {
				// Where no cookie says it, what was opened by the way before since balancers
				// asked last is known to nobody (docs/migration.md).
				if scheme == "jet" && f.Age < 2*retry.Seconds() {
					young[f.Target]++
					t.Logf("opened a moment before: %+v", f)
					continue
				}
				t.Errorf("%+v", f)
			}
			for name, n := range last.Tallies {
				if n.Broken != young[name] || n.Broken > 5 || n.Completed+n.Broken != n.Started || n.Survived < 20 {
					t.Errorf("%s: %+v", name, n)
				}
			}
			t.Logf("%+v", last.Tallies)
		})
	}
}
