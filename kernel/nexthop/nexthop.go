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
	// refreshEvery is how often stale neighbours are poked, and routes are looked up
	// again of which the kernel said nothing: a notification was lost, or there is
	// none (rules, what ICMP told of a path).
	refreshEvery = 2 * time.Second
	// idleTimes is how many times as long as a look-up took the next one rests, so
	// that routes that do not stop changing take a fifth of a core.
	idleTimes = 4
	// manyChanged ways are told in one line.
	manyChanged = 20
	// settle collects a burst of notifications into one look-up.
	settle = 5 * time.Millisecond
)

// inTurn is how many routes are looked up then of which nobody said anything: all of a
// small deployment; of 64,000 servers each in two minutes, since all at once, each time,
// took a third of a core. Tests have it smaller.
var inTurn = 1000

// Watcher knows the Hop of every watched server. It is bound to the
// network namespace in which it was made.
type Watcher struct {
	log    *slog.Logger
	handle *netlink.Handle
	ns     netns.NsHandle

	routes routeSockets

	mu    sync.Mutex
	ways  map[netip.Addr]*way
	vias  map[netip.Addr]bool // all Hop.Via
	queue []*way              // whose turn it is to be looked up anew
}

// way is one that is watched; the watcher's mu is over what is in it.
type way struct {
	Hop
	waited bool // Watch has waited for it
	asked  bool // route is what a look-up gave
	route  found
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
	routes, err := openRoutes()
	if err != nil {
		h.Close()
		ns.Close()
		return nil, err
	}
	return &Watcher{log: log, handle: h, ns: ns, routes: routes, ways: map[netip.Addr]*way{}}, nil
}

// Close lets go of netlink and the namespace; Run must have ended.
func (w *Watcher) Close() {
	w.handle.Close()
	w.routes.close()
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
	for a := range w.ways {
		if !servers[a] {
			delete(w.ways, a)
		}
	}
	var fresh []*way
	for a, wait := range servers {
		y, ok := w.ways[a]
		if !ok {
			y = &way{Hop: Hop{Server: a, State: Unresolved}}
			w.ways[a] = y
		}
		if wait && !y.waited {
			fresh = append(fresh, y)
			y.waited = limit > 0
		}
	}
	w.mu.Unlock()
	for end := time.Now().Add(limit); len(fresh) > 0; time.Sleep(5 * time.Millisecond) {
		w.lookUp(fresh, true) // Run looks after the others
		w.mu.Lock()
		fresh = slices.DeleteFunc(fresh, func(y *way) bool { return y.State != Unresolved })
		w.mu.Unlock()
		if time.Now().After(end) {
			return
		}
	}
}

// Get returns the way to a watched server.
func (w *Watcher) Get(server netip.Addr) Hop {
	w.mu.Lock()
	defer w.mu.Unlock()
	if y, ok := w.ways[server]; ok {
		return y.Hop
	}
	return Hop{Server: server, State: Unresolved}
}

// List returns all ways, in no order.
func (w *Watcher) List() []Hop {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]Hop, 0, len(w.ways))
	for _, y := range w.ways {
		list = append(list, y.Hop)
	}
	return list
}

// refresh looks every way up again.
func (w *Watcher) refresh() (changed bool) { return w.lookUp(w.all(), true) }

// again looks at links and neighbours of every way, by the routes as they are known.
func (w *Watcher) again() (changed bool) { return w.lookUp(w.all(), false) }

// turn is again, and looks up the routes of those whose turn it is.
func (w *Watcher) turn() (changed bool) {
	all := w.all()
	w.mu.Lock()
	if len(w.queue) == 0 {
		w.queue = all
	}
	n := min(inTurn, len(w.queue))
	now := slices.DeleteFunc(slices.Clone(w.queue[:n]), func(y *way) bool { return w.ways[y.Server] != y })
	w.queue = w.queue[n:]
	w.mu.Unlock()
	if len(now) == len(all) {
		return w.refresh()
	}
	changed = w.lookUp(now, true)
	return w.again() || changed
}

func (w *Watcher) all() []*way {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.ways))
}

