package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

func l2Answers() []answer {
	now := time.Now().Add(-time.Minute).UnixMilli()
	balancer := func(name string, addresses ...*fairleadv1.L2Address) answer {
		return answer{name: name, role: "lb", status: &fairleadv1.GetStatusResponse{Name: name, L2: &fairleadv1.L2{Interfaces: []string{"eth0"}, Addresses: addresses}}}
	}
	return []answer{
		balancer("lb1", &fairleadv1.L2Address{Address: "192.0.2.10", Vips: []string{"web"}, SinceUnixMs: now, Holder: "lb2", Why: []string{"lb2 holds it"}},
			&fairleadv1.L2Address{Address: "192.0.2.11", Vips: []string{"dns"}, SinceUnixMs: now, Why: []string{"no healthy server in VIP dns, of 2"}}),
		balancer("lb2", &fairleadv1.L2Address{Address: "192.0.2.10", Vips: []string{"web"}, SinceUnixMs: now, Held: true, Holder: "lb2"}),
		{name: "lb3", role: "lb", err: errors.New("connection refused")},
	}
}

// The table and JSON say who holds an address, and why others do not.
func TestL2Table(t *testing.T) {
	var out strings.Builder
	if err := l2Table(&out, l2Answers()); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"- - lb3 no answer - connection refused",
		"192.0.2.10 web lb2 yes 1m0s eth0 192.0.2.10 web lb1 no 1m0s lb2 holds it",
		"192.0.2.11 dns lb1 no 1m0s no healthy server in VIP dns, of 2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	out.Reset()
	printL2(&out, l2Answers())
	for _, want := range []string{"lb1\teth0\tholds 0 of 2\t192.0.2.11 (no healthy server in VIP dns, of 2)\n", "lb2\teth0\tholds 1 of 1\t-\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("status lacks %q:\n%s", want, &out)
		}
	}
	data, err := json.Marshal(l2Value(l2Answers()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"held":true`, `"holder":"lb2"`, `"interfaces":["eth0"]`, `"error":"connection refused"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("JSON lacks %s: %s", want, data)
		}
	}
}

// One VIP or address alone; a name that nobody knows is told with those there are.
func TestL2Only(t *testing.T) {
	answers := l2Answers()
	if err := onlyHeld(answers, "dns"); err != nil {
		t.Fatal(err)
	}
	if is := answers[0].status.L2.Addresses; len(is) != 1 || is[0].Address != "192.0.2.11" || len(answers[1].status.L2.Addresses) != 0 {
		t.Errorf("%v", answers)
	}
	if err := onlyHeld(l2Answers(), "wbe"); err == nil || !strings.Contains(err.Error(), "dns, web") {
		t.Errorf("unknown: %v", err)
	}
}
