package config

import (
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	cfg, err := Parse("fairlead.yaml", []byte(`
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers:
  - {name: lb1, interfaces: [eth0], metrics: "127.0.0.1:9000"}
  - {name: lb2, interfaces: [eth0]}
servers:
  - {name: s1, address: 10.0.0.21, interfaces: [eth0]}
  - {name: s2, address: 10.0.0.22, interfaces: [eth0]}
vips:
  - {name: web, address: 192.0.2.10, port: 80, servers: [s1, s2], health: {type: tcp}}
controllers: [{name: c1}]
`))
	if err != nil {
		t.Fatal(err)
	}
	me, err := cfg.Find(RoleBalancer, "lb1")
	if err != nil || me.Name != "lb1" || me.Metrics != "127.0.0.1:9000" || me.API != "unix:/run/fairlead/lb1.sock" {
		t.Fatalf("lb1: %+v, %v", me, err)
	}
	if me, err = cfg.Find(RoleHost, "s2"); err != nil || me.Server.Address.String() != "10.0.0.22" {
		t.Fatalf("s2: %+v, %v", me, err)
	}
	// The machine that runs the tests is called none of these.
	for name, want := range map[string]string{"": "--name", "lb3": "lb1, lb2"} {
		if _, err := cfg.Find(RoleBalancer, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("name %q: error %v lacks %q", name, err, want)
		}
	}
	cfg.Balancers = cfg.Balancers[:1]
	if me, err := cfg.Find(RoleBalancer, ""); err != nil || me.Name != "lb1" {
		t.Fatalf("the only balancer: %+v, %v", me, err)
	}
}
