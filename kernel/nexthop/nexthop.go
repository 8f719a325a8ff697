// Package nexthop knows the way to other machines at layer 2, and keeps it
// right by the kernel's own routing and neighbour tables. Balancers use it for
// the servers they forward to, servers for those that they pass packets on to.
package nexthop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The way to a server, kept right by the kernel's own routing and neighbour
// tables:
//
//	route look-up for the server's address ─▶ link, gateway or the server itself
//	link is a VLAN device                  ─▶ tag + its parent, where XDP sends
//	neighbour table                        ─▶ MAC; asked for (NTF_USE) when unknown or stale
//
// Packets that XDP forwards bypass the kernel's neighbour table, so nothing
// but the watcher confirms an entry: it pokes stale ones, and the kernel
// probes them.

// Hop is the way to one server.
type Hop struct {
	Server    netip.Addr
	Via       netip.Addr // whose MAC it is: the gateway, or Server itself
	MAC       [6]byte
	Source    [6]byte // our MAC
	Ifindex   int     // where it leaves: never a VLAN device
	Interface string  // as routed: a VLAN device keeps its name here
	VLAN      uint16  // 0: untagged
	MTU       int     // of the path: largest packet, outer header included
	// State is resolved, unresolved (no MAC known yet), failed (the neighbour
	// stopped answering; its last MAC stays in use) or unreachable (no route).
	State State
	// Silent: Via was asked and did not answer, as the kernel does before it
	// calls a neighbour failed, and has not been heard of since. A neighbour
	// that is only asked anew, or asked for the first time, is not silent.
	Silent bool
	// Problem says in words why State is unreachable.
	Problem string
}

// State is how well the way to a server is known.
type State string

// The states of a Hop.
const (
	Resolved    State = "resolved"
	Unresolved  State = "unresolved"
	Failed      State = "failed"
	Unreachable State = "unreachable"
)

// OnLink says that the server is a neighbour, with no router between.
func (h Hop) OnLink() bool { return h.Via == h.Server }

// Usable says that packets can be sent this way: a MAC is known.
func (h Hop) Usable() bool { return h.State == Resolved || h.State == Failed }

const (
	// refreshEvery is how often stale neighbours are poked and everything is
	// looked up again in case a notification was lost.
	refreshEvery = 2 * time.Second
	// settle collects a burst of notifications into one look-up.
	settle = 5 * time.Millisecond
)

// Watcher knows the Hop of every watched server. It is bound to the
// network namespace in which it was made.
type Watcher struct {
	log    *slog.Logger
	handle *netlink.Handle
	ns     netns.NsHandle

	mu     sync.Mutex
	hops   map[netip.Addr]Hop
	waited map[netip.Addr]bool // watch has waited for these
}

// New begins with no server watched. It belongs to the calling thread's network
// namespace.
func New(log *slog.Logger) (*Watcher, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	ns, err := netns.Get()
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	return &Watcher{log: log, handle: h, ns: ns, hops: map[netip.Addr]Hop{}, waited: map[netip.Addr]bool{}}, nil
}

// Close lets go of netlink and the namespace; Run must have ended.
func (w *Watcher) Close() {
	w.handle.Close()
	w.ns.Close()
}

// Link is a network interface of the watcher's namespace, by its index.
func (w *Watcher) Link(index int) (netlink.Link, error) { return w.handle.LinkByIndex(index) }

// Links are all network interfaces of the watcher's namespace.
func (w *Watcher) Links() (links []netlink.Link, err error) {
	for range 5 { // what changes while it is listed is listed again
		if links, err = w.handle.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return links, err
}

// Watch replaces the set of servers that are watched. It waits until those
// that are true and have a route are resolved, once for each server and at most
// limit.
func (w *Watcher) Watch(servers map[netip.Addr]bool, limit time.Duration) {
	w.mu.Lock()
	for a := range w.hops {
		if !servers[a] {
			delete(w.hops, a)
			delete(w.waited, a)
		}
	}
	var fresh []netip.Addr
	for a, wait := range servers {
		if _, ok := w.hops[a]; !ok {
			w.hops[a] = Hop{Server: a, State: Unresolved}
		}
		if wait && !w.waited[a] {
			fresh = append(fresh, a)
			w.waited[a] = limit > 0
		}
	}
	w.mu.Unlock()
	for end := time.Now().Add(limit); len(fresh) > 0; time.Sleep(5 * time.Millisecond) {
		w.lookUp(fresh) // a system call each: Run looks after the others
		fresh = slices.DeleteFunc(fresh, func(a netip.Addr) bool { return w.Get(a).State != Unresolved })
		if time.Now().After(end) {
			return
		}
	}
}

// Get returns the way to a watched server.
func (w *Watcher) Get(server netip.Addr) Hop {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h, ok := w.hops[server]; ok {
		return h
	}
	return Hop{Server: server, State: Unresolved}
}

// List returns all ways, in no order.
func (w *Watcher) List() []Hop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.hops))
}

