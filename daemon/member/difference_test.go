package member

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

// TestMigrationIsNoDifference: a VIP that migrates for long is what the file wants; a
// weight is not.
func TestMigrationIsNoDifference(t *testing.T) {
	const file = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb1, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.0.2, interfaces: [eth0]}]
vips: [{name: web, address: 192.0.2.1, port: 80, scheme: jet, servers: [s1]}]
`
	parse := func(text string) *config.Config {
		t.Helper()
		cfg, err := config.Parse("fairlead.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	a, err := controller.First(parse(file))
	if err != nil {
		t.Fatal(err)
	}
	to := strings.Replace(file, "scheme: jet", "scheme: cheetah, policy: wrr", 1)
	begun := time.Now().Add(-time.Hour)
	steps, _, err := controller.Plan(parse(to), a, controller.LiveCounts{}, begun, true)
	if err != nil || len(steps) == 0 {
		t.Fatal(steps, err)
	}
	last := steps[len(steps)-1]
	if !last.Migrating() {
		t.Fatalf("%+v", last.VIPs[0])
	}
	if text := (&settings{cfg: parse(to), from: "the file"}).difference(last); text != "" {
		t.Error(text)
	}
	other := strings.Replace(to, "servers: [s1]}]", "servers: [{name: s1, weight: 5}]}]", 1)
	if text := (&settings{cfg: parse(other), from: "the file"}).difference(last); !strings.Contains(text, "the file differs") {
		t.Errorf("%q", text)
	}
}
