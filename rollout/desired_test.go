package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/soak"
)

// desiredBy is what the store's text says, on the fleet's machine.
func desiredBy(t *testing.T, c *Coordinator) *config.Config {
	t.Helper()
	text, _, err := c.Desired(t.Context())
	if err != nil || text == nil {
		t.Fatalf("%q %v", text, err)
	}
	cfg, err := c.Config().Desired("f", text)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestDesired: apply puts the text into the store, a verb changes it, and the same
// apply again undoes that; a text that changes no assignment is a version of its own.
func TestDesired(t *testing.T) {
	s := newFleet(t, three).empty()
	c := s.coordinator()
	if text, version, err := c.Desired(t.Context()); text != nil || version != 0 || err != nil {
		t.Errorf("an empty store: %q %d %v", text, version, err)
	}
	ch, err := c.Apply(t.Context(), s.text, Options{})
	if err != nil || ch.To != 1 || len(ch.Diff) == 0 {
		t.Fatalf("%+v %v", ch, err)
	}
	text, version, err := c.Desired(t.Context())
	if err != nil || version != 1 || strings.Contains(string(text), "000102") || !strings.Contains(string(text), "servers:") {
		t.Errorf("%d %s %v", version, text, err)
	}
	if ch, err = c.Apply(t.Context(), text, Options{}); err != nil || ch.To != 1 || len(ch.Diff) > 0 {
		t.Errorf("what it said itself: %+v %v", ch, err)
	}
	ch, err = c.Do(t.Context(), Options{}, op(controller.Drain, "s1"))
	if err != nil || ch.To != 2 || len(ch.Notes) != 0 || len(ch.Diff) != 0 {
		t.Errorf("a verb: %+v %v", ch, err)
	}
	if m := desiredBy(t, c).VIPs[0].Servers[0]; !m.Drain {
		t.Errorf("%+v", m)
	}
	// A planned change says how both differ, and does nothing.
	if ch, err = c.PlanFile(t.Context(), s.text, Options{}); err != nil || ch.To != 3 || !slices.Contains(ch.Diff, "-    drain: true") {
		t.Errorf("planned: %+v %v", ch, err)
	}
	if ch, err = c.Apply(t.Context(), s.text, Options{}); err != nil || ch.To != 3 || desiredBy(t, c).VIPs[0].Servers[0].Drain {
		t.Errorf("the file again: %+v %v", ch, err)
	}
	more := []byte(strings.Replace(string(s.text), "balancers: [", "balancers: [{name: lb9, interfaces: [eth0], api: \"unix:/x\"}, ", 1))
	ch, err = c.Apply(t.Context(), more, Options{})
	if err != nil || ch.To != 4 || len(ch.Lines) != 1 || !strings.Contains(ch.Lines[0], "version 4: the configuration") || len(ch.Silent) != 1 {
		t.Errorf("a balancer more: %+v %v", ch, err)
	}
	if _, ok := desiredBy(t, c).Balancer("lb9"); !ok || s.versions() != "s1=4 s2=4 s3=4 lb1=4 lb2=4" {
		t.Errorf("%v %s", ok, s.versions())
	}
	records, err := c.Ledger.History(t.Context(), 0, 999)
	if err != nil || len(records) != 4 || !slices.Equal(records[3].What, []string{"the configuration, and nothing that packets go by"}) {
		t.Errorf("%+v %v", records, err)
	}
	// Rotating changes no text.
	if ch, err = c.Do(t.Context(), Options{Without: []string{"lb9"}}, controller.Op{Kind: controller.Rotate}); err != nil || len(ch.Diff) > 0 {
		t.Errorf("rotate: %+v %v", ch, err)
	}
	if err := s.bad(); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"": "empty", "controllers: [{name: c1}]\n": "holds only how to come to the store",
		strings.Replace(string(s.text), "port: 80", "port: 0", 1): "not a port",
	} {
		if _, err := c.Apply(t.Context(), []byte(text), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestVerbsSay: after each verb the store's text says what it did, so that an apply of
// it does nothing.
func TestVerbsSay(t *testing.T) {
	s := newFleet(t, `
balancers: [{name: lb1, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}, {name: s3, address: 10.0.1.3}]
vips:
# Both have one pool.
- {name: web, address: 192.0.2.1, port: 80, policy: wrr, servers: &pool [s1, s2, {name: s3, standby: true}]}
- {name: tls, address: 192.0.2.1, port: 443, policy: wrr, servers: *pool}
`)
	c := s.coordinator()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	r := soak.Rand(t)
	done, refused := 0, 0
	for range 60 {
		o := controller.Op{
			Kind:   []controller.Kind{controller.Add, controller.Drain, controller.Undrain, controller.Remove, controller.Weight, controller.Rotate}[r.IntN(6)],
			VIP:    []string{"web", "tls", ""}[r.IntN(3)],
			Server: fmt.Sprint("s", 1+r.IntN(4)),
		}
		switch o.Kind {
		case controller.Rotate:
			o.VIP, o.Server = "", ""
		case controller.Weight:
			o.Weight = 1 + r.IntN(5)
		case controller.Add:
			o.Address, o.Standby, o.Weight = s.cfg.Servers[0].Address, r.IntN(2) == 0, r.IntN(3)
			for range o.Server[1] - '1' {
				o.Address = o.Address.Next()
			}
		}
		if s.get(o.Server) == nil && o.Server == "s4" {
			d := s.start(t, "s4", config.DefaultAPI("s4"))
			s.mu.Lock()
			d.cur = s.get("s1").cur
			s.mu.Unlock()
			s.follow()
		}
		ch, err := c.Do(t.Context(), Options{Force: true, Without: []string{}}, o)
		if err != nil {
			refused++
			continue
		}
		done++
		text, _, err := c.Desired(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.PlanFile(t.Context(), text, Options{Force: true})
		told := slices.ContainsFunc(ch.Notes, func(n string) bool { return strings.Contains(n, "the configuration cannot say this") })
		if err != nil || !told && len(again.Steps) > 0 {
			t.Fatalf("%+v\n%q\nthe text\n%s\nwould do %q %v", o, ch.Notes, text, again.Lines, err)
		}
		if told { // so that the next verbs are compared with what is
			if _, err := c.Apply(t.Context(), text, Options{Force: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if done < 20 || refused == 0 {
		t.Errorf("%d done, %d refused", done, refused)
	}
}

// TestRollback: the text of a version is wanted again, by a new version that follows
// the newest.
func TestRollback(t *testing.T) {
	s := newFleet(t, three).empty()
	c := s.coordinator()
	for _, step := range []func() error{
		func() error { _, err := c.Apply(t.Context(), s.text, Options{}); return err },
		func() error { _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s1")); return err },
		func() error { _, err := c.Do(t.Context(), Options{}, op(controller.Drain, "s2")); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	ch, err := c.Rollback(t.Context(), 2, Options{})
	if err != nil || ch.From != 3 || ch.To != 4 || s.versions() != "s1=4 s2=4 s3=4 lb1=4 lb2=4" {
		t.Fatalf("%+v %v %s", ch, err, s.versions())
	}
	records, err := c.Ledger.History(t.Context(), 4, 999)
	if err != nil || len(records) != 1 || records[0].What[0] != "rollback to version 2" || len(records[0].What) != 2 {
		t.Errorf("%+v %v", records, err)
	}
	if m := desiredBy(t, c).VIPs[0].Servers; !m[0].Drain || m[1].Drain {
		t.Errorf("%+v", m)
	}
	if ch, err = c.Rollback(t.Context(), 4, Options{}); err != nil || len(ch.Steps) > 0 {
		t.Errorf("to what it is: %+v %v", ch, err)
	}
	if _, err = c.Rollback(t.Context(), 9, Options{}); connect.CodeOf(Code(err)) != connect.CodeNotFound {
		t.Errorf("to what never was: %v", err)
	}
	// What would break connections is refused as in any change.
	s.mu.Lock()
	s.get("s3").live = []*fairleadv1.LiveVIP{{Id: 1, Epochs: []*fairleadv1.EpochLive{{Connections: 7}}}}
	s.mu.Unlock()
	without := []byte(strings.Replace(string(s.text), ", s3]", "]", 1))
	if _, err = c.Apply(t.Context(), without, Options{}); connect.CodeOf(Code(err)) != connect.CodeFailedPrecondition {
		t.Errorf("%v", err)
	}
	if err := s.bad(); err != nil {
		t.Error(err)
	}
}

// TestExpect: a change that was planned on another version than the newest is refused,
// with what was done since.
func TestExpect(t *testing.T) {
	s := newFleet(t, three).empty()
	c := s.coordinator()
	if _, err := c.Apply(t.Context(), s.text, Options{}); err != nil {
		t.Fatal(err)
	}
	planned, err := c.PlanFile(t.Context(), s.text, Options{Expect: 1})
	if err != nil || planned.From != 1 {
		t.Fatal(planned, err)
	}
	if _, err := c.Do(t.Context(), Options{Expect: 1}, op(controller.Drain, "s1")); err != nil {
		t.Fatal(err)
	}
	_, err = c.Apply(t.Context(), s.text, Options{Expect: planned.From})
	out, ok := errors.AsType[*Outdated](err)
	if !ok || out.Newest != 2 || len(out.Since) != 1 || !slices.Contains(out.Diff, "+    drain: true") || connect.CodeOf(Code(err)) != connect.CodeAborted ||
		!strings.Contains(err.Error(), "planned on version 1, and the newest is 2") || !strings.Contains(err.Error(), "a test: vip web: drain s1") {
		t.Errorf("%+v %v", out, err)
	}
	if s.versions() != "s1=2 s2=2 s3=2 lb1=2 lb2=2" {
		t.Error(s.versions())
	}
	if _, err = c.Apply(t.Context(), s.text, Options{Expect: 7}); err == nil || !strings.Contains(err.Error(), "put back from an older copy") {
		t.Errorf("%v", err)
	}
	if _, err = c.Apply(t.Context(), s.text, Options{Expect: 2}); err != nil {
		t.Error(err)
	}
}