// Run keeps the ways right until ctx ends. looked is called after every
// look-up, whether it changed something or not. It fails only if it cannot
// subscribe when it begins; a subscription that breaks later is made anew.
func (w *Watcher) Run(ctx context.Context, looked func()) error {
	n, err := w.subscribe()
	if err != nil {
		return err
	}
	defer func() { n.close() }()
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		ok := true
		select {
		case <-ctx.Done():
			return nil
		case u, open := <-n.neighbours:
			if ok = open; ok && w.concerns(u.Neigh) {
				settled.Reset(settle)
			}
		case _, ok = <-n.routes:
			settled.Reset(settle)
		case _, ok = <-n.links:
			settled.Reset(settle)
		case <-settled.C:
			w.refresh()
			looked()
		case <-tick.C:
			ok = n.done != nil
			w.refresh()
			looked()
		}
		if ok {
			continue
		}
		n.close()
		if n, err = w.subscribe(); err != nil {
			w.log.Warn("changes of routes and neighbours are seen late", "interval", refreshEvery, "error", err)
		}
		settled.Reset(settle)
	}
}

// notices are the kernel's notifications; a zero notices never has any.
type notices struct {
	neighbours chan netlink.NeighUpdate
	routes     chan netlink.RouteUpdate
	links      chan netlink.LinkUpdate
	done       chan struct{}
}

// close ends the subscription. What is under way to the channels is read, or
// its sender would wait for ever.
func (n notices) close() {
	if n.done == nil {
		return
	}
	close(n.done)
	go drain(n.neighbours)
	go drain(n.routes)
	go drain(n.links)
}

func drain[T any](c chan T) {
	if c == nil {
		return
	}
	for range c {
	}
}

func (w *Watcher) subscribe() (n notices, err error) {
	n.done = make(chan struct{})
	defer func() {
		if err != nil {
			n.close()
			n = notices{}
		}
	}()
	// A channel is closed after most errors, such as ENOBUFS when changes come
	// faster than they are read.
	lost := func(err error) {
		select {
		case <-n.done: // our doing
		default:
			w.log.Warn("notifications of routes and neighbours were lost: looking everything up", "error", err)
		}
	}
	neighbours := make(chan netlink.NeighUpdate, 1024)
	if err := netlink.NeighSubscribeWithOptions(neighbours, n.done, netlink.NeighSubscribeOptions{Namespace: &w.ns, ErrorCallback: lost}); err != nil {
		return n, fmt.Errorf("watch the neighbour table: %w", err)
	}
	n.neighbours = neighbours
	routes := make(chan netlink.RouteUpdate, 1024)
	if err := netlink.RouteSubscribeWithOptions(routes, n.done, netlink.RouteSubscribeOptions{Namespace: &w.ns, ErrorCallback: lost}); err != nil {
		return n, fmt.Errorf("watch routes: %w", err)
	}
	n.routes = routes
	links := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribeWithOptions(links, n.done, netlink.LinkSubscribeOptions{Namespace: &w.ns, ErrorCallback: lost}); err != nil {
		return n, fmt.Errorf("watch interfaces: %w", err)
	}
	n.links = links
	return n, nil
}

// concerns says whether a neighbour is on some server's way.
func (w *Watcher) concerns(n netlink.Neigh) bool {
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hops {
		if h.Via == a.Unmap() {
			return true
		}
	}
	return false
}

// refresh looks every way up again.
func (w *Watcher) refresh() {
	w.mu.Lock()
	servers := slices.Collect(maps.Keys(w.hops))
	w.mu.Unlock()
	w.lookUp(servers)
}

// lookUp looks the ways to servers up again.
func (w *Watcher) lookUp(servers []netip.Addr) {
	look := lookup{w: w, links: map[int]netlink.Link{}, neighbours: map[int]map[netip.Addr]netlink.Neigh{}}
	for _, server := range servers {
		old := w.Get(server)
		h := look.hop(old)
		if h == old {
			continue
		}
		w.mu.Lock()
		if _, still := w.hops[h.Server]; still {
			w.hops[h.Server] = h
		}
		w.mu.Unlock()
		level := slog.LevelInfo
		if h.State == Unresolved && old.State == Unresolved {
			level = slog.LevelDebug // only just asked for
		}
		w.log.Log(context.Background(), level, "way to server changed", "server", h.Server, "state", h.State, "via", h.Via,
			"mac", net.HardwareAddr(h.MAC[:]).String(), "interface", h.Interface, "vlan", h.VLAN, "mtu", h.MTU, "problem", h.Problem)
	}
}

