package lab

import (
	"cmp"
	"strings"
	"testing"
	"time"
)

// TestJudgeAttacks: with guards nothing may come of an attack; without, what
// guards are for must.
func TestJudgeAttacks(t *testing.T) {
	run := RunTally{Scheme: "jet", Policy: "hash", Hash: "table-hrw", Forwarding: "ipip", Family: "ipv4", Connections: 200, Completed: 200}
	broken := run
	broken.Connections, broken.Broken = 203, 3
	for i, c := range []struct {
		unguarded bool
		run       RunTally
		attack    Attack
		want      string
	}{
		{false, run, Attack{Name: "flood", Packets: 9}, ""},
		{false, run, Attack{Name: "flood"}, "sent nothing"},
		{false, broken, Attack{Name: "resets", Packets: 9, Broken: map[string]int{run.Name(): 3}}, "broke 3 connections, must do nothing"},
		{false, broken, Attack{Name: "resets", Packets: 9}, "3 connections broken after the attacks"},
		{false, run, Attack{Name: "asks", Packets: 9, Genuine: 100, Arrived: 95}, ""},
		{false, run, Attack{Name: "asks", Packets: 9, Genuine: 100, Arrived: 94}, "took 6 of 100 genuine errors away"},
		{false, run, Attack{Name: "idle-api", Packets: 9, Found: []string{"lb1 does not answer"}}, "lb1 does not answer"},
		{false, RunTally{Scheme: "jet", Connections: 199, Completed: 199}, Attack{Name: "flood", Packets: 9}, "must be 200"},
		{true, broken, Attack{Name: "resets", Packets: 9, Broken: map[string]int{run.Name(): 3}}, ""},
		{true, run, Attack{Name: "resets", Packets: 9}, "did nothing without guards"},
		{true, run, Attack{Name: "flood", Packets: 9}, ""},
	} {
		c.attack.Scheme = "jet"
		r := &runner{o: RunOptions{Scenario: "attack", Scale: AttackScale, WithoutGuards: c.unguarded},
			result: &Result{Runs: []RunTally{c.run}, Attacks: []Attack{c.attack}}}
		got := strings.Join(r.judge(), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("case %d: %q, want %q", i, got, c.want)
		}
	}
}

// TestAttack makes attacks on few connections, briefly.
func TestAttack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]RunOptions{
		"guarded": {Schemes: []string{"cheetah"}, Scale: Scale{Steps: []string{"barrage", "cookies", "asks", "discovery", "redirect", "idle-api"}}},
		// What a guard holds off is an attack, if there is enough of it: for longer,
		// as a busy machine sends little.
		"unguarded": {Schemes: []string{"jet"}, Forwarding: "ipip", WithoutGuards: true, Scale: Scale{Steps: []string{"resets"}, Slot: 3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Scenario, c.Seed = "attack", 3
			c.Scale.Connections, c.Scale.Slot, c.Scale.Pause = 60, cmp.Or(c.Scale.Slot, 700*time.Millisecond), 4*time.Second
			result := small(t, c)
			if len(result.Attacks) != len(c.Scale.Steps) {
				t.Errorf("%d attacks, want %v", len(result.Attacks), c.Scale.Steps)
			}
			t.Logf("%+v", result.Attacks)
		})
	}
}
