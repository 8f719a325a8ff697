package router

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/kernel"
)

// Apply makes the program go by these tables. Only what differs is written, in
// an order in which every packet finds a whole way, the old or the new:
//
//	new hops and groups, in idle entries ─▶ routes, one by one ─▶ inputs ─▶ links
//	─▶ routes that are gone ─▶ (packets in flight) ─▶ hops and groups that nothing names
//
// The first Apply also puts the program into force: it replaces the one that
// runs, or is attached.
//
// An *AttachError says that all is in force but on some devices. On any other
// error some of it is in force, and all that packets go by is whole; the next
// Apply goes on from there.
func (p *Plane) Apply(t Tables) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil {
		return errClosed
	}
	if err := checkSizes(&t); err != nil {
		return err
	}
	c := newChange(p, &t)
	if err := c.run(c.enforce); err != nil {
		return err
	}
	return c.failed
}

// run takes the steps of a change; enforce is that of the links.
func (c *change) run(enforce func() error) error {
	for _, step := range []func() error{c.hops, c.groups, c.putRoutes, c.putInputs, enforce, c.dropInputs, c.dropRoutes, c.free} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkSizes refuses what the maps have no room for, before anything changes.
// A translation makes no such tables.
func checkSizes(t *Tables) error {
	groups := 0
	for _, g := range t.Groups {
		if len(g) > 1 { // a route names a single hop by itself
			groups++
		}
	}
	for _, c := range []struct {
		what   string
		n, max int
	}{{"devices", len(t.Devices), mostDevices}, {"routes", len(t.Routes), mostRoutes}, {"different groups of next hops", groups, mostGroups}, {"next hops and neighbours", len(t.Hops), mostHops}} {
		if c.n > c.max {
			return fmt.Errorf("the kernel's tables hold %d %s, this router's at most %d; summarize them, or let the kernel forward", c.n, c.what, c.max)
		}
	}
	return nil
}

// change is one Apply under way.
type change struct {
	*Plane
	t      *Tables
	hopAt  map[HopID]*Hop
	values []uint32        // of t.Groups, as routes name them
	used   map[uint32]bool // groups that t uses
	routes map[netip.Prefix]uint32
	inputs map[bpf.InputKey]uint64
	failed error // *AttachError
}

func newChange(p *Plane, t *Tables) *change {
	return &change{Plane: p, t: t, hopAt: map[HopID]*Hop{}, used: map[uint32]bool{}}
}

// hops writes what is new or different of the hops.
func (c *change) hops() error {
	for i := range c.t.Hops {
		h := &c.t.Hops[i]
		if !h.ID.Gateway.IsValid() || h.ID.Device <= 0 || h.MTU < 0 {
			return fmt.Errorf("next hop %+v: no device, gateway or MTU", *h)
		}
		c.hopAt[h.ID] = h
		index, ok := c.state.hops[h.ID]
		if !ok {
			var err error
			if index, err = c.newHop(); err != nil {
				return err
			}
			c.state.hops[h.ID] = index
		}
		if image := h.encode(); c.state.images[index] != image {
			c.set.writeHop(index, image)
			c.state.images[index] = image
		}
	}
	return nil
}

// newHop takes a free entry.
func (c *change) newHop() (uint32, error) {
	n := len(c.state.freeHops)
	if n == 0 {
		return 0, fmt.Errorf("all %d entries for next hops and neighbours are taken while old ones are still in use; summarize routes", maxHops)
	}
	index := c.state.freeHops[n-1]
	c.state.freeHops = c.state.freeHops[:n-1]
	return index, nil
}

// groups finds or makes an entry for each group.
func (c *change) groups() error {
	known := uint64(0)
	for _, port := range c.t.Ports {
		if port >= 0 && port < pathsel.MaxRadix {
			known |= 1 << port
		}
	}
	for i, g := range c.t.Groups {
		v, err := c.group(g, known)
		if err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
		c.values = append(c.values, v)
	}
	return nil
}

// group is how routes name a group: a group of those hops that work, a single
// one by itself, none as a reason to pass.
func (c *change) group(g Group, known uint64) (uint32, error) {
	var live []pathsel.Hop
	var indices []uint32
	for _, m := range g {
		h := c.hopAt[m.Hop]
		if h == nil {
			return 0, fmt.Errorf("member %+v is no next hop of the tables", m.Hop)
		}
		if !h.Usable {
			continue
		}
		live = append(live, pathsel.Hop{Port: h.Port, Weight: m.Weight})
		indices = append(indices, c.state.hops[m.Hop])
	}
	switch len(live) {
	case 0:
		return pass(bpf.RouterPassNoHop), nil
	case 1:
		return value(bpf.RouteHop, indices[0]), nil
	}
	made, err := c.o.Selector.Group(live, known)
	if err != nil {
		return 0, err
	}
	index, err := c.groupEntry(encodeGroup(made, indices))
	return value(bpf.RouteGroup, index), err
}

func (c *change) groupEntry(g bpf.RouterGroup) (uint32, error) {
	st := c.state
	index, ok := st.groups[g]
	if !ok {
		n := len(st.freeGroups)
		if n == 0 {
			return 0, fmt.Errorf("all %d entries for groups of next hops are taken while old ones are still in use; use fewer different groups", maxGroups)
		}
		index = st.freeGroups[n-1]
		if err := c.set.Maps[bpf.RouterMapGroups].Put(index, &g); err != nil {
			return 0, err
		}
		st.freeGroups = st.freeGroups[:n-1]
		st.groups[g] = index
	}
	c.used[index] = true
	return index, nil
}

// putRoutes writes what is new or different of the routes.
func (c *change) putRoutes() error {
	c.routes = make(map[netip.Prefix]uint32, len(c.t.Routes))
	for _, r := range c.t.Routes {
		if !r.Prefix.IsValid() || r.Kind == Forward && (r.Group < 0 || r.Group >= len(c.values)) {
			return fmt.Errorf("route %v names group %d of %d", r.Prefix, r.Group, len(c.values))
		}
		v := pass(reasonOf[r.Kind])
		if r.Kind == Forward {
			v = c.values[r.Group]
		}
		c.routes[r.Prefix.Masked()] = v
	}
	for prefix, v := range c.routes {
		if have, ok := c.state.routes[prefix]; ok && have == v {
			continue
		}
		if err := c.set.putRoute(prefix, v); err != nil {
			return fmt.Errorf("route %v: %w", prefix, err)
		}
		c.state.routes[prefix] = v
	}
	return nil
}

func (s *set) putRoute(p netip.Prefix, v uint32) error {
	if p.Addr().Is4() {
		return s.Maps[bpf.RouterMapRoutes4].Put(key4(p), v)
	}
	return s.Maps[bpf.RouterMapRoutes6].Put(key6(p), v)
}

func (s *set) dropRoute(p netip.Prefix) error {
	if p.Addr().Is4() {
		return s.Maps[bpf.RouterMapRoutes4].Delete(key4(p))
	}
	return s.Maps[bpf.RouterMapRoutes6].Delete(key6(p))
}

func (c *change) dropRoutes() error {
	for prefix := range c.state.routes {
		if _, ok := c.routes[prefix]; ok {
			continue
		}
		if err := c.set.dropRoute(prefix); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("route %v: %w", prefix, err)
		}
		delete(c.state.routes, prefix)
	}
	return nil
}

