package model

// Reason is why a packet went where it went: fl_reason of
// bpf/include/balancer.h, in its order (TestReasonsAreTheHeaders).
type Reason int

const (
	PassNotIP Reason = iota
	PassNoVIP
	PassVIPOther
	PassNotMine
	ForwardNew
	ForwardNoTimestamp
	ForwardUDP
	ForwardBadCookie
	ForwardStateless
	ForwardICMP
	ForwardFragment
	ReplyEcho
	ReplyTooBig
	AskRST
	AskICMP
	DropMalformedIP
	DropMalformedL4
	DropMalformedOption
	DropFragment
	DropNoServer
	DropUnresolved
	DropTooBig
	DropAskLimit
	DropEcho
	DropHeadroom
	// Known is a connection's later packet, by its cookie or, under jet and
	// full-ct, by the flow table or the hash: it counts in its server's line
	// only (FL_KNOWN, FL_REASON_COUNT).
	Known
)

var reasonNames = [...]string{
	"PASS_NOT_IP", "PASS_NO_VIP", "PASS_VIP_OTHER", "PASS_NOT_MINE",
	"FORWARD_NEW", "FORWARD_NO_TIMESTAMP", "FORWARD_UDP", "FORWARD_BAD_COOKIE", "FORWARD_STATELESS",
	"FORWARD_ICMP", "FORWARD_FRAGMENT",
	"REPLY_ECHO", "REPLY_TOO_BIG", "ASK_RST", "ASK_ICMP",
	"DROP_MALFORMED_IP", "DROP_MALFORMED_L4", "DROP_MALFORMED_OPTION", "DROP_FRAGMENT",
	"DROP_NO_SERVER", "DROP_UNRESOLVED", "DROP_TOO_BIG", "DROP_ASK_LIMIT", "DROP_ECHO", "DROP_HEADROOM",
	"KNOWN",
}

// String is the name in C, metrics and docs.
func (r Reason) String() string { return reasonNames[r] }

// Explain says the reason in words, for people.
func (r Reason) Explain() string {
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
		"it belongs to a known connection: its cookie, the flow table or the consistent hash names its server",
	}[r]
}
