package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/kernel/host"
)

// featureTCPMicroseconds is RTAX_FEATURE_TCP_USEC_TS (linux/rtnetlink.h):
// timestamps of connections over the route count microseconds.
const featureTCPMicroseconds = 1 << 4

// server: what the agent and the stack behind it need.
func (r *report) server(cfg *config.Config, s *config.Server) {
	interfaces := s.Interfaces
	if len(interfaces) == 0 {
		name, err := config.InterfaceOf(s.Address)
		if err != nil {
			r.fail("interface", err.Error(), "name it under servers[].interfaces")
		} else {
			interfaces = []string{name}
		}
	}
	for _, name := range interfaces {
		r.device(name)
		if reversePath(name) == 1 {
			r.warn("rp_filter "+name, "strict: packets out of the tunnel are dropped unless the route to their client leaves by "+name,
				fmt.Sprintf("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.%s.rp_filter=2", name))
		}
	}
	r.served(cfg, s, r.loaded(s.Name, host.Pins(interfaces)))
	r.faildMAC(cfg, s.Name, interfaces)
	r.timestamps()
	r.handshakes(cfg, s)
	r.microseconds()
	r.addressResolution(cfg, s, interfaces)
	r.answerRoom(cfg, s)
}

// timestamps: they carry the cookie.
func (r *report) timestamps() {
	switch v := sysctl("net/ipv4/tcp_timestamps"); v {
	case "0":
		r.fail("tcp_timestamps", "off: answers can carry no cookie, so every connection goes by the fallback", "sysctl -w net.ipv4.tcp_timestamps=2 (or 1)")
	case "2":
		r.ok("tcp_timestamps", "2: no socket look-up on the way in")
	default:
		r.ok("tcp_timestamps", v+": right, with one socket look-up a packet on the way in; 2 saves it (new connections only, and hides no uptime)")
	}
}

// handshakes: whether the kernel takes those that the agent has answered.
func (r *report) handshakes(cfg *config.Config, s *config.Server) {
	for _, v := range cfg.VIPs {
		if !v.Offloads() || !member(v, s.Name) {
			continue
		}
		if why := host.OffloadProblem(); why != "" {
			r.warn("handshake", "vip "+v.Name+" is to have its handshakes offloaded, but the stack will answer: "+why, "see there, or write handshake: stack")
		} else {
			r.ok("handshake", "can be offloaded, for listeners that are not MPTCP's")
		}
		return
	}
}

// microseconds: the cookie counts on milliseconds.
func (r *report) microseconds() {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		r.warn("tcp_usec_ts", "routes cannot be read: "+err.Error(), "")
		return
	}
	var bad []string
	for _, route := range routes {
		if route.Features&featureTCPMicroseconds != 0 {
			to := "default"
			if route.Dst != nil {
				to = route.Dst.String()
			}
			bad = append(bad, to)
		}
	}
	if len(bad) > 0 {
		r.fail("tcp_usec_ts", "routes "+strings.Join(bad, ", ")+" have the feature tcp_usec_ts: their timestamps count microseconds, which wrap the cookie's clock within seconds",
			"replace them without it (ip route change … without features tcp_usec_ts)")
		return
	}
	r.ok("tcp_usec_ts", "no route uses it")
}

// addressResolution: the VIP is on this machine's loopback; the machine must
// not answer ARP for it where the balancer's network would hear.
func (r *report) addressResolution(cfg *config.Config, s *config.Server, interfaces []string) {
	said := map[string]bool{} // the remedy is the interface's, whatever the VIP
	for _, v := range cfg.VIPs {
		if !v.Address.Is4() || !member(v, s.Name) {
			continue
		}
		for _, name := range interfaces {
			hears := !v.Forwarding.Row().Tunnel || cfg.Layered() || inNetworkOf(name, v.Address)
			ignore, announce := larger("arp_ignore", name), larger("arp_announce", name)
			if !hears || ignore >= 1 && announce >= 2 || said[name] {
				continue
			}
			detail := fmt.Sprintf("arp_ignore %d, arp_announce %d: this server answers ARP for VIP %s and takes its traffic from the balancer", ignore, announce, v.Address)
			remedy := fmt.Sprintf("sysctl -w net.ipv4.conf.%[1]s.arp_ignore=1 net.ipv4.conf.%[1]s.arp_announce=2", name)
			r.fail("arp "+name, detail, remedy)
			said[name] = true
		}
	}
	if len(said) == 0 {
		r.ok("arp", "this server does not take a VIP's address in the balancer's network")
	}
}

// answerRoom: full-size answers go straight to clients; tunnels that come in
// need an interface that accepts larger frames.
func (r *report) answerRoom(cfg *config.Config, s *config.Server) {
	name, err := config.InterfaceOf(s.Address)
	if err != nil {
		return // said above
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return
	}
	for _, t := range tunnelsTo(cfg, s) {
		if t.clamped {
			continue
		}
		need := fullSize + t.bytes
		if mtu := link.Attrs().MTU; mtu < need {
			r.warn("mtu "+name, fmt.Sprintf("%d: full-size packets inside %s need %d", mtu, t.forwarding, need),
				fmt.Sprintf("ip link set %s mtu %d (and a route mtu of %d towards clients), or leave mss_clamp on", name, need, fullSize))
			return
		}
	}
	r.ok("mtu "+name, "room for every forwarding in use")
}

func member(v config.VIP, server string) bool {
	return slices.ContainsFunc(v.Servers, func(m config.Member) bool { return m.Name == server })
}

// inNetworkOf says whether a neighbour on the interface would ask ARP for
// the address.
func inNetworkOf(name string, a netip.Addr) bool {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return false
	}
	addrs, err := i.Addrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addrs, func(n net.Addr) bool {
		p, err := netip.ParsePrefix(n.String())
		return err == nil && p.Contains(a)
	})
}