func (c *change) putInputs() error {
	c.inputs = map[bpf.InputKey]uint64{}
	for _, d := range c.t.Devices {
		key, v := d.encode()
		c.inputs[key] = v
		if have, ok := c.state.inputs[key]; ok && have == v {
			continue
		}
		if err := c.set.Maps[bpf.RouterMapInputs].Put(key, v); err != nil {
			return fmt.Errorf("input %s: %w", d.Name, err)
		}
		c.state.inputs[key] = v
	}
	return nil
}

func (c *change) dropInputs() error {
	for key := range c.state.inputs {
		if _, ok := c.inputs[key]; ok {
			continue
		}
		if err := c.set.Maps[bpf.RouterMapInputs].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("input of device %d: %w", key.Ifindex, err)
		}
		delete(c.state.inputs, key)
	}
	return nil
}

// enforce has the program run on all devices, and pins it before: one that is
// attached while nobody can find its maps could not be adopted.
func (c *change) enforce() error {
	devices := map[int]string{}
	for _, d := range c.t.Devices {
		// Of several VLANs of a device and itself, its own name if it has one.
		if have, ok := devices[d.Ifindex]; !ok || d.VLAN == 0 || d.Name < have {
			devices[d.Ifindex] = d.Name
		}
	}
	pin := c.held == nil || !c.set.Pinned(c.set.dir) // somebody removed pins
	if pin {
		if err := c.pinSet(); err != nil {
			return err
		}
	}
	c.failed = c.attach(devices)
	if err := c.detachOthers(devices); err != nil {
		return err
	}
	if pin {
		return c.set.dropOther(c.o.PinDir)
	}
	return nil
}

// pinSet pins the set beside the one in force.
func (c *change) pinSet() error {
	before, err := openInForce(c.o.PinDir)
	if err != nil {
		return err
	}
	defer before.close()
	dir := ""
	if before != nil {
		dir = before.dir
	}
	return c.set.pinBeside(c.o.PinDir, dir)
}

// free gives back what no route names any more, once no packet can be on its
// way there.
func (c *change) free() error {
	st := c.state
	var groups []bpf.RouterGroup
	for g, index := range st.groups {
		if !c.used[index] {
			groups = append(groups, g)
		}
	}
	hops := slices.Collect(maps.Keys(st.hops))
	hops = slices.DeleteFunc(hops, func(id HopID) bool { return c.hopAt[id] != nil })
	if len(groups)+len(hops) == 0 {
		return nil
	}
	if err := kernel.WaitForReaders(); err != nil {
		return err
	}
	for _, g := range groups {
		st.freeGroups = append(st.freeGroups, st.groups[g])
		delete(st.groups, g)
	}
	for _, id := range hops {
		index := st.hops[id]
		if err := c.set.carry(index); err != nil {
			return err
		}
		c.set.writeHop(index, bpf.Hop{})
		delete(st.images, index)
		delete(st.hops, id)
		st.freeHops = append(st.freeHops, index)
	}
	return nil
}
