package lab

import (
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/soak"
)

// A VIP comes to cookies and goes back to none, and no connection breaks.
func TestMigrateScheme(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	o := RunOptions{Scenario: "migrate-scheme", Seed: 1, IPv4: true, Program: built.Fairlead(t),
		Scale: Scale{Connections: 250, Slot: 5 * time.Second, Steps: []string{"to cheetah", "reshuffle", "to jet"}}}
	if soak.On() {
		o = RunOptions{Scenario: "migrate-scheme", Seed: soak.Seed(t), Program: o.Program}
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range r.Verdict {
		t.Error(wrong)
	}
	if anew := r.Runs[1]; !anew.Anew || anew.Broken == 0 {
		t.Errorf("%+v: no connection broken where the VIP was made anew", anew)
	}
	t.Logf("%+v, failures %+v", r.Runs, r.Failures)
}
