// Package fabrics builds a fabric of routers and hosts, as a fabric.yaml
// describes it, out of network namespaces of one machine: for tests, and for
// the lab's scenarios.
//
// Every node is a namespace, every link a veth. A link that shall lose its
// carrier is cut; one that shall have a rate, or lose packets, is a wire: two
// veths joined by a bridge in a namespace that has all wires, because what an
// XDP program sends on passes no queue of the device it leaves by.
//
// The routes are those of a routing protocol: over all shortest ways to each
// host, by cost. Cutting a link changes them only where the kernel itself
// does so; Reroute is the moment at which the routing protocol has heard of it.
//
// What a fabric makes carries its name: namespaces fl-NAME-NODE, a folder
// under Root, the routers' daemons NAME-NODE. So taking it down needs no
// memory.
package fabrics

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/netspace"
)

// Root is the folder that holds a folder for each fabric.
const Root = "/run/fairlead/fabrics"

// validName has no dash, so that no fabric's name begins like another's objects.
var validName = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)

// Options say what Up builds of a topology.
type Options struct {
	// Name of the fabric: 1 to 20 lower-case letters and digits, a letter first.
	Name string
	// Program is the fairlead binary whose `router` runs in every router that
	// is not plain. Empty: none does, and the kernels forward by their own hash.
	Program string
	// Wires makes every link a wire, which can be limited and made to lose
	// packets. Without it those with a capacity are, and have it as their rate.
	Wires bool
	// Nexthops makes the routes of IPv4 refer to nexthop groups; without it
	// they are multipath routes, as those of IPv6 always are.
	Nexthops bool
	// MTU of all devices; 0: 1500.
	MTU int
}

// Fabric is one that is built.
type Fabric struct {
	Options
	topology topology.Fabric
	devices  [][2]string // of links' ends
	cut      []bool      // links
	wired    []bool
	routed   []map[netip.Prefix][]way // what is installed, by node
	groups   groups
}

// Up builds a fabric and starts its routers. Nodes get the name of the fabric
// before their own (NAME-leaf1), as daemons' sockets and pins carry it. What
// the topology leaves open is filled in: devices (eth0, eth1, … in the order of a
// node's links), links' addresses (10.90.0.0/16 and fd90::/64, by the link's number), and
// addresses of nodes that have none (10.91.0.0/16 and fd91::/64, by the node's number), the
// selector's key (random), routers' API (a socket in Dir). Errors leave nothing behind. It needs root.
func Up(ctx context.Context, t *topology.Fabric, o Options) (*Fabric, error) {
	if !validName.MatchString(o.Name) {
		return nil, fmt.Errorf("fabric name %q: must be 1 to 20 lower-case letters and digits, starting with a letter", o.Name)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a fabric of namespaces needs root; run it with sudo")
	}
	o.MTU = cmp.Or(o.MTU, 1500)
	for _, n := range t.Nodes {
		if n.Name == wires {
			return nil, fmt.Errorf("node name %s: it is the namespace of all wires; take another", wires)
		}
	}
	f := &Fabric{Options: o, topology: clone(t)}
	f.plan()
	if err := f.claim(); err != nil {
		return nil, err
	}
	if err := f.up(ctx); err != nil {
		return nil, errors.Join(err, Down(o.Name))
	}
	return f, nil
}

func (f *Fabric) up(ctx context.Context) error {
	if err := f.build(); err != nil {
		return err
	}
	if err := f.Reroute(); err != nil {
		return err
	}
	if err := f.write(); err != nil {
		return err
	}
	if f.Program == "" {
		return nil
	}
	return f.startRouters(ctx)
}

// write writes fabric.yaml and reads it again: what is refused is refused here.
func (f *Fabric) write() error {
	var text bytes.Buffer
	if err := topology.Write(&text, &f.topology); err != nil {
		return err
	}
	if err := os.WriteFile(f.Path(), text.Bytes(), 0o600); err != nil {
		return err
	}
	if _, err := topology.Read(f.Path()); err != nil {
		return fmt.Errorf("this fabric's file is refused: %w", err)
	}
	return nil
}

// clone is a copy whose nodes and links can be changed.
func clone(t *topology.Fabric) topology.Fabric {
	c := *t
	c.Nodes, c.Links = slices.Clone(t.Nodes), slices.Clone(t.Links)
	for i := range c.Nodes {
		c.Nodes[i].Addresses = slices.Clone(c.Nodes[i].Addresses)
	}
	return c
}

// Topology is what was built, names, devices and addresses filled in. Do not
// change it.
func (f *Fabric) Topology() *topology.Fabric { return &f.topology }

// Dir is the fabric's folder: fabric.yaml, logs, sockets, state.
func (f *Fabric) Dir() string { return filepath.Join(Root, f.Name) }

// Path is the fabric.yaml of the fabric.
func (f *Fabric) Path() string { return filepath.Join(f.Dir(), "fabric.yaml") }

// Node is the index of the node with this name, with the fabric's name before
// it or without. It panics for one that is not there.
func (f *Fabric) Node(name string) int {
	for i := range f.topology.Nodes {
		if n := f.topology.Nodes[i].Name; n == name || n == f.Name+"-"+name {
			return i
		}
	}
	panic(fmt.Sprintf("fabric %s has no node %s", f.Name, name))
}

// Link is the index of the n-th link (from 0) between two nodes. It panics
// for one that is not there.
func (f *Fabric) Link(a, b string, n int) int {
	x, y := f.Node(a), f.Node(b)
	for i, l := range f.topology.Links {
		if l.Ends[0].Node != x || l.Ends[1].Node != y {
			if l.Ends[0].Node != y || l.Ends[1].Node != x {
				continue
			}
		}
		if n == 0 {
			return i
		}
		n--
	}
	panic(fmt.Sprintf("fabric %s has no such link between %s and %s", f.Name, a, b))
}

// Namespace of a node, by its name.
func (f *Fabric) Namespace(node string) string { return f.namespace(f.Node(node)) }

func (f *Fabric) namespace(node int) string { return "fl-" + f.topology.Nodes[node].Name }

// In runs do on a thread inside a node's namespace. do must not start
// goroutines that expect to be there too.
func (f *Fabric) In(node string, do func() error) error {
	return netspace.In(f.Namespace(node), do)
}

// Down takes the fabric down.
func (f *Fabric) Down() error { return Down(f.Name) }

// Down takes a fabric down, or what is left of it: processes, pins,
// namespaces, folder. It goes by names alone, and a name that nobody has is no error.
func Down(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("fabric name %q: not a fabric's", name)
	}
	var errs []error
	namespaces := netspace.List("fl-" + name + "-")
	for _, ns := range namespaces {
		errs = append(errs, netspace.Kill(ns))
	}
	for _, ns := range namespaces {
		if node, ok := strings.CutPrefix(ns, "fl-"); ok {
			errs = append(errs, unpin(node))
		}
		forget(ns)
		errs = append(errs, netspace.Delete(ns))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take down fabric %s: %w", name, err)
	}
	return os.RemoveAll(filepath.Join(Root, name))
}