// lookup is one round of look-ups; it reads each link and each link's
// neighbours once.
type lookup struct {
	w          *Watcher
	links      map[int]netlink.Link
	neighbours map[int]map[netip.Addr]netlink.Neigh
}

// hop looks the way to old.Server up; what cannot be learnt stays as it was.
func (l *lookup) hop(old Hop) Hop {
	h := Hop{Server: old.Server, State: Unresolved}
	unreachable := func(format string, args ...any) Hop {
		return Hop{Server: old.Server, State: Unreachable, Problem: fmt.Sprintf(format, args...)}
	}
	routes, err := l.w.handle.RouteGet(net.IP(old.Server.AsSlice()))
	if err != nil || len(routes) == 0 {
		return unreachable("no route to %v (%v); add one", old.Server, err)
	}
	r := routes[0]
	if r.Type == unix.RTN_LOCAL {
		return unreachable("%v is this machine's own address; packets can only be sent to another's", old.Server)
	}
	if r.Type != unix.RTN_UNICAST {
		return unreachable("the route to %v forwards nothing (type %d)", old.Server, r.Type)
	}
	h.Via = via(r, old.Server)
	dev, err := l.link(r.LinkIndex)
	if err != nil {
		return unreachable("route to %v: %v", old.Server, err)
	}
	h.Interface, h.MTU, h.Ifindex = dev.Attrs().Name, dev.Attrs().MTU, dev.Attrs().Index
	if r.MTU > 0 {
		h.MTU = min(h.MTU, r.MTU)
	}
	if len(dev.Attrs().HardwareAddr) != len(h.Source) {
		return unreachable("the route to %v leads over %s, which is no Ethernet", old.Server, h.Interface)
	}
	copy(h.Source[:], dev.Attrs().HardwareAddr)
	if v, ok := dev.(*netlink.Vlan); ok {
		// XDP sends on the parent and adds the tag itself.
		h.VLAN, h.Ifindex = uint16(v.VlanId), dev.Attrs().ParentIndex
		if dev, err = l.link(h.Ifindex); err != nil {
			return unreachable("parent of VLAN device %s: %v", h.Interface, err)
		}
	}
	if dev.Attrs().OperState == netlink.OperDown || dev.Attrs().Flags&net.FlagUp == 0 {
		return unreachable("interface %s is down", h.Interface)
	}
	l.neighbour(&h, r.LinkIndex)
	if h.State == Resolved || h.Via != old.Via || h.Ifindex != old.Ifindex {
		return h
	}
	if old.Usable() {
		h.MAC, h.State = old.MAC, Failed
	}
	h.Silent = h.Silent || old.Silent // it is being asked once more
	return h
}

// via is the address whose MAC the route wants.
func via(r netlink.Route, server netip.Addr) netip.Addr {
	gw := r.Gw
	if v, ok := r.Via.(*netlink.Via); ok {
		gw = v.Addr // an IPv6 router for an IPv4 destination
	}
	if a, ok := netip.AddrFromSlice(gw); ok && !a.IsUnspecified() {
		return a.Unmap()
	}
	return server
}

// neighbour fills in the MAC, asking the kernel to resolve or to confirm it
// where needed.
func (l *lookup) neighbour(h *Hop, linkIndex int) {
	n, known := l.neighbourTable(linkIndex)[h.Via]
	const valid = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP
	if known && n.State&valid != 0 && len(n.HardwareAddr) == 6 {
		h.State = Resolved
		copy(h.MAC[:], n.HardwareAddr)
	}
	h.Silent = known && n.State&netlink.NUD_FAILED != 0
	// STALE too: the kernel answers a use of a stale entry by a probe, and
	// that is how a server's new MAC is noticed.
	if !known || n.State&^(netlink.NUD_STALE|netlink.NUD_FAILED) == 0 {
		err := l.w.handle.NeighSet(&netlink.Neigh{LinkIndex: linkIndex, IP: net.IP(h.Via.AsSlice()),
			State: netlink.NUD_NONE, Flags: netlink.NTF_USE})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			l.w.log.Debug("ask for neighbour", "neighbour", h.Via, "error", err)
		}
	}
}

func (l *lookup) link(index int) (netlink.Link, error) {
	if d, ok := l.links[index]; ok {
		return d, nil
	}
	d, err := l.w.handle.LinkByIndex(index)
	if err == nil {
		l.links[index] = d
	}
	return d, err
}

func (l *lookup) neighbourTable(index int) map[netip.Addr]netlink.Neigh {
	if t, ok := l.neighbours[index]; ok {
		return t
	}
	t := map[netip.Addr]netlink.Neigh{}
	l.neighbours[index] = t
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := l.w.handle.NeighList(index, family)
		if err != nil {
			l.w.log.Debug("read neighbour table", "ifindex", index, "error", err)
		}
		for _, n := range list {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				t[a.Unmap()] = n
			}
		}
	}
	return t
}