// lookUp looks ways up again; anew: their routes, too.
func (w *Watcher) lookUp(ways []*way, anew bool) (changed bool) {
	w.findRoutes(ways, anew)
	look := lookup{w: w, links: map[int]netlink.Link{}, neighbours: map[int]map[netip.Addr]netlink.Neigh{}, asked: map[asked]bool{}}
	var news []change // the first
	count := 0
	for _, y := range ways {
		w.mu.Lock()
		old, r := y.Hop, y.route
		w.mu.Unlock()
		h := look.hop(old, r)
		if h == old {
			continue
		}
		if count++; count <= manyChanged {
			news = append(news, change{old, h})
		}
		w.mu.Lock()
		y.Hop = h
		w.mu.Unlock()
	}
	if count == 0 {
		return false
	}
	w.collectVias()
	w.tell(news, count)
	return true
}

// change is a way as it was and as it is.
type change struct{ old, is Hop }

// tell tells of count changes; news are the first.
func (w *Watcher) tell(news []change, count int) {
	if count > len(news) {
		w.log.Info("ways to servers changed", "servers", count, "one_of_them", news[0].is.Server, "state", news[0].is.State, "via", news[0].is.Via)
		return
	}
	for _, c := range news {
		h, level := c.is, slog.LevelInfo
		if h.State == Unresolved && c.old.State == Unresolved {
			level = slog.LevelDebug // only just asked for
		}
		w.log.Log(context.Background(), level, "way to server changed", "server", h.Server, "state", h.State, "via", h.Via,
			"mac", net.HardwareAddr(h.MAC[:]).String(), "interface", h.Interface, "vlan", h.VLAN, "mtu", h.MTU, "problem", h.Problem)
	}
}

// findRoutes has the route of each way known; anew: as it is now.
func (w *Watcher) findRoutes(ways []*way, anew bool) {
	var to []netip.Addr
	var whose []*way
	w.mu.Lock()
	for _, y := range ways {
		if anew || !y.asked {
			to, whose = append(to, y.Server), append(whose, y)
		}
	}
	w.mu.Unlock()
	answers := w.routes.lookUp(to)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, y := range whose {
		// One that the kernel did not answer about stays as it was.
		if !errors.Is(answers[i].err, errNoAnswer) {
			y.route, y.asked = answers[i], true
		} else if !y.asked {
			y.route = answers[i]
		}
	}
}

func (w *Watcher) collectVias() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vias = map[netip.Addr]bool{}
	for _, y := range w.ways {
		w.vias[y.Via] = true
	}
}

// asked is a neighbour that the kernel was asked to resolve or to confirm.
type asked struct {
	link int
	via  netip.Addr
}

// lookup is one round of look-ups; it reads each link and each link's
// neighbours once, and asks for each neighbour once.
type lookup struct {
	asked      map[asked]bool
	w          *Watcher
	links      map[int]netlink.Link
	neighbours map[int]map[netip.Addr]netlink.Neigh
}

// hop looks the way to old.Server up, to which is is the route; what cannot be learnt stays as it was.
func (l *lookup) hop(old Hop, is found) Hop {
	h := Hop{Server: old.Server, State: Unresolved}
	unreachable := func(format string, args ...any) Hop {
		return Hop{Server: old.Server, State: Unreachable, Problem: fmt.Sprintf(format, args...)}
	}
	if is.err != nil {
		return unreachable("no route to %v (%v); add one", old.Server, is.err)
	}
	r := is.route
	if r.kind == unix.RTN_LOCAL {
		return unreachable("%v is this machine's own address; packets can only be sent to another's", old.Server)
	}
	if r.kind != unix.RTN_UNICAST {
		return unreachable("the route to %v forwards nothing (type %d)", old.Server, r.kind)
	}
	h.Via = via(r, old.Server)
	dev, err := l.link(r.link)
	if err != nil {
		return unreachable("route to %v: %v", old.Server, err)
	}
	h.Interface, h.MTU, h.Ifindex = dev.Attrs().Name, dev.Attrs().MTU, dev.Attrs().Index
	if r.mtu > 0 {
		h.MTU = min(h.MTU, r.mtu)
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
	l.neighbour(&h, r.link)
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
func via(r route, server netip.Addr) netip.Addr {
	if r.gateway.IsValid() && !r.gateway.IsUnspecified() {
		return r.gateway.Unmap()
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
	if a := (asked{linkIndex, h.Via}); !l.asked[a] && (!known || n.State&^(netlink.NUD_STALE|netlink.NUD_FAILED) == 0) {
		l.asked[a] = true
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
