package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// The table sums what two balancers tracked, and says what the hash prepares
// for, who warms up and what is not shared.
func TestStatusTableFlows(t *testing.T) {
	lb := func(name, peer, problem string, tracked uint64) answer {
		return answer{name: name, role: "lb", status: &fairleadv1.GetStatusResponse{
			Name: name, Role: fairleadv1.Role_ROLE_BALANCER, AssignmentVersion: 3,
			Warnings: []string{"the file differs"},
			Limits:   []*fairleadv1.Limit{{Name: "flows", Limit: 700}},
			Flows:    &fairleadv1.Flows{Confirmed: 5, Unconfirmed: 2},
			Sharing:  &fairleadv1.Sharing{Peers: []*fairleadv1.SharingPeer{{Name: peer, Sent: 4, Dropped: 1, Queued: 2, Pulled: 3, Error: problem, Pending: problem != ""}}},
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
	if err := statusTable(&out, []answer{lb("lb1", "lb2", "", 10), lb("lb2", "lb1", "no route to host", 20), {name: "lb3", role: "lb", err: errors.New("down")}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	// Columns are aligned by spaces: compared word by word.
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"web 192.0.2.10:80/tcp: jet, hash, ipip",
		"hash anchor, capacity 20, horizon 2, warm-up 2h4m0s, entries shared",
		"tracked 30, packets by entry 18, entries replaced 4, refused 2, not told peers 6",
		"Assignment version 3 at every daemon that answers (1 of 3 does not: lb3).",
		"Warnings: lb3 does not answer (down): its counters are missing above, so that sums are partial lb1, lb2: the file differs",
		"counted every 30 s; the limit is the file's limits.flows, rounded up to whole sets of 7",
		"standby",
		"active (warming)",
		"FLOW TABLE CONFIRMED UNCONFIRMED LIMIT lb1 5 2 700 lb2 5 2 700",
		"SHARES ENTRIES WITH TOLD DROPPED WAITING READ PROBLEM lb1 lb2 4 1 2 3 - lb2 lb1 4 1 2 3 (not all) no route to host",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	// One version is not one assignment.
	two := []answer{lb("lb1", "lb2", "", 1), lb("lb2", "lb1", "", 1), lb("lb3", "lb1", "", 1)}
	for i, digest := range []string{"abcdefgh", "abcdeXgh", "abcdefgh"} {
		two[i].status.AssignmentDigest = []byte(digest)
	}
	out.Reset()
	if err := statusTable(&out, two, nil, nil); err != nil {
		t.Fatal(err)
	}
	if want := "Assignment version 3 is NOT ONE (digest 616263646566 at lb1, lb3; 616263646558 at lb2): fairlead apply gives all what most have."; !strings.Contains(out.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, &out)
	}
	if m := statusValue(two, nil).(map[string]any); m["digests_differ"] != true || m["versions_differ"] != true {
		t.Errorf("as JSON: %v, %v", m["digests_differ"], m["versions_differ"])
	}
	// A VIP that tracks nothing has no line about it.
	if line := flowLine(&fairleadv1.VIP{Scheme: "stateless"}, &fairleadv1.Counters{}); line != "" {
		t.Errorf("stateless: %q", line)
	}
}

// Where no balancer answers, what is in force fills in what agents do not
// know, and nothing is shown as counted.
func TestStatusTableNoBalancer(t *testing.T) {
	answers := []answer{
		{name: "lb1", role: "lb", err: errors.New("connection refused")},
		{name: "s1", role: "host", status: &fairleadv1.GetStatusResponse{
			Name: "s1", Role: fairleadv1.Role_ROLE_HOST, AssignmentVersion: 4,
			Vips: []*fairleadv1.VIP{{Id: 1, Name: "web", Address: "192.0.2.10", Port: 80, Protocol: "tcp", Scheme: "jet", Policy: "hash", Forwarding: "ipip",
				Slots: []*fairleadv1.Slot{{Number: 0, Server: "s1", Address: "10.0.0.21", Weight: 1, State: fairleadv1.SlotState_SLOT_STATE_ACTIVE, Connections: 6}}}},
		}},
	}
	force := &controller.Assignment{Version: 4, VIPs: []controller.VIP{
		{
			ID:       1,
			Settings: vip.Settings{Name: "web"},
			Slots: []controller.Slot{
				{Number: 0, Server: "s1", State: controller.Active},
				{Number: 1, Server: "s2", Address: netip.MustParseAddr("10.0.0.22"), Weight: 3, State: controller.Draining}},
		},
		{
			ID:       2,
			Settings: vip.Settings{Name: "dns", Address: netip.MustParseAddr("192.0.2.11"), Port: 53, Protocol: "udp", Scheme: "stateless", Policy: "hash", Forwarding: "l2"},
			Slots:    []controller.Slot{{Number: 0, Server: "s2", Address: netip.MustParseAddr("10.0.0.22"), Weight: 1, State: controller.Active}},
		},
	}}
	var out strings.Builder
	if err := statusTable(&out, answers, force, nil); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"version 4 at every daemon that answers (1 of 2 does not: lb1).",
		"VIP web 192.0.2.10:80/tcp: jet, hash, ipip no balancer answers: no counters",
		"0 s1 10.0.0.21 1 active - - - 6 - - - 1 s2 10.0.0.22 3 draining - - - - - - -",
		"VIP dns 192.0.2.11:53/udp: stateless, hash, l2 no balancer answers: no counters",
		"lb1 does not answer (connection refused): its counters are missing above",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

// A daemon that does not answer leaves the table its columns.
func TestStatusColumns(t *testing.T) {
	var out strings.Builder
	answers := []answer{
		{name: "lb1", role: "lb", status: &fairleadv1.GetStatusResponse{Name: "lb1", AssignmentVersion: 5, Version: "v1", PinDir: "/sys/fs/bpf/fairlead/lb1"}},
		{name: "lb2", role: "lb", err: errors.New("connection refused")},
	}
	if err := statusTable(&out, answers, nil, nil); err != nil {
		t.Fatal(err)
	}
	column := -1
	for line := range strings.Lines(out.String()) {
		for _, word := range []string{"PINNED", "/sys/fs", "connection refused"} {
			at := strings.Index(line, word)
			if at < 0 || strings.Contains(line, "(connection refused)") {
				continue
			}
			if column >= 0 && at != column {
				t.Errorf("%q begins in column %d, the header in %d", line, at, column)
			}
			column = at
		}
	}
}

// waitingDaemon runs, and has nothing to go by.
type waitingDaemon struct {
	fairleadv1connect.UnimplementedFairleadHandler
	denies *atomic.Bool
}

func (d waitingDaemon) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	if d.denies.Load() {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("it takes the role view"))
	}
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("the daemon is waiting for a first version"))
}

// TestStatusOfWaiting: where no daemon serves yet, status says what one that runs waits for,
// and what to start where the controller is beside the balancer.
func TestStatusOfWaiting(t *testing.T) {
	dir, err := os.MkdirTemp("", "fl-wait-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s1"))
	if err != nil {
		t.Fatal(err)
	}
	var denies atomic.Bool
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewFairleadHandler(waitingDaemon{denies: &denies}))
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	defer server.Close()
	file := filepath.Join(dir, "fairlead.yaml")
	text := fmt.Sprintf(`secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb1, interfaces: [eth0], api: "unix:%[1]s/lb1"}]
servers: [{name: s1, address: 10.0.0.21, api: "unix:%[1]s/s1"}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1]}]
`, dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := clitest.Run(newRootCommand(), "status", "-f", file)
	if status != 1 || !strings.Contains(errs, "fairlead: no daemon serves yet (s1: the daemon is waiting for a first version)") ||
		!strings.Contains(out, "start `fairlead lb` (or `switch`), beside which it runs") {
		t.Errorf("%d\n%s%s", status, out, errs)
	}
	denies.Store(true)
	if status, _, errs = clitest.Run(newRootCommand(), "status", "-f", file); status != 1 || !strings.Contains(errs, "fairlead: no daemon says how it stands (s1: it takes the role view)") {
		t.Errorf("%d: %s", status, errs)
	}
	server.Close()
	if status, _, errs = clitest.Run(newRootCommand(), "status", "-f", file); status != 1 || !strings.Contains(errs, "fairlead: no daemon answered (lb1: dial unix ") {
		t.Errorf("%d: %s", status, errs)
	}
}
