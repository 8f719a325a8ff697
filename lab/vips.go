package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/vip"
)

// VIP is one VIP of a lab's fairlead.yaml, on all servers.
type VIP struct {
	Name     string     `json:"name"`
	Address  netip.Addr `json:"address"`
	Port     int        `json:"port"`
	Protocol string     `json:"protocol"`
	Scheme   string     `json:"scheme"`
	Policy   string     `json:"policy"`
	// Hash is the consistent hash; empty: the default.
	Hash string `json:"hash,omitempty"`
	// WarmUp is how long connections of before a change that was not in the
	// horizon are held; 0: the default, hours.
	WarmUp time.Duration `json:"warm_up,omitempty"`
	// Standby puts the servers that are not in the pools at the start into
	// this VIP's horizon.
	Standby bool `json:"standby,omitempty"`
	// Forwarding; empty: the lab's.
	Forwarding string `json:"forwarding,omitempty"`
	// Buckets and ChainTime of schemes beamer and faild; 0: the defaults.
	Buckets   int           `json:"buckets,omitempty"`
	ChainTime time.Duration `json:"chain_time,omitempty"`
	// MPTCP takes joins of Multipath TCP to their connections' servers (scheme
	// beamer).
	MPTCP bool `json:"mptcp,omitempty"`
	// Handshake is who answers SYNs; empty: the stack.
	Handshake string `json:"handshake,omitempty"`
	// Affinity "address" sends all connections of a client to one server.
	Affinity string `json:"affinity"`
	// Health is the check's type, tcp or http; empty: none.
	Health string `json:"health"`
	// Tiers is the forwarding between two tiers of balancers; empty: there is one tier.
	Tiers string `json:"tiers,omitempty"`
	// SeatBits of scheme cheetah-stateful; 0: the default.
	SeatBits int `json:"seat_bits,omitempty"`
	// Rates are limits, as the file has them; empty: none.
	Rates string `json:"rates,omitempty"`
	// Anew: scenario migrate-scheme takes it away and makes it anew.
	Anew bool `json:"anew,omitempty"`
	// NoClamp leaves the MSS alone: tunnels then need room, or their
	// packets are answered with "packet too big".
	NoClamp bool `json:"no_clamp"`
}

// Ports of a lab's services.
const (
	httpPort  = 80
	echoPort  = 7
	iperfPort = 5201
)

// healthPath is what checks ask a lab's server, and what makes it fail them.
const healthPath = "/health"

// Endpoint is address:port as clients write it.
func (v VIP) Endpoint() string {
	return netip.AddrPortFrom(v.Address, uint16(v.Port)).String()
}

// bare tells a VIP that Fairlead does not know: the lab makes routes for it,
// to compare with (drainswitch.go).
func (v VIP) bare() bool { return v.row().Name == "" }

// row is a zero one for a bare VIP.
func (v VIP) row() vip.SchemeRow { return vip.Scheme(v.Scheme).Row() }

// breaks tells whether the scheme breaks connections when servers change.
func (v VIP) breaks() bool { return !v.row().Foresees() && !v.row().Chains() }

// weighted tells whether the VIP knows weights; one that does not refuses them.
func (v VIP) weighted() bool {
	return vip.Policy(v.Policy).Row().Weighted && (v.Hash == "" || chash.Kind(v.Hash).Weighted())
}

