package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// What a VIP says of its route changes in place, says so, and is in what daemons get;
// a VIP that says nothing is encoded as before there was anything to say.
func TestAnnounceChanges(t *testing.T) {
	const file = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
bgp: {local_as: 65001}
balancers: [{name: lb1, interfaces: [eth0], bgp: {router_id: 10.0.0.1, neighbours: [{address: 10.0.0.254, as: 65000}]}}]
servers: [{name: s1, address: 10.0.1.1}]
vips:
- {name: web, address: 192.0.2.1, port: 80, servers: [s1], announce: healthy}
`
	read := func(text string) *config.Config {
		t.Helper()
		cfg, err := config.Parse("fairlead.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	first, err := First(read(file))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(first.Encode()); strings.Contains(text, "announce") || strings.Contains(text, "communities") || strings.Contains(text, `"med"`) {
		t.Errorf("encoded: %s", text)
	}
	next := read(strings.Replace(file, "announce: healthy", `announce: never, communities: ["65001:1"], med: 7`, 1))
	versions, changes, err := Plan(next, first, LiveCounts{}, time.Now(), false)
	if err != nil || len(versions) != 1 {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	for _, want := range []string{"vip web: announce never, was healthy", "vip web: communities [65001:1], was []", "vip web: med 7, was 0"} {
		if !slices.ContainsFunc(changes, func(c string) bool { return strings.Contains(c, want) }) {
			t.Errorf("plan lacks %q: %q", want, changes)
		}
	}
	got, err := Decode(versions[0].Encode())
	if err != nil {
		t.Fatal(err)
	}
	if v := got.VIPs[0]; v.ID != first.VIPs[0].ID || v.Announces() != vip.AnnounceNever || !slices.Equal(v.Communities, []string{"65001:1"}) || v.MED != 7 {
		t.Errorf("decoded: %+v", v.Settings)
	}
}
