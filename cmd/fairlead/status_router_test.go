package main

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// What each router has in force and left to its kernel, and why it does not use
// a next hop, under the table.
func TestStatusTableRouters(t *testing.T) {
	router := func(name string, packets uint64, why string) answer {
		return answer{name: name, role: "router", status: &fairleadv1.GetStatusResponse{
			Name: name, Role: fairleadv1.Role_ROLE_ROUTER,
			Reasons: []*fairleadv1.Reason{{Name: "ttl"}, {Name: "no_xmit", Packets: packets, Bytes: 2 * packets}},
			Router: &fairleadv1.Router{
				Selector: &fairleadv1.RouterSelector{Permutation: "feistel", Radix: 16, Ipv4: "ports", Ipv6: "flow-label", Digest: "aa"},
				Routes: []*fairleadv1.RouterRoutes{{Kind: "forward", Ipv4: 3, Ipv6: 1}, {Kind: "local", Ipv4: 12, Ipv6: 6},
					{Kind: "connected", Ipv4: 2}, {Kind: "beyond", Ipv4: 1, Ipv6: 1}},
				Hops: []*fairleadv1.RouterHop{{Port: 0, Interface: "eth1", Gateway: "10.9.0.2", Usable: why == "", Why: why, Selected: 7}},
			},
		}}
	}
	var out strings.Builder
	if err := statusTable(&out, []answer{router("leaf1", 5, "its device has no carrier"), router("leaf2", 0, "")}, nil, nil); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"ROUTER SELECTOR FORWARDED ROUTES OWN ADDRESSES LEFT TO THE KERNEL GROUPS",
		"leaf1 feistel, radix 16, ports/flow-label 3 IPv4, 1 IPv6 12 IPv4, 6 IPv6 3 IPv4, 1 IPv6",
		"leaf1 0 eth1 10.9.0.2 - - no 7", "leaf2 0 eth1 10.9.0.2 - - yes 7",
		"leaf1 does not use next hop 10.9.0.2 dev eth1: its device has no carrier ROUTER LEFT TO THE KERNEL PACKETS BYTES leaf1 no_xmit 5 10",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(text, "leaf2 no_xmit") || strings.Contains(text, "ttl") {
		t.Errorf("zeros are printed:\n%s", &out)
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if len(line) > 160 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
}
