package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// chainAnswers is a VIP of scheme beamer at two balancers and two agents, and
// one of scheme faild at a switch.
func chainAnswers(now time.Time) []answer {
	const active, draining = fairleadv1.SlotState_SLOT_STATE_ACTIVE, fairleadv1.SlotState_SLOT_STATE_DRAINING
	beamer := func(b *fairleadv1.Buckets, slots ...*fairleadv1.Slot) *fairleadv1.VIP {
		b.Count, b.ChainTimeMs = 4096, 240_000
		return &fairleadv1.VIP{Id: 1, Name: "web", Address: "192.0.2.10", Port: 80, Protocol: "tcp", Scheme: "beamer", Policy: "hash", Forwarding: "gue",
			Mptcp: true, Buckets: b, Slots: slots, Counters: &fairleadv1.Counters{NewConnections: 7, Dropped: 1}}
	}
	lb := func(name string, b *fairleadv1.Buckets) answer {
		return answer{name: name, role: "lb", status: &fairleadv1.GetStatusResponse{Name: name, Role: fairleadv1.Role_ROLE_BALANCER, AssignmentVersion: 5,
			Vips: []*fairleadv1.VIP{beamer(b, &fairleadv1.Slot{Number: 0, Server: "s1", State: active, TakesNew: true, Buckets: 4096},
				&fairleadv1.Slot{Number: 1, Server: "s2", State: draining, PreviousOf: 2048})}}}
	}
	host := func(name string, slot uint32, b *fairleadv1.Buckets, serving fairleadv1.Serving, detail string) answer {
		state := active
		if slot == 1 {
			state = draining
		}
		v := beamer(b, &fairleadv1.Slot{Number: slot, Server: name, State: state, Connections: 3, HealthDetail: detail})
		v.Serving = serving
		return answer{name: name, role: "host", status: &fairleadv1.GetStatusResponse{Name: name, Role: fairleadv1.Role_ROLE_HOST, AssignmentVersion: 5, Vips: []*fairleadv1.VIP{v}}}
	}
	return []answer{
		lb("lb1", &fairleadv1.Buckets{Generation: 3, Chained: 2048, FirstChainEndsUnixMs: now.Add(90 * time.Second).UnixMilli(), ChainsEndUnixMs: now.Add(2 * time.Minute).UnixMilli(), Renewed: 4, Deputies: 5, Forgotten: 6}),
		lb("lb2", &fairleadv1.Buckets{Generation: 3}),
		host("s1", 0, &fairleadv1.Buckets{Generation: 3, GenerationSeen: 3, Owned: 12, Peers: 1}, fairleadv1.Serving_SERVING_UP, ""),
		host("s2", 1, &fairleadv1.Buckets{Generation: 3, GenerationSeen: 5, Owned: 34, Peers: 1, PeersUnresolved: 1}, fairleadv1.Serving_SERVING_DOWN, "refused"),
		{name: "sw1", role: "switch", status: &fairleadv1.GetStatusResponse{Name: "sw1", Role: fairleadv1.Role_ROLE_SWITCH, AssignmentVersion: 5,
			NotReady: []string{"drained"},
			Vips: []*fairleadv1.VIP{{Id: 2, Name: "tls", Address: "192.0.2.11", Port: 443, Protocol: "tcp", Scheme: "faild", Policy: "hash", Forwarding: "ipip",
				Buckets: &fairleadv1.Buckets{Count: 256, Generation: 9, ChainTimeMs: 60_000, Chained: 1},
				Slots:   []*fairleadv1.Slot{{Number: 0, Server: "s1", State: active, Health: fairleadv1.Health_HEALTH_UP, TakesNew: true, Buckets: 256}}}},
			Switch: &fairleadv1.Switch{Bridge: "br0", Drained: true, Locked: true, Generation: 9, Chained: 1, Repointed: 30, LastChangeUs: 1500,
				Groups:      []*fairleadv1.SwitchGroup{{Family: "ipv4", Id: 7, Nexthops: 256}, {Family: "ipv6", Id: 8, Nexthops: 256}},
				Corrections: []*fairleadv1.SwitchCorrections{{Kind: "route", Count: 2}, {Kind: "bridge"}, {Kind: "neighbour", Count: 1}},
				Hosts: []*fairleadv1.SwitchHost{{Server: "s1", State: fairleadv1.Serving_SERVING_UP, Nexthops: 256, Port: "eth1", Connections: 9},
					{Server: "s3", Number: 1, State: fairleadv1.Serving_SERVING_DOWN, HeldDownUntilUnixMs: 1, PreviousOf: []*fairleadv1.SwitchForwarding{{Server: "s1", Nexthops: 1}}}}}}},
		{name: "sw2", role: "switch", err: errors.New("no route to host")},
	}
}

