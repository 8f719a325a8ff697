package steered

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// fabricMTU has room for a tunnel's headers around a full packet.
const fabricMTU = 1600

// readyWait bounds how long the daemons may take.
const readyWait = 60 * time.Second

// site is the fabric and what runs in it.
type site struct {
	o        *Options
	fabric   *fabrics.Fabric
	random   *rand.ChaCha8
	ports    func() *net.TCPAddr         // of connections
	link     int                         // that is degraded and cut
	daemons  map[string]*fabrics.Process // of servers and the balancer, by node
	balancer fairleadv1connect.FairleadClient
	routers  map[string]fairleadv1connect.FairleadClient
	usual    float64 // bytes a second that the bad spine has while all is well
}

var spines = []string{"spine1", "spine2"}

// plan is the topology.
func plan(servers int) *topology.Fabric {
	t := &topology.Fabric{Selector: pathsel.Config{Permutation: pathsel.Feistel, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports}}
	node := func(name string, host bool, addresses ...string) int {
		n := topology.Node{Name: name, Host: host, TTL: 64}
		for _, a := range addresses {
			n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
		}
		t.Nodes = append(t.Nodes, n)
		return len(t.Nodes) - 1
	}
	link := func(a, portA, b, portB int) {
		t.Links = append(t.Links, topology.Link{Ends: [2]topology.End{{Node: a, Port: portA}, {Node: b, Port: portB}}, Cost: 1})
	}
	one, two := node("leaf1", false), node("leaf2", false)
	for i, name := range spines {
		spine := node(name, false)
		link(one, i, spine, 0)
		link(two, i, spine, 1)
	}
	// The VIPs are lb's, so that routers send them there.
	lb := node("lb", true, append([]string{"10.20.0.2"}, vips()...)...)
	client := node("client", true, "10.20.0.3")
	link(lb, -1, one, 2)
	link(client, -1, one, 3)
	for i := range servers {
		link(node(fmt.Sprint("s", i+1), true, fmt.Sprintf("10.20.1.%d", i+2)), -1, two, 2+i)
	}
	return t
}

// vip is the VIP with this setting of steer.
func vip(steer string) string { return fmt.Sprintf("10.77.7.%d", slices.Index(Settings, steer)+1) }

func vips() (list []string) {
	for _, s := range Settings {
		list = append(list, vip(s))
	}
	return list
}

// build brings everything up and waits until it serves.
func build(ctx context.Context, o *Options) (_ *site, err error) {
	random := experiment.Random(o.Seed)
	of := plan(o.Servers)
	_, _ = random.Read(of.Selector.Key[:]) // it never fails
	f, err := fabrics.Up(ctx, of, fabrics.Options{Name: fmt.Sprint("steer", os.Getpid()), Program: o.Program, Wires: true, MTU: fabricMTU})
	if err != nil {
		return nil, err
	}
	s := &site{o: o, fabric: f, random: random, ports: experiment.Ports(random), link: f.Link(spines[0], "leaf2", 0), daemons: map[string]*fabrics.Process{}, routers: map[string]fairleadv1connect.FairleadClient{}}
	defer func() {
		if err != nil && !o.Keep {
			err = errors.Join(err, f.Down())
		}
	}()
	for _, name := range append([]string{"leaf1"}, spines...) {
		if s.routers[name], err = api.Dial("unix:"+f.Socket(name), config.TLS{}); err != nil {
			return nil, err
		}
	}
	if err := s.configure(); err != nil {
		return nil, err
	}
	if err := s.startDaemons(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// configure writes fairlead.yaml, and takes the VIPs from lb's own addresses, which
// they are for the routers' sake alone.
func (s *site) configure() error {
	if err := os.WriteFile(s.config(), []byte(s.yaml()), 0o600); err != nil {
		return err
	}
	return s.fabric.In("lb", func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, v := range vips() {
			a, err := netlink.ParseAddr(v + "/32")
			if err != nil {
				return err
			}
			if err := netlink.AddrDel(lo, a); err != nil {
				return fmt.Errorf("take %s from lo: %w", v, err)
			}
		}
		return nil
	})
}

func (s *site) config() string { return filepath.Join(s.fabric.Dir(), "fairlead.yaml") }

// name is a node's as its daemon has it.
func (s *site) name(node string) string { return s.fabric.Topology().Nodes[s.fabric.Node(node)].Name }

func (s *site) servers() (names []string) {
	for i := range s.o.Servers {
		names = append(names, fmt.Sprint("s", i+1))
	}
	return names
}

// device is the node's one interface to the fabric.
func (s *site) device(node string) string {
	n := s.fabric.Node(node)
	for _, l := range s.fabric.Topology().Links {
		for _, e := range l.Ends {
			if e.Node == n {
				return e.Device
			}
		}
	}
	return ""
}

func (s *site) yaml() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	secret := make([]byte, 32)
	_, _ = s.random.Read(secret) // it never fails
	p("secret: %x", secret)
	p("metrics: %q", "")
	p("fabric: fabric.yaml")
	p("balancers:")
	p("  - {name: %s, api: \"unix:%s\", interfaces: [%s], source: 10.20.0.2/32}", s.name("lb"), s.fabric.Socket("lb"), s.device("lb"))
	p("servers:")
	var pool []string
	for i, n := range s.servers() {
		p("  - {name: %s, address: 10.20.1.%d, api: \"unix:%s\", interfaces: [%s]}", s.name(n), i+2, s.fabric.Socket(n), s.device(n))
		pool = append(pool, s.name(n))
	}
	p("vips:")
	for _, steer := range Settings {
		p("  - name: %s", steer)
		p("    address: %s", vip(steer))
		p("    port: 80")
		p("    forwarding: gue")
		p("    steer: %s", steer)
		p("    servers: [%s]", strings.Join(pool, ", "))
	}
	return b.String()
}

