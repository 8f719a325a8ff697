package announced

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/lab"
)

// The scenario with BIRD, which is judged as `lab run bgp` is: whole daemons, of which
// one stops and one is killed, under connections.
func TestBIRD(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	for scheme, steps := range map[string]int{"cheetah": 9, "faild": 8} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), Options{Name: fmt.Sprint("announced", os.Getpid(), scheme[:1]), Scheme: scheme, Routers: []string{"bird"}, Connections: 16, Seed: 1,
				Program: built.Fairlead(t), Watch: func(text string) { t.Log(text) }})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Verdict) > 0 {
				t.Error(strings.Join(r.Verdict, "\n"))
			}
			if run := r.Runs[0]; len(run.Steps) != steps || run.Answers < 16 {
				t.Errorf("%+v", run)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for want, o := range map[string]Options{"--router quagga: must be bird or frr": {Routers: []string{"quagga"}}, "--connections 5000": {Connections: 5000},
		"--scheme jet: must be cheetah or faild": {Scheme: "jet"}} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

// A switch announces as a balancer does, and one that drains withdraws.
func TestSwitches(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	name := fmt.Sprint("announced", os.Getpid(), "s")
	v := web
	v.Scheme, v.Policy = "faild", "hash"
	l, err := lab.Up(t.Context(), lab.Options{Name: name, Servers: 2, LBs: 2, BGP: true, Scheme: "faild", Program: built.Fairlead(t), VIPs: []lab.VIP{v}}, true)
	if err != nil {
		t.Fatal(err)
	}
	r := router{lab: l, name: "bird"}
	t.Cleanup(func() {
		if err := errors.Join(r.close(), lab.Down(name)); err != nil {
			t.Error(err)
		}
	})
	if _, err := r.start(); err != nil {
		t.Fatal(err)
	}
	until := func(hops ...string) {
		t.Helper()
		if _, err := r.until(t.Context(), hops...); err != nil {
			t.Fatal(err)
		}
	}
	until(both...)
	client, err := api.Dial("unix:"+filepath.Join(l.Dir(), "switch1.sock"), config.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	for _, undrain := range []bool{false, true} {
		began := time.Now()
		if _, err := client.DrainSwitch(t.Context(), connect.NewRequest(&fairleadv1.DrainSwitchRequest{Undrain: undrain})); err != nil {
			t.Fatal(err)
		}
		if undrain {
			until(both...)
		} else {
			until(lb2)
		}
		if took := time.Since(began); took > Within {
			t.Errorf("undrain %t: the router's kernel has it after %v, must be within %v", undrain, took, Within)
		}
	}
}
