package rollout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
)

const withSwitch = `
balancers: [{name: lb1, interfaces: [eth0]}]
switches: [{name: sw1}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}]
vips:
- {name: web, address: 192.0.2.1, port: 80, scheme: jet, servers: [s1, s2]}
`

// TestSwitchesLast: a switch gets a version when agents and balancers have it, where
// agents may not stay at the one before.
func TestSwitchesLast(t *testing.T) {
	f := newFleet(t, withSwitch)
	f.load(t, strings.Replace(withSwitch, "scheme: jet", "scheme: jet, forwarding: gue", 1))
	if _, err := f.coordinator().Apply(context.Background(), f.text, Options{}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(f.order[:2]) // at the same time
	if want := []string{"s1 2", "s2 2", "lb1 2", "sw1 2"}; !slices.Equal(f.order, want) || f.wrong != nil {
		t.Errorf("order %q, want %q; %v", f.order, want, f.wrong)
	}
}

// TestSwitchAway: a switch has none of the balancers' VIPs, so that what
// changes there does not wait for it; --without may name it.
func TestSwitchAway(t *testing.T) {
	f := newFleet(t, withSwitch)
	f.away("sw1", errors.New("powered off"))
	// Not mixable with the version before, for who forwards the VIP.
	f.load(t, strings.Replace(withSwitch, "servers: [s1, s2]", "hash: anchor, servers: [s1, s2]", 1))
	ch, err := f.coordinator().Apply(context.Background(), f.text, Options{Force: true})
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

const beamer = `
balancers: [{name: lb1, interfaces: [eth0], source: 10.0.2.1}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}]
vips:
- {name: web, address: 192.0.2.1, port: 80, scheme: beamer, buckets: 12, servers: [s1, s2]}
`

// TestOwned: agents of VIPs with buckets are asked what they own, by their own
// clock's ages; one that says what cannot be counts as silent.
func TestOwned(t *testing.T) {
	f := newFleet(t, beamer)
	f.get("s1").serving = []*fairleadv1.ServingVIP{{VipId: 1, Slot: 0, Connections: 3, Buckets: 12, Owned: []byte{5, 0}, AgeMs: 60_000, Generation: 1}}
	f.get("s2").serving = []*fairleadv1.ServingVIP{{VipId: 1, Slot: 1, Buckets: 12, Owned: []byte{5}}}
	before := time.Now()
	v, err := f.coordinator().Look(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := v.Live.Owned[controller.LiveKey{VIP: 1, Server: "s1"}]
	if age := before.Sub(got.At); got.Connections != 3 || got.Buckets != 12 || string(got.Bitmap) != "\x05\x00" || got.Generation != 1 || age < 59*time.Second || age > 61*time.Second {
		t.Errorf("s1 owns %+v", got)
	}
	if why := v.Live.Silent["s2"]; why != "says which of 12 buckets it owns in 1 bytes" || len(v.Live.Owned) != 1 {
		t.Errorf("s2: %q, owned %v", why, v.Live.Owned)
	}
	// A deployment without buckets is not asked.
	f = newFleet(t, twoOfEach)
	if _, err := f.coordinator().Look(context.Background(), nil); err != nil || f.get("s1").asked != 0 {
		t.Errorf("asked %d times, %v", f.get("s1").asked, err)
	}
}

// TestDrainOfOwners: a drain moves buckets at once; the server is removed when
// it owns nothing any more.
func TestDrainOfOwners(t *testing.T) {
	f := newFleet(t, beamer)
	c, ctx := f.coordinator(), context.Background()
	f.get("s1").serving = []*fairleadv1.ServingVIP{{VipId: 1, Slot: 0, Connections: 2, Buckets: 12, Owned: []byte{0xff, 0xf}, Generation: 1}}
	f.get("s2").serving = []*fairleadv1.ServingVIP{{VipId: 1, Slot: 1, Buckets: 12, Owned: []byte{0, 0}, Generation: 1}}
	ch, err := c.Do(ctx, Options{}, op(controller.Drain, "s1"))
	if err != nil || f.wrong != nil {
		t.Fatalf("%v, %v", err, f.wrong)
	}
	table := ch.Steps[len(ch.Steps)-1].VIPs[0].Buckets
	for b := range table.Current {
		if table.Current[b] != 1 {
			t.Fatalf("bucket %d is still of slot %d", b, table.Current[b])
		}
	}
	if _, err := c.Do(ctx, Options{}, op(controller.Remove, "s1")); err == nil || !strings.Contains(err.Error(), "2 connections are live") {
		t.Errorf("removed with connections: %v", err)
	}
}