// standardVIPs are those of `lab up`: a web service with the chosen scheme
// and policy, a UDP echo, and iperf3, whose control and data connections must
// meet one server; each in both families.
func standardVIPs(o Options) []VIP {
	var vips []VIP
	row := vip.Scheme(o.Scheme).Row()
	// Linux cannot tell a client of an IPv6 address and a port beside TCP
	// timestamps: the options have no room.
	for i, address := range []netip.Addr{vipAddress4(1), vipAddress6(1)} {
		suffix := []string{"", "6"}[i]
		vips = append(vips,
			VIP{Name: "web" + suffix, Address: address, Port: httpPort, Protocol: "tcp", Scheme: o.Scheme, Policy: o.Policy, Health: "http",
				MPTCP: row.Hops && (address.Is4() || o.NoTimestamps)},
			VIP{Name: "echo" + suffix, Address: address, Port: echoPort, Protocol: "udp", Scheme: o.Scheme, Policy: "hash"},
		)
		if row.Switched { // a switch knows no affinity
			continue
		}
		vips = append(vips,
			VIP{Name: "iperf" + suffix, Address: address, Port: iperfPort, Protocol: "tcp", Scheme: o.Scheme, Policy: "hash", Affinity: "address"},
			VIP{Name: "iperf-udp" + suffix, Address: address, Port: iperfPort, Protocol: "udp", Scheme: o.Scheme, Policy: "hash", Affinity: "address"},
		)
	}
	for i := range vips {
		if row.Chains() && vips[i].Port == iperfPort && vips[i].Protocol == "udp" {
			// iperf3 listens for datagrams only while it is asked to.
			vips[i].Health = "tcp"
		}
		// The hash also places what cheetah has no cookie for.
		vips[i].Hash, vips[i].WarmUp, vips[i].Standby = o.Hash, o.WarmUp, o.Standby > 0
	}
	return vips
}

func (l *Lab) vipAddresses() []netip.Addr {
	var addresses []netip.Addr
	for _, v := range l.VIPs {
		if !slices.Contains(addresses, v.Address) {
			addresses = append(addresses, v.Address)
		}
	}
	return addresses
}

// pools are the VIPs that a change of a pool has to name: all, but of those
// behind switches one, because they share a pool.
func (l *Lab) pools() []VIP {
	var vips []VIP
	for _, v := range l.VIPs {
		if !v.bare() && (!v.row().Switched || !slices.ContainsFunc(vips, func(o VIP) bool { return o.row().Switched })) {
			vips = append(vips, v)
		}
	}
	return vips
}

// config is the lab's fairlead.yaml. The text, not a marshalled structure, so
// that it reads like one that a person would write.
func (l *Lab) config(secret string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Written by `fairlead lab`; the lab's machines are network namespaces.")
	p("secret: %s", secret)
	p("metrics: \"\"")
	if l.Exposed {
		p("tls: {ca: ca.pem, cert: cert.pem, key: key.pem}")
	}
	if !l.Before {
		l.configControllers(p)
	}
	if l.BGP {
		p("bgp: {local_as: %d, hold_time: 3s, graceful_restart: 30s}", FrontAS)
	}
	p("limits: {server_lines: 4096, table_entries: 1048576, flows: %d}", l.Flows)
	if l.faild() {
		l.configSwitches(p)
	} else {
		l.configBalancers(p)
	}
	p("servers:")
	for n := range l.Servers {
		name, address := fmt.Sprint("server", n+1), l.tunnelEnd(n+1)
		devices := []string{uplink}
		if l.faild() {
			devices = nil
			for i := range l.LBs {
				devices = append(devices, device(i))
			}
		}
		p("  - name: %s", l.daemonName(name))
		p("    address: %q", address)
		p("    api: %s", l.endpoint(name))
		p("    interfaces: [%s]", strings.Join(devices, ", "))
	}
	p("vips:")
	for _, v := range l.VIPs {
		if v.bare() {
			continue
		}
		p("  - name: %s", v.Name)
		p("    address: %q", v.Address)
		p("    port: %d", v.Port)
		p("    protocol: %s", v.Protocol)
		p("    scheme: %s", v.Scheme)
		p("    policy: %s", v.Policy)
		if v.Hash != "" {
			p("    hash: %s", v.Hash)
		}
		if v.WarmUp != 0 {
			p("    warm_up: %v", v.WarmUp)
		}
		if v.Affinity != "" {
			p("    affinity: %s", v.Affinity)
		}
		if !v.row().Switched {
			p("    forwarding: %s", cmp.Or(v.Forwarding, l.Forwarding))
		}
		if v.Buckets != 0 {
			p("    buckets: %d", v.Buckets)
		}
		if v.ChainTime != 0 {
			p("    chain_time: %v", v.ChainTime)
		}
		if v.MPTCP {
			p("    mptcp: true")
		}
		if v.Handshake != "" {
			p("    handshake: %s", v.Handshake)
		}
		if v.NoClamp {
			p("    mss_clamp: false")
		}
		if v.SeatBits != 0 {
			p("    seat_bits: %d", v.SeatBits)
		}
		if v.Rates != "" {
			p("    rates: %s", v.Rates)
		}
		if v.Tiers != "" {
			p("    tiers: {forwarding: %s}", v.Tiers)
		}
		if v.Health != "" {
			path := ""
			if v.Health == "http" {
				path = ", path: " + healthPath
			}
			if v.Protocol == "udp" { // checks speak TCP
				path += fmt.Sprint(", port: ", v.Port)
			}
			p("    health: {type: %s%s, interval: 1s, timeout: 1s, rise: 1, fall: 2}", v.Health, path)
		}
		p("    servers: [%s]", strings.Join(l.pool(v), ", "))
	}
	return b.String()
}

