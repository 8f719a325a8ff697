package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const layer2 = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
%store
balancers:
- {name: lb1, interfaces: [eth0, eth1], %l2}
- {name: lb2, interfaces: [eth0]%more}
servers: [{name: s1, address: 10.0.1.1}]
vips:
- {name: web, address: 192.0.2.1, port: 80, servers: [s1]%vip}
`

// Who may hold addresses, and what is refused.
func TestL2(t *testing.T) {
	const stored = "controllers: [{name: c1}]"
	for what, c := range map[string]struct{ store, l2, more, vip, wrong string }{
		"its interfaces":       {stored, "l2: {}", "", "", ""},
		"others":               {stored, "l2: {interfaces: [eth2]}", "", ", announce: always", ""},
		"BGP as well":          {stored + "\nbgp: {local_as: 65001}", "l2: {}", ", bgp: {router_id: 10.0.0.2, neighbours: [{address: 10.0.0.254, as: 65000}]}", "", "balancers[0].l2: there is balancers[1].bgp as well"},
		"no name":              {stored, "l2: {interfaces: [eth/0]}", "", "", "balancers[0].l2.interfaces[0]: eth/0"},
		"twice":                {stored, "l2: {interfaces: [eth2, eth2]}", "", "", "balancers[0].l2.interfaces[1]: eth2: named twice"},
		"none":                 {stored, "l2: {interfaces: []}", "", "", "balancers[0].l2.interfaces: missing"},
		"of a route":           {stored, "l2: {}", "", ", med: 5", "vips[0].med: 5: no balancer and no switch has bgp"},
		"nobody has either":    {stored, "metrics: ''", "", ", announce: never", "vips[0].announce: never: no balancer and no switch has bgp or l2"},
		"a key that is unknow": {stored, "l2: {interface: eth0}", "", "", "interfaces"},
	} {
		text := strings.NewReplacer("%store", c.store, "%l2", c.l2, "%more", c.more, "%vip", c.vip).Replace(layer2)
		file := filepath.Join(t.TempDir(), "fairlead.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(file)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %s", what, err, c.wrong)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", what, err)
			continue
		}
		want := []string{"eth0", "eth1"}
		if what == "others" {
			want = []string{"eth2"}
		}
		self, _ := cfg.Find(RoleBalancer, "lb1")
		if is := self.Layer2(); is == nil || !slices.Equal(is.Interfaces, want) {
			t.Errorf("%s: %+v", what, is)
		}
		if other, _ := cfg.Find(RoleBalancer, "lb2"); other.Layer2() != nil {
			t.Errorf("%s: lb2 has %+v", what, other.Layer2())
		}
	}
}
