package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/kernel/ethtool"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// fullSize is the packet that clients on the Internet and in most data
// centres send.
const fullSize = 1500

// neighbourTime is how long a neighbour has to answer.
const neighbourTime = time.Second

// balancer: interfaces, the way and the room to each server, and what the
// kernel does with packets that the program passes on.
func (r *report) balancer(ctx context.Context, cfg *config.Config, b *config.Balancer) {
	for _, name := range b.Interfaces {
		r.device(name)
	}
	r.loaded(b.Name, lb.Pins(b.Interfaces))
	for i := range cfg.Servers {
		if tunnels := tunnelsTo(cfg, &cfg.Servers[i]); len(tunnels) > 0 {
			r.way(ctx, &cfg.Servers[i], tunnels, b.Interfaces)
		}
	}
	if slices.ContainsFunc(cfg.VIPs, func(v config.VIP) bool { return v.Health != nil }) {
		r.checksLeave()
	}
	r.passedOn(cfg)
	if b.L2 != nil {
		r.held(cfg, b)
	}
}

// held: addresses that are held on an Ethernet have to be asked for there, and are not
// the kernel's.
func (r *report) held(cfg *config.Config, b *config.Balancer) {
	for _, name := range b.L2.Interfaces {
		check := "l2 " + name
		link, err := netlink.LinkByName(name)
		switch {
		case err != nil:
			r.fail(check, err.Error(), "correct l2.interfaces of "+b.Name)
		case len(link.Attrs().HardwareAddr) != len(wire.MAC{}):
			r.fail(check, "is no Ethernet: nobody asks for addresses there", "name one that is in l2.interfaces of "+b.Name)
		default:
			r.ok(check, "answers for the addresses that "+b.Name+" holds")
		}
	}
	var vips []netip.Addr
	for _, v := range cfg.VIPs {
		if !v.Scheme.Row().Switched && !slices.Contains(vips, v.Address) {
			vips = append(vips, v.Address)
		}
	}
	r.servedHere(vips)
}

// checksLeave: health checks go by the loopback first.
func (r *report) checksLeave() {
	const check, remedy = "health checks", "ip link set lo up"
	lo, err := netlink.LinkByName("lo")
	switch {
	case err != nil:
		r.fail(check, err.Error(), remedy)
	case lo.Attrs().Flags&net.FlagUp == 0:
		r.fail(check, "the loopback, by which they leave, is down: what was known of servers stays", remedy)
	default:
		r.ok(check, "the loopback is up")
	}
}

// device: does it exist, is it up, will XDP's frames arrive whole.
func (r *report) device(name string) {
	check := "interface " + name
	link, err := netlink.LinkByName(name)
	if err != nil {
		r.fail(check, err.Error(), "name one that `ip link` shows under interfaces")
		return
	}
	attrs := link.Attrs()
	detail, before := fmt.Sprintf("%s, mtu %d", link.Type(), attrs.MTU), len(r.checks)
	if attrs.Flags&net.FlagUp == 0 {
		r.fail(check, "is down", "ip link set "+name+" up")
	}
	if link.Type() == "veth" {
		// A veth hands checksums over unfinished; a frame that XDP sends on
		// leaves with them so (seen: every such packet is lost).
		if ethtool.On(name, ethtool.TXChecksum) {
			r.fail(check, "a veth with tx checksum offload: what XDP sends on has wrong checksums", "ethtool -K "+name+" tx off (on the peer as well, if its senders are local)")
		}
		if ethtool.Off(name, ethtool.GRO) {
			r.warn(check, "a veth without GRO does native XDP only while a program is on it", "ethtool -K "+name+" gro on, and the same for its peer: both ends need it")
		}
		// The peer is in another namespace as a rule, where we cannot look, so
		// this stays a warning where all is well.
		r.warn(check, detail+": its peer needs an XDP program too, else what XDP sends on waits there (doctor cannot look at the peer)",
			"on the peer, put one that passes everything: ip link set PEER xdp object pass.o section xdp")
	}
	if len(r.checks) == before {
		r.ok(check, detail)
	}
}

