package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/controller"
)

const withSwitch = `
balancers: [{name: lb1, interfaces: [eth0]}]
switches: [{name: sw1}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}]
vips:
- {name: web, address: 192.0.2.1, port: 80, scheme: jet, servers: [s1, s2]}
`

// TestSwitchesLast: a switch gets a version when agents and balancers have it.
func TestSwitchesLast(t *testing.T) {
	f := newFleet(t, withSwitch)
	if _, err := f.coordinator().Do(context.Background(), Options{}, op(controller.Drain, "s1")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"s1 2", "s2 2", "lb1 2", "sw1 2"}; !slices.Equal(f.order, want) || f.wrong != nil {
		t.Errorf("order %q, want %q; %v", f.order, want, f.wrong)
	}
}

// TestSwitchAway: a switch has none of the balancers' VIPs, so that what
// changes there does not wait for it; --without may name it.
func TestSwitchAway(t *testing.T) {
	f := newFleet(t, withSwitch)
	f.get("sw1").away = errors.New("powered off")
	// Not mixable with the version before, for who forwards the VIP.
	f.load(t, strings.Replace(withSwitch, "servers: [s1, s2]", "hash: anchor, servers: [s1, s2]", 1))
	ch, err := f.coordinator().Apply(context.Background(), Options{Force: true})
	if err != nil || len(ch.Silent) != 1 || ch.Silent[0].Kind != Switch {
		t.Fatalf("%+v %v", ch, err)
	}
	if ch, err = f.coordinator().Do(context.Background(), Options{Without: []string{"sw1"}}, op(controller.Drain, "s1")); err != nil || len(ch.Silent) != 0 {
		t.Errorf("without sw1: %+v %v", ch, err)
	}
	// The same steps, as a balancer and as a switch that lag would see them.
	base, last := ch.view.Base, ch.Steps[len(ch.Steps)-1]
	for kind, vips := range map[Kind]int{Balancer: 1, Switch: 0, Host: 1} {
		if d := (&Daemon{Kind: kind}); len(d.concern(base).VIPs) != vips || len(d.concern(last).VIPs) != vips {
			t.Errorf("kind %d has %d VIPs to go by, want %d", kind, len(d.concern(base).VIPs), vips)
		}
	}
}
