package announced

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/built"
)

// The scenario with BIRD, which is judged as `lab run bgp` is: whole daemons, of which
// one stops and one is killed, under connections.
func TestBIRD(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	r, err := Run(t.Context(), Options{Routers: []string{"bird"}, Connections: 16, Seed: 1, Program: built.Fairlead(t),
		Watch: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Verdict) > 0 {
		t.Error(strings.Join(r.Verdict, "\n"))
	}
	if run := r.Runs[0]; len(run.Steps) != 5 || run.Answers < 16 {
		t.Errorf("%+v", run)
	}
}

func TestRefused(t *testing.T) {
	for want, o := range map[string]Options{"--router quagga: must be bird or frr": {Routers: []string{"quagga"}}, "--connections 5000": {Connections: 5000}} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
