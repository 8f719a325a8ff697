package model

import (
	"strings"

	"github.com/fairlead/fairlead/bpf"
)

// Reason is why a packet went where it went. Known is a connection's later
// packet, by its cookie or, under jet and full-ct, by the flow table or the hash.
type Reason = bpf.Reason

// ReasonName is what trace calls it: as C does.
func ReasonName(r Reason) string { return strings.ToUpper(r.String()) }

// Explain says the reason in words, for people.
func Explain(r Reason) string {
	return [...]string{
		"it is neither IPv4 nor IPv6, or has more than one VLAN tag: the kernel gets it",
		"it is addressed to no VIP: the kernel gets it",
		"it is addressed to a VIP's address, but to nothing that is served there: the kernel gets it",
		"its frame is to another machine's MAC address, to many, or of a VLAN that this machine has not: the kernel gets it",
		"it opens a connection: the policy or the consistent hash chooses the server",
		"it is TCP without timestamps, so it can carry no cookie: flow table, then consistent hash",
		"it is UDP, which carries no cookie: flow table, then consistent hash",
		"its cookie names no server of this VIP: consistent hash",
		"the VIP's scheme is stateless: consistent hash",
		"it is an ICMP error about a server's packet, and goes to that server",
		"it is a fragment, and the VIP sends fragments by addresses",
		"it is an ICMP echo request, which the balancer answers",
		"it does not fit the tunnel to its server: the sender is told the size that does",
		"it is an RST without timestamp: every server of the VIP gets a copy",
		"it is an ICMP error that quotes no cookie: every server of the VIP gets a copy",
		"its IP header contradicts itself or the frame, has a wrong checksum, or its time to live is 0",
		"its TCP, UDP or ICMP header contradicts itself or the packet",
		"its TCP options are malformed",
		"it is a fragment, and the VIP drops fragments (fragments: addresses would forward them)",
		"no server takes it",
		"the MAC address of the way to its server is not known (yet)",
		"it does not fit the tunnel to its server, and the sender cannot be told",
		"it would be copied to every server, but the bound on that is used up (limits.ask_rate)",
		"it is an ICMP echo request, and the VIP's icmp_echo is off",
		"the driver left no room to encapsulate it",
		"its cookie names a balancer of tier two that is down: another takes it, by the hash",
		"its cookie names another balancer of tier two: it goes to the server that the cookie names as well",
		"it came in a tunnel from none of the balancers of tier one",
		"it came in a tunnel from tier one, and is for no VIP",
		"it belongs to a known connection: its cookie, the flow table or the consistent hash names its server",
	}[r]
}