// startDaemons starts servers, agents and the balancer, and waits until the
// balancer steers.
func (s *site) startDaemons(ctx context.Context) error {
	for _, n := range append(s.servers(), "lb") {
		if err := s.bare(n); err != nil {
			return err
		}
	}
	for _, n := range s.servers() {
		if err := s.serve(ctx, n); err != nil {
			return err
		}
		if err := s.start(n, "host"); err != nil {
			return err
		}
	}
	if err := s.start("lb", "lb"); err != nil {
		return err
	}
	var err error
	if s.balancer, err = api.Dial("unix:"+s.fabric.Socket("lb"), config.TLS{}); err != nil {
		return err
	}
	last := "it did not answer"
	ready := netspace.WaitFor(readyWait, func() bool {
		if ctx.Err() != nil {
			return true
		}
		for node, p := range s.daemons {
			if p.Ended() {
				last = "the daemon of " + node + " has ended:\n" + p.Log()
				return true
			}
		}
		status, err := s.balancer.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
		if err != nil {
			last = err.Error()
			return false
		}
		last = notSteered(status.Msg, s.o.Servers)
		return last == ""
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !ready || last != "" {
		return fmt.Errorf("the balancer does not steer: %s\nits log:\n%s", last, s.daemons["lb"].Log())
	}
	return nil
}

// start starts a node's daemon.
func (s *site) start(node, command string) (err error) {
	s.daemons[node], err = s.fabric.Spawn(node, command+"-"+node, s.o.Program, command, "-f", s.config(), "--name", s.name(node), "--state-dir", filepath.Join(s.fabric.Dir(), "state"), "--private-pins")
	return err
}

// notSteered says why not all servers are steered to over two good paths; empty:
// they are.
func notSteered(status *fairleadv1.GetStatusResponse, servers int) string {
	if len(status.NotReady) > 0 {
		return strings.Join(status.NotReady, "; ")
	}
	steered := status.Steered
	if len(steered) != 2*servers { // in two ways each
		return fmt.Sprintf("%d rows are steered, of %d; %s", len(steered), 2*servers, strings.Join(status.Warnings, "; "))
	}
	for _, row := range steered {
		if row.Error != "" {
			return row.Server + ": " + row.Error
		}
		for _, p := range row.Paths {
			if p.Verdict != "good" || !p.Usable {
				return fmt.Sprintf("path to %s over %s is %s: %s", row.Server, strings.Join(p.Links, " "), p.Verdict, p.Reason)
			}
		}
	}
	return ""
}

// serve runs a server that takes uploads in a node.
func (s *site) serve(ctx context.Context, node string) error {
	failed := make(chan error, 1)
	go func() {
		failed <- s.fabric.In(node, func() error { return lab.Serve(ctx, node, nil, false, slog.New(slog.DiscardHandler)) })
	}()
	var err error
	netspace.WaitFor(readyWait, func() bool {
		select {
		case err = <-failed:
			return true
		default:
		}
		err = s.fabric.In(node, func() error {
			c, err := net.Dial("tcp", "127.0.0.1:80")
			if err == nil {
				c.Close()
			}
			return err
		})
		return err == nil || ctx.Err() != nil
	})
	if err != nil {
		return fmt.Errorf("serve at %s: %w", node, err)
	}
	return nil
}

// bare takes the program that passes everything from a node's interface: a daemon
// puts its own there.
func (s *site) bare(node string) error {
	return s.fabric.In(node, func() error {
		l, err := netlink.LinkByName(s.device(node))
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(l, -1, unix.XDP_FLAGS_DRV_MODE)
	})
}

// moved is how often parts of connections were moved so far.
func (s *site) moved(ctx context.Context, steer string) (n uint64) {
	status, err := s.balancer.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return 0
	}
	for _, row := range status.Msg.Steered {
		if row.By == steer {
			n += row.Moved
		}
	}
	return n
}

// notWhole says why tunnels may not take every path; empty: they may.
func (s *site) notWhole(ctx context.Context) string {
	status, err := s.balancer.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return err.Error()
	}
	return notSteered(status.Msg, s.o.Servers)
}

func (s *site) linkName() string {
	return strings.ReplaceAll(s.fabric.Topology().LinkName(s.link), s.fabric.Name+"-", "")
}

func (s *site) badSpine() string { return spines[0] }
