package rollout

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

// TestWithoutOneThatLeaves: --without names a machine that leaves with the
// first version of a change of several parts.
func TestWithoutOneThatLeaves(t *testing.T) {
	const balancers = "balancers: [{name: lb1, interfaces: [eth0]}]\n"
	const servers = "servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}"
	const web = "]\nvips:\n- {name: web, address: 192.0.2.1, port: 80, servers: [s1, s2"
	ctx := context.Background()
	f := newFleet(t, balancers+servers+", {name: s3, address: 10.0.1.3}"+web+", {name: s3, standby: true}]}\n"+
		"- {name: old, address: 192.0.2.2, port: 80, servers: [s1]}\n")
	delete(f.daemons, f.cfg.Servers[2].API)
	f.load(t, balancers+servers+web+"]}\n")
	c := f.coordinator()
	if _, err := c.Apply(ctx, f.text, Options{}); err == nil || !strings.Contains(err.Error(), "--without s3") {
		t.Fatalf("without --without: %v", err)
	}
	ch, err := c.Apply(ctx, f.text, Options{Without: []string{"s3"}})
	if err != nil || ch.To != 3 || f.versions() != "s1=3 s2=3 lb1=3" || f.wrong != nil {
		t.Errorf("%+v %v %s %v", ch, err, f.versions(), f.wrong)
	}
	if _, err = c.Apply(ctx, f.text, Options{Without: []string{"s3"}}); err == nil || !strings.Contains(err.Error(), "without s3: neither") || !strings.Contains(err.Error(), "if it has left, leave it out") {
		t.Errorf("of one that nobody knows any more: %v", err)
	}
}

// TestStandbyWithoutAgent: a standby whose agent was never there says what to
// do, and its agent can be taken back.
func TestStandbyWithoutAgent(t *testing.T) {
	ctx := context.Background()
	f := newFleet(t, strings.Replace(twoOfEach, "policy: wrr", "scheme: jet", 1))
	c := f.coordinator()
	add := op(controller.Add, "s4")
	add.Standby = true
	ch, err := c.Do(ctx, Options{}, add)
	if err != nil || !slices.ContainsFunc(ch.Notes, func(n string) bool { return strings.HasPrefix(n, "s4 is new and its agent does not answer: start") }) {
		t.Fatalf("%+v %v", ch, err)
	}
	if _, err = c.Do(ctx, Options{}, op(controller.Undrain, "s4")); err == nil || !strings.Contains(err.Error(), "s4 does not answer") {
		t.Errorf("set to work: %v", err)
	}
	add.API = config.NoAgent
	if ch, err = c.Do(ctx, Options{}, add); err != nil || len(ch.Lines) != 1 || !strings.Contains(ch.Lines[0], "api none, was") {
		t.Fatalf("%+v %v", ch, err)
	}
	if ch, err = c.Do(ctx, Options{}, op(controller.Undrain, "s4")); err != nil || len(ch.Silent) != 0 || f.wrong != nil {
		t.Errorf("set to work without an agent: %+v %v %v", ch, err, f.wrong)
	}
}
