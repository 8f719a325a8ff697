package lab

import (
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/soak"
)

// A balancer of tier two drains, is back and another dies, and no connection does.
func TestTwoTier(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	o := RunOptions{Scenario: "two-tier", Seed: 1, Schemes: []string{"cheetah-stateful"}, IPv4: true, Program: built.Fairlead(t),
		Scale: Scale{Connections: 250, Slot: time.Second, Steps: []string{"tier two drains", "tier two is back", "tier two dies"}}}
	if soak.On() {
		o = RunOptions{Scenario: "two-tier", Seed: soak.Seed(t), Program: o.Program}
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range r.Verdict {
		t.Error(wrong)
	}
	t.Logf("%+v, tiers %v, failures %+v", r.Runs, r.Tiers, r.Failures)
}
