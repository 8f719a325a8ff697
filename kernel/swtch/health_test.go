package swtch

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var up, down, disabled, silent = Report{Answered: true, State: Up}, Report{Answered: true, State: Down, Detail: "503"}, Report{Answered: true, State: Disabled}, Report{Detail: "connection refused"}

var unsure = Report{Answered: true}

func TestHealthTakesReports(t *testing.T) {
	for name, c := range map[string]struct {
		reports []Report
		want    State
		dead    bool
	}{
		"nothing yet":          {nil, Unknown, false},
		"up":                   {[]Report{up}, Up, false},
		"its service fails":    {[]Report{up, down}, Down, false},
		"taken out":            {[]Report{up, disabled}, Disabled, false},
		"one poll lost":        {[]Report{up, silent}, Up, false},
		"two polls lost":       {[]Report{up, silent, silent}, Down, true},
		"never heard, once":    {[]Report{silent}, Unknown, false},
		"never heard, twice":   {[]Report{silent, silent}, Down, true},
		"back":                 {[]Report{up, silent, silent, up}, Up, false},
		"lies":                 {[]Report{up, {Answered: true, State: "splendid"}}, Down, false},
		"does not know":        {[]Report{up, unsure}, Up, false},
		"unknown from start":   {[]Report{unsure, unsure}, Unknown, false},
		"knows again":          {[]Report{up, unsure, down}, Down, false},
		"down, then restarted": {[]Report{up, down, unsure}, Down, false},
		"dead, then restarted": {[]Report{up, silent, silent, unsure}, Down, false},
		"dead after its fault": {[]Report{up, down, silent, silent}, Down, true},
		"disabled, then gone":  {[]Report{disabled, silent, silent}, Down, true},
	} {
		h := newHealth(HealthOptions{})
		h.keep([]string{"a"})
		now := time.Unix(1_800_000_000, 0)
		for _, r := range c.reports {
			now = now.Add(500 * time.Millisecond)
			h.take("a", r, now)
			h.take("stranger", r, now)
		}
		a := h.servers["a"]
		if a.state != c.want || h.dead(a) != c.dead || len(h.servers) != 1 {
			t.Errorf("%s: %q dead %v, want %q %v", name, a.state, h.dead(a), c.want, c.dead)
		}
		if (a.state == Down) != (a.detail != "") {
			t.Errorf("%s: %s for %q", name, a.state, a.detail)
		}
	}
}

// A host that lies, or goes up and down, moves its nexthops seldom.
func TestFlappingIsDamped(t *testing.T) {
	h := newHealth(HealthOptions{})
	h.keep([]string{"a"})
	start := time.Unix(1_800_000_000, 0)
	now, changes, last := start, 0, Unknown
	var holds []time.Duration
	for now.Sub(start) < time.Hour {
		for _, r := range []Report{up, down} {
			now = now.Add(time.Second)
			h.take("a", r, now)
			a := h.servers["a"]
			if a.state != last {
				changes, last = changes+1, a.state
			}
			if a.hold > 0 && (len(holds) == 0 || holds[len(holds)-1] != a.hold) {
				holds = append(holds, a.hold)
			}
		}
	}
	// Four downs, then never again while it flaps.
	if changes > 8 {
		t.Errorf("%d changes of state within an hour of flapping every two seconds", changes)
	}
	want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute}
	if !slices.Equal(holds, want) {
		t.Errorf("held down for %v, want %v", holds, want)
	}
	// It settles: up as soon as the hold is over, with nothing remembered a
	// while later.
	held := h.servers["a"].heldUntil
	h.take("a", up, held.Add(-time.Second))
	if s := h.servers["a"]; s.state != Down || s.detail == "" {
		t.Fatalf("up before its time: %+v", s)
	}
	h.take("a", up, held)
	if s := h.servers["a"]; s.state != Up {
		t.Fatalf("down after its time: %+v", s)
	}
	now = held.Add(time.Hour)
	h.take("a", down, now)
	h.take("a", up, now.Add(time.Second))
	if s := h.servers["a"]; s.state != Up {
		t.Fatalf("held down for an old sin: %+v", s)
	}
}

// An agent that never comes to know its state does not serve.
func TestUnsureForLong(t *testing.T) {
	h := newHealth(HealthOptions{})
	h.keep([]string{"a"})
	now := time.Unix(1_800_000_000, 0)
	h.take("a", up, now)
	for range 59 {
		now = now.Add(time.Second)
		h.take("a", unsure, now)
	}
	if s := h.servers["a"]; s.state != Up {
		t.Fatalf("%+v", s)
	}
	h.take("a", unsure, now.Add(2*time.Second))
	if s := h.servers["a"]; s.state != Down || s.detail == "" {
		t.Fatalf("%+v", s)
	}
}

// A host that goes out by way of disabled is damped alike.
func TestFlappingByDisabledIsDamped(t *testing.T) {
	for name, cycle := range map[string][]Report{
		"up, disabled, down": {up, disabled, down}, "up, disabled": {up, disabled}, "up, down, disabled": {up, down, disabled},
	} {
		h := newHealth(HealthOptions{})
		h.keep([]string{"a"})
		now := time.Unix(1_800_000_000, 0)
		changes, last := 0, Unknown
		for end := now.Add(time.Hour); now.Before(end); {
			for _, r := range cycle {
				now = now.Add(500 * time.Millisecond)
				h.take("a", r, now)
				if a := h.servers["a"]; a.state != last {
					changes, last = changes+1, a.state
				}
			}
		}
		if changes > 30 {
			t.Errorf("%s: %d changes of state within an hour", name, changes)
		}
	}
}

func TestCascade(t *testing.T) {
	h := newHealth(HealthOptions{LockShare: 0.5, LockWindow: 10 * time.Second})
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprint(i))
	}
	h.keep(names)
	now := time.Unix(1_800_000_000, 0)
	for _, n := range names {
		h.take(n, up, now)
	}
	for i := range 8 {
		now = now.Add(4 * time.Second) // three within a window
		h.take(names[i], down, now)
		if fallen, locks := h.cascade(now); locks || len(fallen) > 3 {
			t.Fatalf("locked after slow downs: %v", fallen)
		}
	}
	for _, n := range names {
		h.take(n, up, now)
	}
	now = now.Add(time.Minute)
	for i := range 4 {
		h.take(names[i], down, now)
	}
	h.take(names[4], disabled, now)
	if fallen, locks := h.cascade(now); locks {
		t.Fatalf("locked though half are up, or disabled on purpose: %v", fallen)
	}
	h.take(names[5], down, now.Add(time.Second))
	if fallen, locks := h.cascade(now.Add(time.Second)); !locks || len(fallen) != 5 {
		t.Fatalf("not locked after %v", fallen)
	}
}

// TestEndedLocksNothing: all services are restarted at once, which agents see and no
// check; a switch follows that.
func TestEndedLocksNothing(t *testing.T) {
	h := newHealth(HealthOptions{})
	h.keep([]string{"a", "b"})
	now := time.Unix(1_800_000_000, 0)
	ended := Report{Answered: true, State: Down, Detail: "nobody listens", Ended: true}
	for _, n := range []string{"a", "b"} {
		h.take(n, up, now)
		h.take(n, ended, now.Add(time.Second))
		if s := h.servers[n]; s.state != Down || s.detail != "nobody listens" {
			t.Errorf("%s: %+v", n, s)
		}
	}
	if fallen, locks := h.cascade(now.Add(time.Second)); locks {
		t.Errorf("locked: %v", fallen)
	}
}
