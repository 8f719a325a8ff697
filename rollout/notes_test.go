package rollout

import (
	"context"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/controller"
)

// TestNotes: a verb says that nobody is left to take new connections, and that the
// configuration cannot say what was forced.
func TestNotes(t *testing.T) {
	f := newFleet(t, `
balancers: [{name: lb1, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}, {name: s3, address: 10.0.1.3}]
vips: [{name: web, address: 192.0.2.1, port: 80, policy: hash, scheme: jet, servers: [s1, s2, {name: s3, standby: true}]}]
`)
	c := f.coordinator()
	if _, err := c.Apply(t.Context(), f.text, Options{}); err != nil {
		t.Fatal(err)
	}
	const nobody = "VIP web: no server takes new connections now; "
	for _, step := range []struct {
		kind   controller.Kind
		server string
		notes  []string
	}{
		{controller.Drain, "s1", nil},
		{controller.Drain, "s2", []string{nobody + "undrain one"}},
		{controller.Drain, "s2", nil}, // nothing to do
		{controller.Undrain, "s1", nil},
		{controller.Undrain, "s2", nil},
		{controller.Undrain, "s3", nil},
		{controller.Remove, "s1", nil},
		{controller.Remove, "s2", nil},
		{controller.Remove, "s3", []string{nobody + "add one", "the configuration cannot say this (vips[0].servers: an empty pool: nobody would answer)"}},
	} {
		ch, err := c.Do(t.Context(), Options{Force: true}, op(step.kind, step.server))
		if err != nil {
			t.Fatalf("%s %s: %v", step.kind, step.server, err)
		}
		if len(ch.Notes) != len(step.notes) {
			t.Errorf("%s %s: notes %q, want %q", step.kind, step.server, ch.Notes, step.notes)
			continue
		}
		for i, want := range step.notes {
			if !strings.Contains(ch.Notes[i], want) {
				t.Errorf("%s %s: notes %q, want %q", step.kind, step.server, ch.Notes, step.notes)
			}
		}
	}
}

// Of scheme faild the note says what happens: a switch cannot refuse new
// connections.
func TestNotesFaild(t *testing.T) {
	f := newFleet(t, `
switches: [{name: sw1}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}]
vips: [{name: web, address: 192.0.2.1, port: 80, scheme: faild, servers: [s1, s2]}]
`)
	for _, server := range []string{"s1", "s2"} {
		ch, err := f.coordinator().Do(context.Background(), Options{Force: server == "s2"}, op(controller.Drain, server)) // it is the last
		if err != nil {
			t.Fatalf("drain %s: %v", server, err)
		}
		got := strings.Join(ch.Notes, "\n")
		if says := strings.Contains(got, "VIP web: all its servers drain, and go on taking new connections all the same"); says != (server == "s2") || strings.Contains(got, "no server takes") {
			t.Errorf("drain %s: %s", server, got)
		}
	}
}