// way: route, neighbour and MTU towards one server. It may lead by another than the
// balancer's interfaces.
func (r *report) way(ctx context.Context, s *config.Server, tunnels []tunnel, interfaces []string) {
	check := "way to " + s.Name
	ip := net.IP(s.Address.AsSlice())
	routes, err := netlink.RouteGet(ip)
	if err != nil || len(routes) == 0 {
		r.fail(check, fmt.Sprintf("no route to %s: %v", s.Address, err), "add one (ip route add), or correct the server's address")
		return
	}
	route := routes[0]
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		r.fail(check, err.Error(), "")
		return
	}
	hop, onLink := ip, true
	if route.Gw != nil {
		hop, onLink = route.Gw, false
	}
	if link.Attrs().Flags&net.FlagLoopback != 0 {
		r.fail(check, s.Address.String()+" is this machine's own address", "a balancer cannot be a server of its own VIPs: correct the server's address")
		return
	}
	before := len(r.checks)
	if l2 := slices.ContainsFunc(tunnels, func(t tunnel) bool { return !t.forwarding.Row().Tunnel }); l2 && !onLink {
		r.fail(check, fmt.Sprintf("%s is behind the gateway %s, but forwarding l2 needs it in the same network", s.Address, hop), "use forwarding "+strings.Join(vip.TunnelNames(), " or "))
	}
	mac, err := neighbour(ctx, route.LinkIndex, hop)
	if err != nil {
		r.fail(check, fmt.Sprintf("next hop %s on %s does not answer: %v", hop, link.Attrs().Name, err), "is the machine up, and in this network? See ip neigh show dev "+link.Attrs().Name)
	}
	mtu := link.Attrs().MTU
	if route.MTU > 0 {
		mtu = min(mtu, route.MTU)
	}
	for _, t := range tunnels {
		if t.clamped {
			continue // TCP's segments are made to fit
		}
		if need := fullSize + t.bytes; mtu < need {
			r.warn(check, fmt.Sprintf("mtu %d on %s leaves %d bytes for packets inside %s: larger ones are refused towards the client (path MTU discovery)",
				mtu, link.Attrs().Name, mtu-t.bytes, t.forwarding),
				fmt.Sprintf("raise the mtu to %d on both ends (ip link set %s mtu %d), or leave mss_clamp on", need, link.Attrs().Name, need))
			break // the largest tunnel: with room for it there is room for all
		}
	}
	if len(r.checks) == before {
		by := ""
		if !slices.Contains(interfaces, link.Attrs().Name) {
			by = "; not of balancers[].interfaces: answers of health checks are taken there, too"
		}
		r.ok(check, fmt.Sprintf("via %s (%s) on %s, mtu %d%s", hop, mac, link.Attrs().Name, mtu, by))
	}
}

// neighbour is the MAC of a next hop, asked for where it is not known.
func neighbour(ctx context.Context, index int, hop net.IP) (net.HardwareAddr, error) {
	family := netlink.FAMILY_V4
	if hop.To4() == nil {
		family = netlink.FAMILY_V6
	}
	ask := &netlink.Neigh{LinkIndex: index, IP: hop, State: netlink.NUD_NONE, Flags: netlink.NTF_USE}
	const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP
	deadline, cancel := context.WithTimeout(ctx, neighbourTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for asked := false; ; {
		list, err := netlink.NeighList(index, family)
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if n.IP.Equal(hop) && n.State&usable != 0 && len(n.HardwareAddr) > 0 {
				return n.HardwareAddr, nil
			}
		}
		if !asked {
			if err := netlink.NeighSet(ask); err != nil {
				return nil, fmt.Errorf("ask for it: %w", err)
			}
			asked = true
		}
		select {
		case <-deadline.Done():
			return nil, fmt.Errorf("no neighbour entry within %v", neighbourTime)
		case <-tick.C:
		}
	}
}

// passedOn: packets to a VIP's address that are not for a VIP go to the
// kernel; a machine that forwards sends them back to the router they came
// from, round and round until their TTL is gone.
func (r *report) passedOn(cfg *config.Config) {
	forwards := map[bool]string{false: sysctl("net/ipv4/ip_forward"), true: sysctl("net/ipv6/conf/all/forwarding")}
	said := map[netip.Addr]bool{}
	for _, v := range cfg.VIPs {
		if forwards[v.Address.Is6()] != "1" || said[v.Address] {
			continue
		}
		routes, err := netlink.RouteGet(net.IP(v.Address.AsSlice()))
		if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
			continue // refused, a blackhole, or local: nothing goes round
		}
		r.warn("forwarding", fmt.Sprintf("this machine forwards, and has a route to VIP %s: packets to %s for no VIP's port go back to the router until their TTL ends", v.Name, v.Address),
			fmt.Sprintf("ip route add blackhole %s", netip.PrefixFrom(v.Address, v.Address.BitLen())))
		said[v.Address] = true
	}
	if len(said) == 0 {
		r.ok("forwarding", "packets for no VIP do not go round")
	}
}

// tunnel is what balancers put before the packets of a VIP to one server.
type tunnel struct {
	forwarding vip.Forwarding
	bytes      int
	// clamped: all its packets are TCP whose MSS is, so that no full-size
	// packet goes that way.
	clamped bool
}

// tunnelsTo is the tunnels of the VIPs that name the server, one of each
// kind, the largest first; frames of switches (scheme faild) are in none.
func tunnelsTo(cfg *config.Config, s *config.Server) (all []tunnel) {
	for _, v := range cfg.VIPs {
		if v.Scheme.Row().Switched || !member(v, s.Name) {
			continue
		}
		t := tunnel{v.Forwarding, vip.Overhead(v.Scheme, v.Forwarding, s.Address), v.Protocol == vip.TCP && v.MSSClamp != nil && *v.MSSClamp}
		i := slices.IndexFunc(all, func(o tunnel) bool { return o.forwarding == t.forwarding && o.bytes == t.bytes })
		if i < 0 {
			all = append(all, t)
		} else {
			all[i].clamped = all[i].clamped && t.clamped
		}
	}
	slices.SortFunc(all, func(a, b tunnel) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.forwarding, b.forwarding))
	})
	return all
}

// reversePath is the reverse path filter in force on an interface: the
// larger of all and its own.
func reversePath(name string) int { return larger("rp_filter", name) }

func larger(setting, name string) int {
	number := func(s string) int {
		if len(s) == 1 && s[0] >= '0' && s[0] <= '9' {
			return int(s[0] - '0')
		}
		return 0
	}
	return max(number(sysctl("net/ipv4/conf/all/"+setting)), number(sysctl("net/ipv4/conf/"+name+"/"+setting)))
}
