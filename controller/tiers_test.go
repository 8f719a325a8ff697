package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
)

// tiersFile is a deployment of two tiers, with these balancers of tier two.
func tiersFile(t *testing.T, second ...string) *config.Config {
	t.Helper()
	text := "secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\ncontrollers: [{name: c1}]\nbalancers:\n" +
		"- {name: lb1, interfaces: [eth0], source: 10.200.1.0/24}\n"
	for i, b := range second {
		text += fmt.Sprintf("- {name: %s, tier: 2, address: 10.0.0.%d, interfaces: [eth0], source: 10.201.%d.0/24}\n", b, 20+i, i)
	}
	text += "servers: [{name: s1, address: 10.0.1.1}]\n" +
		"vips: [{name: web, address: 192.0.2.1, port: 80, tiers: {bits: 1}, health: {type: tcp}, servers: [s1]}]\n"
	cfg, err := config.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func tierStates(v *VIP) (all string) {
	for _, s := range v.TierTwo {
		all += fmt.Sprintf("%d %s %s;", s.Number, s.Server, s.State)
	}
	return all
}

// Balancers of tier two have numbers that drain, rest and are free again, as servers do.
func TestTierSlots(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cur, err := First(tiersFile(t, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	follow := func(steps []*Assignment, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if err := errors.Join(Mixable(cur, s), s.Validate()); err != nil {
				t.Fatal(err)
			}
			delta, err := Delta(cur, s)
			if err != nil {
				t.Fatal(err)
			}
			patched, err := Patch(cur, delta)
			if err != nil || string(patched.Encode()) != string(s.Encode()) {
				t.Fatalf("a delta loses something: %v", err)
			}
			cur = s
		}
	}
	is := func(want string) {
		t.Helper()
		if got := tierStates(&cur.VIPs[0]); got != want {
			t.Errorf("tier two is %s want %s", got, want)
		}
	}
	is("0 a active;1 b active;")
	change := func(op Op) ([]*Assignment, error) {
		steps, _, err := Change(cur, LiveCounts{}, now, false, op)
		return steps, err
	}
	follow(change(Op{Kind: Drain, Server: "a"}))
	is("0 a draining;1 b active;")
	if _, err := change(Op{Kind: Drain, Server: "b"}); !errors.As(err, new(Refusal)) {
		t.Errorf("the last of tier two drains: %v", err)
	}
	if _, err := change(Op{Kind: Remove, Server: "b"}); !errors.As(err, new(Invalid)) {
		t.Errorf("a verb removes one of tier two: %v", err)
	}
	follow(change(Op{Kind: Undrain, Server: "a"}))
	is("0 a active;1 b active;")
	plan := func(cfg *config.Config) ([]*Assignment, error) {
		steps, _, err := Plan(cfg, cur, LiveCounts{}, now, false)
		return steps, err
	}
	follow(plan(tiersFile(t, "a")))
	is("0 a active;1 b resting;")
	if n, ok := cur.VIPs[0].InTierTwo("b"); n != 1 || !ok {
		t.Error("one that rests has lost its number")
	}
	// Its number is nobody's else before its cookies are over.
	if _, err := plan(tiersFile(t, "a", "c")); !errors.As(err, new(Refusal)) {
		t.Errorf("a number that rests is given away: %v", err)
	}
	now = now.Add(time.Hour)
	follow(plan(tiersFile(t, "a", "c")))
	is("0 a active;1 c active;")
	if steps, err := plan(tiersFile(t, "a", "c")); len(steps) != 0 || err != nil {
		t.Errorf("the same file again: %d steps, %v", len(steps), err)
	}
}

// What each tier goes by.
func TestAt(t *testing.T) {
	a, err := First(tiersFile(t, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if v := &a.At(2).VIPs[0]; v.Slots[0].Server != "s1" || v.IsFront() {
		t.Errorf("tier two has %+v", v.Slots)
	}
	v := &a.At(1).VIPs[0]
	if v.Slots[0].Server != "a" || len(v.Slots) != 2 || !v.IsFront() || v.MaxNumbers() != 2 || v.TierBits() != 0 {
		t.Errorf("tier one has %+v, %d numbers", v.Slots, v.MaxNumbers())
	}
	whole := a.Clone()
	whole.VIPs[0].Tiers = nil
	if whole.At(1) != whole || len(whole.At(2).VIPs) != 0 {
		t.Error("a VIP of one tier is tier one's alone")
	}
}
