package vip

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/wire"
)

// Policy is how the server of a connection's first packet is chosen.
type Policy string

const (
	RR        Policy = "rr"
	WRR       Policy = "wrr"
	P2C       Policy = "p2c"
	LeastConn Policy = "least-conn"
	// ByTheHash is policy hash: by the VIP's consistent hash, or its buckets.
	ByTheHash Policy = "hash"
)

// PolicyRow is a policy's row.
type PolicyRow struct {
	Name Policy
	// Number is fl_policy's.
	Number uint8
	// Weighted: servers may differ in weight.
	Weighted bool
	// Hashes: the place of a connection follows from its packets alone, so that
	// it may be its client's address's.
	Hashes bool
}

var policies = []PolicyRow{
	{Name: RR, Number: 0},
	{Name: WRR, Number: 1, Weighted: true},
	{Name: P2C, Number: 2, Weighted: true},
	{Name: LeastConn, Number: 3, Weighted: true},
	{Name: ByTheHash, Number: 4, Weighted: true, Hashes: true},
}

// Row is p's row, a zero one if there is no such policy.
func (p Policy) Row() PolicyRow {
	return find(policies, func(r *PolicyRow) bool { return r.Name == p })
}

// PolicyOf is the row of fl_policy's number, a zero one if nobody has it.
func PolicyOf(number uint8) PolicyRow {
	return find(policies, func(r *PolicyRow) bool { return r.Number == number })
}

// Hash is a consistent hash; what it can do is said by its methods.
type Hash = chash.Kind

// DefaultHash is that of a VIP whose entry names none, and that of assignments
// from before there was a choice.
const DefaultHash = chash.KindTableHRW

// Forwarding is how a packet gets to the server.
type Forwarding string

const (
	IPIP Forwarding = "ipip"
	GUE  Forwarding = "gue"
	L2   Forwarding = "l2"
)

// ForwardingRow is a forwarding's row.
type ForwardingRow struct {
	Name Forwarding
	// Number is fl_forwarding's.
	Number uint8
	// Tunnel: a header goes before the packet, which so leaves layer 2, and
	// carries Hops.
	Tunnel bool
	// Header4 and Header6 are how many bytes that header has over each family,
	// and Hops4 and Hops6 those of hops.
	Header4, Header6, Hops4, Hops6 int
	// NoSteer is why its path cannot be chosen, and how to choose it; empty: it can,
	// by the ports of fabric/steer's tunnels.
	NoSteer, Instead string
}

// Steers says whether its path can be chosen.
func (r ForwardingRow) Steers() bool { return r.NoSteer == "" }

// forwardings: the first is the default.
var forwardings = []ForwardingRow{
	{Name: IPIP, Number: 1, Tunnel: true, Header4: 20, Header6: 40, Hops4: wire.HopsBytes, Hops6: wire.HopsBytes + 8,
		NoSteer: "routers read a path in ports, and forwarding ipip's tunnels have none", Instead: "write forwarding: gue"},
	{Name: GUE, Number: 2, Tunnel: true, Header4: 20 + 8 + 4, Header6: 40 + 8 + 4, Hops4: wire.HopsBytes, Hops6: wire.HopsBytes},
	{Name: L2, Number: 3,
		NoSteer: "forwarding l2 makes no tunnel whose path could be chosen: the server is on the same link", Instead: "write forwarding: gue, or remove steer"},
}

// DefaultForwarding is that of a VIP whose entry names none.
var DefaultForwarding = forwardings[0].Name

// Forwardings are all forwardings' rows.
func Forwardings() []ForwardingRow { return forwardings }

// Row is f's row, a zero one if there is no such forwarding.
func (f Forwarding) Row() ForwardingRow {
	return find(forwardings, func(r *ForwardingRow) bool { return r.Name == f })
}

// ForwardingOf is the row of fl_forwarding's number, a zero one if nobody has
// it.
func ForwardingOf(number uint8) ForwardingRow {
	return find(forwardings, func(r *ForwardingRow) bool { return r.Number == number })
}

// Overhead is how many bytes stand before a packet on its way to server, with
// hops or without.
func (r ForwardingRow) Overhead(server netip.Addr, hops bool) (n int) {
	n, more := r.Header4, r.Hops4
	if server.Unmap().Is6() {
		n, more = r.Header6, r.Hops6
	}
	if hops {
		n += more
	}
	return n
}

// The other words of a VIP's settings.
const (
	TCP = "tcp"
	UDP = "udp"

	Connection = "connection"
	Address    = "address"

	HandshakeStack   = "stack"
	HandshakeOffload = "offload"

	Drop      = "drop"
	Addresses = "addresses"

	SteerOff        = "off"
	SteerServer     = "server"
	SteerConnection = "connection"
)

// Bounds of warm_up. The longest is the default, and what the flow table
// remembers a silent connection for (bpf/lb): after a longer one, connections
// would have moved that are silent for less.
const (
	MinWarmUp        = 100 * time.Millisecond
	DefaultWarmUp    = 2*time.Hour + 4*time.Minute
	DefaultWarmUpUDP = 2 * time.Minute
)

// MaxWarmUp is the longest warm_up of a VIP with the given protocol, and its
// default.
func MaxWarmUp(protocol string) time.Duration {
	if protocol == UDP {
		return DefaultWarmUpUDP
	}
	return DefaultWarmUp
}

// SchemeNames, PolicyNames, CarrierNames, ForwardingNames and HashNames are all
// there are, in the order in which people are told of them.
func SchemeNames() []string {
	return names(schemes, func(r *SchemeRow) Scheme { return r.Name })
}

func PolicyNames() []string {
	return names(policies, func(r *PolicyRow) Policy { return r.Name })
}

func CarrierNames() []string {
	return names(carriers, func(r *CarrierRow) Carrier { return r.Name })
}

func ForwardingNames() []string {
	return names(forwardings, func(r *ForwardingRow) Forwarding { return r.Name })
}

// TunnelNames are the forwardings that put a header before a packet.
func TunnelNames() (names []string) {
	for _, f := range forwardings {
		if f.Tunnel {
			names = append(names, string(f.Name))
		}
	}
	return names
}

func HashNames() []string {
	return []string{string(chash.KindTableHRW), string(chash.KindAnchor), string(chash.KindRing), string(chash.KindHRW), string(chash.KindDx), string(chash.KindMaglev), string(chash.KindBucket)}
}

func names[R any, N ~string](rows []R, name func(*R) N) []string {
	all := make([]string, len(rows))
	for i := range rows {
		all[i] = string(name(&rows[i]))
	}
	return all
}

// Overhead is how many bytes stand before a packet of a VIP on its way to
// server.
func Overhead(s Scheme, f Forwarding, server netip.Addr) int {
	r := s.Row()
	if r.Switched {
		return 0
	}
	return f.Row().Overhead(server, r.Hops)
}
