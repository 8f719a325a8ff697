package api

import (
	"context"
	"strings"
	"testing"
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
	if _, err := c.Apply(ctx, Options{}); err == nil || !strings.Contains(err.Error(), "--without s3") {
		t.Fatalf("without --without: %v", err)
	}
	ch, err := c.Apply(ctx, Options{Without: []string{"s3"}})
	if err != nil || ch.To != 3 || f.versions() != "s1=3 s2=3 lb1=3" || f.wrong != nil {
		t.Errorf("%+v %v %s %v", ch, err, f.versions(), f.wrong)
	}
	if _, err = c.Apply(ctx, Options{Without: []string{"s3"}}); err == nil || !strings.Contains(err.Error(), "without s3: neither") || !strings.Contains(err.Error(), "if it has left, leave it out") {
		t.Errorf("of one that nobody knows any more: %v", err)
	}
}
