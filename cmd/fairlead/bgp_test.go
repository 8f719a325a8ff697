package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

func bgpAnswers() []answer {
	now := time.Now().Add(-time.Minute).UnixMilli()
	return []answer{
		{name: "lb1", role: "lb", status: &fairleadv1.GetStatusResponse{Name: "lb1", Bgp: &fairleadv1.BGP{
			Neighbours: []*fairleadv1.BGPNeighbour{{Address: "10.0.0.254", As: 65000, State: "established", Established: true, SinceUnixMs: now, Bfd: "up"}},
			Addresses: []*fairleadv1.BGPAddress{
				{Address: "192.0.2.10", Vips: []string{"web", "tls"}, Announced: true, SinceUnixMs: now, HeardBy: []string{"10.0.0.254"}},
				{Address: "192.0.2.11", Vips: []string{"dns"}, SinceUnixMs: now, Why: []string{"no healthy server in VIP dns, of 2", "lb1 is not ready: it starts"}},
			}}}},
		{name: "lb2", role: "lb", err: errors.New("connection refused")},
	}
}

// Both tables and JSON say what is announced, to whom, and why something is not.
func TestBGPTable(t *testing.T) {
	var out strings.Builder
	if err := bgpTable(&out, bgpAnswers()); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"10.0.0.254 lb1 65000 established 1m0s up -",
		"- lb2 - no answer - - connection refused",
		"192.0.2.10 web, tls lb1 yes 1m0s 10.0.0.254",
		"192.0.2.11 dns lb1 no 1m0s no healthy server in VIP dns, of 2 lb1 is not ready: it starts",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	out.Reset()
	printBGP(&out, bgpAnswers())
	if want := "lb1\t1 of 1 up\t1 of 2 announced\t192.0.2.11 (no healthy server in VIP dns, of 2; lb1 is not ready: it starts)"; !strings.Contains(out.String(), want) {
		t.Errorf("status lacks %q:\n%s", want, &out)
	}
	data, err := json.Marshal(bgpValue(bgpAnswers()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"since_unix_ms":`, `"heard_by":["10.0.0.254"]`, `"error":"connection refused"`, `"announced":true`, `"established":true`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("JSON lacks %s: %s", want, data)
		}
	}
}

// One VIP or address alone; a name that nobody knows is told with those there are.
func TestBGPOnly(t *testing.T) {
	for what, want := range map[string]string{"tls": "192.0.2.10", "192.0.2.11": "192.0.2.11"} {
		answers := bgpAnswers()
		if err := only(answers, what); err != nil {
			t.Fatal(err)
		}
		if is := answers[0].status.Bgp.Addresses; len(is) != 1 || is[0].Address != want {
			t.Errorf("%s: %v", what, is)
		}
	}
	if err := only(bgpAnswers(), "wbe"); err == nil || !strings.Contains(err.Error(), "dns, tls, web") {
		t.Errorf("unknown: %v", err)
	}
}