func TestStatusTableChains(t *testing.T) {
	var out strings.Builder
	if err := statusTable(&out, chainAnswers(time.Now().Add(100*time.Millisecond)), nil, nil); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"VIP web 192.0.2.10:80/tcp: beamer, hash, gue new connections 14, dropped 2 4096 buckets, generation 3, chain time 4m0s, MPTCP joins lb1: buckets with a chain 2048, " +
			"the first ends by time in 1m30s, the last in 2m0s, renewed for a previous server that owns connections 4, with a deputy 5, previous servers FORGOTTEN 6 (moved too often within the chain time)",
		"lb2: no chain: every bucket is settled",
		"s2: packets carry generation 5, 2 newer than this agent's; no way to 1 of 1 other servers: packets are not passed on to them; serves: down (refused) SLOT",
		"ESTABLISHED BUCKETS PREVIOUS OF OWNS NEW PACKETS BYTES",
		"0 s1 0 active - yes ok 3 4096 0 12 0 0 0",
		"1 s2 0 draining - no ok 3 0 2048 34 0 0 0",
		"VIP tls 192.0.2.11:443/tcp: faild, hash 256 buckets, generation 9, chain time 1m0s sw1: buckets with a chain 1, none ends by time alone",
		"0 s1 0 active up yes - - 256 0 - - - -",
		"SWITCH STATE BRIDGE GROUPS GENERATION CHAINED REPOINTED LAST TOOK PUT RIGHT sw1 LOCKED, drained br0 ipv4 7 of 256, ipv6 8 of 256 9 1 30 1.5ms neighbour 1, route 2",
		"SWITCH SERVER SLOT HEALTH NEXTHOPS FORWARDED TO IT BY PORT CONNECTIONS SINCE sw1 s1 0 up 256 - eth1 9 - sw1 s3 1 down (held) 0 s1 1 - 0 -",
		"sw1 is not ready: a router should not use it yet drained",
		"sw2 does not answer (no route to host): its nexthops are missing above",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	for _, not := range []string{"s1: packets", "fallback", "faild, hash, ipip"} {
		if strings.Contains(text, not) {
			t.Errorf("the table has %q:\n%s", not, &out)
		}
	}
}

// -o json has what the table says, under names that stay.
func TestStatusJSONChains(t *testing.T) {
	data, err := json.Marshal(statusValue(chainAnswers(time.Now()), nil))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Daemons []struct {
			Name, Role string
			VIPs       []struct {
				Serving string
				MPTCP   bool
				Buckets *struct {
					Count, Generation, Chained, Deputies, Renewed, Forgotten, Owned int
					GenerationSeen                                                  int   `json:"generation_seen"`
					ChainsEnd                                                       int64 `json:"chains_end_unix_ms"`
				}
				Slots []struct {
					Buckets    int
					PreviousOf int `json:"previous_of"`
				}
			}
			Switch *struct {
				Drained, Locked bool
				Hosts           []struct {
					Server, State string
					Nexthops      int
					PreviousOf    []struct {
						Server   string
						Nexthops int
					} `json:"previous_of"`
				}
			}
		}
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	lb, host, sw := v.Daemons[0].VIPs[0], v.Daemons[3].VIPs[0], v.Daemons[4]
	if b := lb.Buckets; !lb.MPTCP || b.Count != 4096 || b.Chained != 2048 || b.Renewed != 4 || b.Deputies != 5 || b.Forgotten != 6 || b.ChainsEnd == 0 || lb.Slots[1].PreviousOf != 2048 {
		t.Errorf("balancer: %+v", lb)
	}
	if host.Serving != "down" || host.Buckets.Owned != 34 || host.Buckets.GenerationSeen != 5 {
		t.Errorf("host: %+v", host)
	}
	if sw.Role != "switch" || !sw.Switch.Drained || !sw.Switch.Locked || sw.Switch.Hosts[1].State != "down" || sw.Switch.Hosts[1].PreviousOf[0].Nexthops != 1 || sw.VIPs[0].Slots[0].Buckets != 256 {
		t.Errorf("switch: %+v", sw)
	}
}
