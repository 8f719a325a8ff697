package member_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout"
)

// TestPeersOfTheStore: who the peers are comes from the store. A balancer that an apply
// brings is a peer of those that run, which reach it and are reached, and nothing of it
// stays when another apply takes it out: no status, no change that waits for it.
func TestPeersOfTheStore(t *testing.T) {
	t.Parallel()
	d := stored(t)
	ownFile(t, d, "lb3")
	serves := d.Begin(d.Role(config.RoleBalancer, "lb3"), "lb3")
	before := d.Text()
	lb3 := fmt.Sprintf("  - {name: lb3, interfaces: [eth0], api: \"unix:%s/lb3.sock\", metrics: \"\"}\nservers:\n", d.Dir)
	with := []byte(strings.Replace(string(before), "servers:\n", lb3, 1))
	c := d.Coordinator()
	if _, err := c.Apply(t.Context(), with, rollout.Options{}); err != nil {
		t.Fatal(err)
	}
	was := d.Config
	var err error
	if d.Config, err = was.Desired(was.File(), with); err != nil {
		t.Fatal(err)
	}
	serves()
	reaches := func(name, peer string) bool {
		for _, p := range d.Status(name).Peers {
			if p.Name == peer {
				return p.Reachable && p.AssignmentVersion == d.Status(name).AssignmentVersion
			}
		}
		return false
	}
	for _, pair := range [][2]string{{"lb1", "lb3"}, {"lb2", "lb3"}, {"s1", "lb3"}, {"lb3", "lb1"}, {"lb3", "s2"}} {
		d.Eventually(pair[0]+" reaches "+pair[1], func() bool { return reaches(pair[0], pair[1]) })
	}
	// It stops first, as a machine does that is taken away: it is missed.
	d.Stops["lb3"]()
	d.Eventually("lb1 misses lb3", func() bool { return !reaches("lb1", "lb3") })
	ch, err := c.Apply(t.Context(), before, rollout.Options{})
	if err != nil || len(ch.Silent) > 0 {
		t.Fatalf("%+v, %v", ch, err)
	}
	d.Config = was
	for _, name := range everybody {
		d.Eventually(name+" has forgotten lb3", func() bool { return !strings.Contains(peersOf(d, name), "lb3") })
		if w := strings.Join(d.Status(name).Warnings, "\n"); strings.Contains(w, "lb3") {
			t.Errorf("%s: %s", name, w)
		}
	}
	if ch, err = c.Do(t.Context(), rollout.Options{}, controller.Op{Kind: controller.Drain, VIP: "web", Server: "s1"}); err != nil || len(ch.Silent) > 0 {
		t.Errorf("%+v, %v", ch, err)
	}
}
