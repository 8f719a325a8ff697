package swtch

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/tables"
)

var (
	vip4 = netip.MustParseAddr("10.99.0.1")
	vip6 = netip.MustParseAddr("2001:db8:99::1")
)

// network is a switch with a client before it and servers behind its bridge:
//
//	client ── uplink ┃ switch: routes ─▶ br0 ┃ port0 ── eth0 server 0
//	                                     ┃ port1 ── eth0 server 1 ...
type network struct {
	t       *testing.T
	sw      *hosttest.Namespace
	client  *hosttest.Namespace
	servers []*hosttest.Namespace
}

func newNetwork(t *testing.T, servers int) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	n := &network{t: t, sw: namespace(t), client: namespace(t)}
	n.run(n.sw, "ip link set lo up; ip link add br0 type bridge forward_delay 0 mcast_snooping 0; ip link set br0 up; ip addr add 10.2.0.254/24 dev br0; ip -6 addr add 2001:db8:2::fe/64 dev br0 nodad")
	sysctls(t, n.sw, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	n.pair(n.sw, "uplink", n.client, "eth0")
	n.run(n.sw, "ip addr add 10.1.0.254/24 dev uplink; ip -6 addr add 2001:db8:1::fe/64 dev uplink nodad; ip link set uplink up")
	n.run(n.client, "ip link set lo up; ip addr add 10.1.0.1/24 dev eth0; ip -6 addr add 2001:db8:1::1/64 dev eth0 nodad; ip link set eth0 up; ip route add default via 10.1.0.254; ip -6 route add default via 2001:db8:1::fe")
	for i := range servers {
		ns := namespace(t)
		n.servers = append(n.servers, ns)
		port := fmt.Sprintf("port%d", i)
		n.pair(n.sw, port, ns, "eth0")
		n.run(n.sw, "ip link set "+port+" master br0 up")
		n.run(ns, fmt.Sprintf("ip link set lo up; ip link set eth0 address 02:00:00:00:02:%02x; ip addr add 10.2.0.%d/24 dev eth0; ip -6 addr add 2001:db8:2::%x/64 dev eth0 nodad; ip link set eth0 up promisc on; ip route add default via 10.2.0.254; ip addr add %s/32 dev lo; ip -6 addr add %s/128 dev lo nodad", i+1, i+1, i+1, vip4, vip6))
	}
	if servers > 0 {
		eventually(t, "the bridge has a carrier", func() bool {
			return strings.Contains(n.run(n.sw, "ip -o link show br0"), "LOWER_UP")
		})
	}
	return n
}

func namespace(t *testing.T) *hosttest.Namespace {
	t.Helper()
	ns, err := hosttest.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func sysctls(t *testing.T, ns *hosttest.Namespace, settings ...string) {
	t.Helper()
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		if err := ns.Sysctl(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// pair is a veth whose ends are in two namespaces.
func (n *network) pair(a *hosttest.Namespace, nameA string, b *hosttest.Namespace, nameB string) {
	n.t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(a.FD()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer h.Close()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.FD())}
	if err := h.LinkAdd(link); err != nil {
		n.t.Fatalf("veth %s: %v", nameA, err)
	}
}

// run runs a shell in the namespace, and is what it prints.
func (n *network) run(ns *hosttest.Namespace, script string) string {
	n.t.Helper()
	return shell(n.t, ns, script)
}

func shell(t *testing.T, ns *hosttest.Namespace, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := ns.Do(cmd.Run); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out.String())
	}
	return out.String()
}

// clock is the switch's, moved by hand.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time      { return c.now }
func (c *clock) add(d time.Duration) { c.now = c.now.Add(d) }

// open opens a switch whose ports are found by its servers' addresses.
func (n *network) open(o Options) *Switch {
	n.t.Helper()
	s, err := n.tryOpen(o)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { s.Close() })
	return s
}

func (n *network) tryOpen(o Options) (s *Switch, err error) {
	if o.Bridge == "" {
		o.Bridge = "br0"
	}
	err = n.sw.Do(func() (err error) {
		s, err = Open(o)
		return err
	})
	return s, err
}

func (n *network) ports() map[string]string {
	ports := map[string]string{}
	for i := range n.servers {
		ports[fmt.Sprintf("server%d", i)] = fmt.Sprintf("port%d", i)
	}
	return ports
}

// desired is a pool of that many servers.
func desired(buckts, servers int) tables.SwitchPlan {
	d := tables.SwitchPlan{VIPs: []netip.Addr{vip4, vip6}, ChainTime: 240 * time.Second, Seed: 12345, Version: 1, Datagrams: true}
	for i := range servers {
		d.Servers = append(d.Servers, tables.SwitchServer{Number: uint16(i), Name: fmt.Sprintf("server%d", i), Address: netip.AddrFrom4([4]byte{10, 2, 0, byte(i + 1)}), Weight: 1})
	}
	d.Table = buckets.New(buckts, bucketServers(d))
	return d
}

func bucketServers(d tables.SwitchPlan) (servers []buckets.Server) {
	for _, s := range d.Servers {
		servers = append(servers, buckets.Server{Number: s.Number, Weight: s.Weight})
	}
	return servers
}

// weigh is d after a server's weight was changed.
func weigh(d tables.SwitchPlan, number, weight int, now time.Time) tables.SwitchPlan {
	d.Servers = append([]tables.SwitchServer(nil), d.Servers...)
	d.Servers[number].Weight = weight
	o := buckets.Options{Now: seconds(now), ChainTime: uint32(d.ChainTime / time.Second)}
	d.Table, _ = d.Table.Apply(d.Table.Assign(bucketServers(d), o), o)
	d.Version++
	return d
}

// all is the same report for all servers, but those named.
func all(servers int, but map[int]Report) map[string]Report {
	reports := map[string]Report{}
	for i := range servers {
		r, ok := but[i]
		if !ok {
			r = Report{Answered: true, State: Up}
		}
		reports[fmt.Sprintf("server%d", i)] = r
	}
	return reports
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
