package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// The table sums what two balancers tracked, and says what the hash prepares
// for, who warms up and what is not shared.
func TestStatusTableFlows(t *testing.T) {
	lb := func(name, peer, problem string, tracked uint64) answer {
		return answer{name: name, role: "lb", status: &fairleadv1.GetStatusResponse{
			Name: name, Role: fairleadv1.Role_ROLE_BALANCER, AssignmentVersion: 3,
			Limits:  []*fairleadv1.Limit{{Name: "flows", Limit: 700}},
			Flows:   &fairleadv1.Flows{Confirmed: 5, Unconfirmed: 2},
			Sharing: &fairleadv1.Sharing{Peers: []*fairleadv1.SharingPeer{{Name: peer, Sent: 4, Dropped: 1, Queued: 2, Pulled: 3, Error: problem, Pending: problem != ""}}},
			Vips: []*fairleadv1.VIP{{
				Id: 1, Name: "web", Address: "192.0.2.10", Port: 80, Protocol: "tcp", Scheme: "jet", Policy: "hash", Forwarding: "ipip",
				Hash: "anchor", Capacity: 20, Horizon: 2, WarmUpMs: 7_440_000, Share: true,
				Counters: &fairleadv1.Counters{Tracked: tracked, FlowHits: 9, FlowFull: 1, FlowReplaced: 2, ShareLost: 3},
				Slots: []*fairleadv1.Slot{
					{Number: 0, Server: "s1", State: fairleadv1.SlotState_SLOT_STATE_ACTIVE, TakesNew: true},
					{Number: 1, Server: "s2", State: fairleadv1.SlotState_SLOT_STATE_STANDBY},
					{Number: 2, Server: "s3", State: fairleadv1.SlotState_SLOT_STATE_ACTIVE, Warming: true},
				},
			}},
		}}
	}
	var out strings.Builder
	if err := statusTable(&out, []answer{lb("lb1", "lb2", "", 10), lb("lb2", "lb1", "no route to host", 20), {name: "lb3", role: "lb", err: errors.New("down")}}); err != nil {
		t.Fatal(err)
	}
	// Columns are aligned by spaces: compared word by word.
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"web 192.0.2.10:80/tcp: jet, hash, ipip",
		"hash anchor, capacity 20, horizon 2, warm-up 2h4m0s, entries shared",
		"tracked 30, packets by entry 18, entries replaced 4, refused 2, not told peers 6",
		"standby",
		"active (warming)",
		"FLOW TABLE CONFIRMED UNCONFIRMED LIMIT lb1 5 2 700 lb2 5 2 700",
		"SHARES ENTRIES WITH TOLD DROPPED WAITING READ PROBLEM lb1 lb2 4 1 2 3 - lb2 lb1 4 1 2 3 (not all) no route to host",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	// A VIP that tracks nothing has no line about it.
	if line := flowLine(&fairleadv1.VIP{Scheme: "stateless"}, &fairleadv1.Counters{}); line != "" {
		t.Errorf("stateless: %q", line)
	}
}
