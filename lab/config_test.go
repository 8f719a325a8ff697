package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
)

// TestConfigIsValid holds the lab's fairlead.yaml to the checks that every
// other has to pass, in each form that the flags allow.
func TestConfigIsValid(t *testing.T) {
	for _, o := range []Options{
		{},
		{Servers: 5, LBs: 3, ActiveServers: 4, ActiveLBs: 2, IPv6: true, Forwarding: "gue", Mixed: true},
		{Scheme: "stateless", Forwarding: "l2"},
		{Scheme: "jet"}, {Scheme: "jet", Hash: "anchor", Standby: 2, WarmUp: time.Minute}, {Scheme: "full-ct", Hash: "maglev", Flows: 7000},
		{Hash: "dx", Standby: 1}, {BGP: true},
		{Policy: "p2c"}, {Policy: "least-conn"}, {Policy: "wrr"}, {Policy: "hash"},
	} {
		if err := o.fill(); err != nil {
			t.Fatal(err)
		}
		l := &Lab{Options: o}
		path := filepath.Join(t.TempDir(), "fairlead.yaml")
		if err := os.WriteFile(path, []byte(l.config(strings.Repeat("0a1b2c3d", 8))), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		if len(c.Servers) != o.Servers || len(c.Balancers) != o.LBs || len(c.VIPs[0].Servers) != o.ActiveServers+o.Standby {
			t.Errorf("%+v: %d servers, %d balancers, %d in the pool", o, len(c.Servers), len(c.Balancers), len(c.VIPs[0].Servers))
		}
	}
}

// TestOptionsRefused: what cannot work is refused before anything is built,
// and the flag is named.
func TestOptionsRefused(t *testing.T) {
	for flag, o := range map[string]Options{
		"--scheme":     {Scheme: "nope"},
		"--policy":     {Scheme: "jet", Policy: "rr"},
		"--hash":       {Scheme: "jet", Hash: "maglev"},
		"--hash nope":  {Hash: "nope"},
		"--forwarding": {Forwarding: "nat"},
		"standby":      {Servers: MaxServers, Standby: 1},
	} {
		if err := o.fill(); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, ""), flag) {
			t.Errorf("%+v: %v, want %s", o, err, flag)
		}
	}
}
