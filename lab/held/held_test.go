package held

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/soak"
)

// The scenario, judged as `lab run l2-vip` is; in a soak with both schemes, and others
// than the fixed seed.
func TestHeld(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	o := Options{Schemes: []string{"cheetah"}, Connections: 16, Brief: true, Seed: soak.Seed(t), Program: built.Fairlead(t), Watch: func(text string) { t.Log(text) }}
	if soak.On() {
		o.Schemes, o.Brief = nil, false
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Verdict) > 0 {
		t.Error(strings.Join(r.Verdict, "\n"))
	}
	for _, run := range r.Runs {
		if run.Answers < 16 {
			t.Errorf("%+v", run)
		}
	}
}

func TestRefused(t *testing.T) {
	for want, o := range map[string]Options{"--scheme faild: must be": {Schemes: []string{"faild"}}, "--connections 5000": {Connections: 5000}} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