// tunnelEnd is server n's address in the configuration.
func (l *Lab) tunnelEnd(n int) netip.Addr {
	family := 0
	if l.IPv6 != (l.mixedFamilies() && n%2 == 0) {
		family = 1
	}
	return l.serverAddresses(n)[family]
}

func (l *Lab) configBalancers(p func(string, ...any)) {
	p("balancers:")
	for n, name := range l.fronts() {
		p("  - name: %s", l.daemonName(name))
		p("    api: %s", l.endpoint(name))
		p("    interfaces: [%s]", uplink)
		p("    source: %s", tunnelSource4(n+1))
		p("    source6: %s", tunnelSource6(n+1))
		if slices.Contains(l.SecondTier, n+1) {
			p("    tier: 2")
			p("    address: %s", lbAddress4(n+1))
			if n >= l.ActiveLBs {
				p("    drain: true")
			}
		}
		l.configBGP(p, n)
		if l.L2 {
			p("    l2: {}")
		}
	}
}

// The ASes of balancers and switches, and of the router.
const FrontAS, RouterAS = 65001, 65000

// configBGP has front n+1 announce to the router.
func (l *Lab) configBGP(p func(string, ...any), n int) {
	if l.BGP {
		p("    bgp: {router_id: %s, neighbours: [{address: %s, as: %[3]d}, {address: %[4]q, as: %[3]d}]}", lbAddress4(n+1), gateway4, RouterAS, gateway6)
	}
}

// FrontAddresses are those of balancer or switch n, from 1, on the router's Ethernet.
func FrontAddresses(n int) (four, six string) { return lbAddress4(n), lbAddress6(n) }

func (l *Lab) configSwitches(p func(string, ...any)) {
	p("switches:")
	for n, name := range l.fronts() {
		p("  - name: %s", l.daemonName(name))
		l.configBGP(p, n)
		p("    api: %s", l.endpoint(name))
		p("    bridge: %s", bridgeName)
		p("    announce_table: %d", announceTable)
		if l.BGP { // what is withdrawn when all servers fail shall be seen, not the lock that this looks like
			p("    lock_percent: 100")
		}
		p("    ports:")
		for _, server := range l.servers() {
			p("      %s: %s", l.daemonName(server), l.downlink(name, server).port)
		}
	}
}

// mixedFamilies tells whether every second server has an address of the other
// family. Servers that pass packets on to each other need one family.
func (l *Lab) mixedFamilies() bool {
	return l.Mixed && !l.IPv6 && !l.chained()
}

// chained tells whether servers pass packets on to each other.
func (l *Lab) chained() bool {
	return slices.ContainsFunc(l.VIPs, func(v VIP) bool { return v.row().Chains() })
}

// offloads tells whether agents answer SYNs of some VIP.
func (l *Lab) offloads() bool {
	return slices.ContainsFunc(l.VIPs, func(v VIP) bool { return v.Handshake == vip.HandshakeOffload })
}

// pool names the servers that are in a VIP's pool at the start.
func (l *Lab) pool(v VIP) []string {
	var names []string
	for i, s := range l.servers() {
		switch name := l.daemonName(s); {
		case i < l.ActiveServers:
			names = append(names, name)
		case v.Standby:
			names = append(names, fmt.Sprintf("{name: %s, standby: true}", name))
		}
	}
	return names
}

func (l *Lab) socket(machine string) string { return l.path(machine + ".sock") }
