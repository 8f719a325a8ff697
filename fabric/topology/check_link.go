package topology

import (
	"fmt"
	"maps"
	"slices"
)

// checkLink looks at one link and adds it to the fabric.
func (c *checker) checkLink(i int, e *linkEntry) {
	path := fmt.Sprintf("links[%d]", i)
	l := Link{Capacity: int64(e.Capacity), Cost: e.Cost, Down: e.Down}
	if c.At[path+".cost"] == nil {
		l.Cost = 1
	} else if e.Cost < 1 || e.Cost > maxCost {
		c.Problem(path+".cost", fmt.Sprint(e.Cost), "out of range", fmt.Sprintf("write 1 to %d", maxCost))
	}
	if len(e.Between) != 2 {
		c.Problem(path+".between", "", fmt.Sprintf("%d names, must be two", len(e.Between)), "write between: [one end, the other]")
		return
	}
	for side, name := range e.Between {
		node, ok := c.names[name]
		if !ok {
			c.unknownNode(fmt.Sprintf("%s.between[%d]", path, side), name)
			return
		}
		c.linked[node] = true
		l.Ends[side] = End{Node: node, Port: -1}
	}
	if l.Ends[0].Node == l.Ends[1].Node {
		c.Problem(path+".between", e.Between[0], "a link from a node to itself", "name two nodes")
		return
	}
	c.checkPorts(path, i, e, &l)
	c.checkDevices(path, e, &l)
	c.checkAddresses(path, e, &l)
	c.fabric.Links = append(c.fabric.Links, l)
}

func (c *checker) unknownNode(path, name string) {
	if name == "" {
		c.Problem(path, "", "missing", "name a router or host")
		return
	}
	remedy := "add it under routers or hosts"
	names := func() []string { return slices.Sorted(maps.Keys(c.names)) }
	if near := c.Near(name, names); near != "" {
		remedy = "write " + near + ", or " + remedy
	}
	c.Problem(path, name, "no such router or host", remedy)
}

// two tells whether a link's list has an item for each end; one that is not
// there is no problem.
func (c *checker) two(path, key string, items int) bool {
	if items == 0 && c.At[path+"."+key] == nil {
		return false
	}
	if items != 2 {
		c.Problem(path+"."+key, "", fmt.Sprintf("%d items, must be two", items), "write one for each end, in the order of between; none where an end has none")
		return false
	}
	return true
}

func (c *checker) checkPorts(path string, link int, e *linkEntry, l *Link) {
	if !c.two(path, "ports", len(e.Ports)) {
		return
	}
	for side, n := range e.Ports {
		at := fmt.Sprintf("%s.ports[%d]", path, side)
		node, port, radix := l.Ends[side].Node, int(n), c.fabric.Selector.Radix
		other, taken := c.ports[portKey{node, port}]
		switch name := e.Between[side]; {
		case port < 0 || c.Bad[at]:
			continue
		case c.fabric.Nodes[node].Host:
			c.Problem(at, fmt.Sprint(port), name+" is a host, whose ports have no numbers", "write none")
		case port >= radix && radix >= minRadix:
			c.Problem(at, fmt.Sprint(port), fmt.Sprintf("does not fit the radix, which is %d", radix),
				fmt.Sprintf("write 0 to %d, none, or a larger selector.radix (at most %d)", radix-1, maxRadix))
		case taken:
			c.Problem(at, fmt.Sprint(port), fmt.Sprintf("already the port of %s at links[%d]", name, other), "give each of a router's ports a number of its own")
		default:
			c.ports[portKey{node, port}] = link
		}
		l.Ends[side].Port = port
	}
}

func (c *checker) checkDevices(path string, e *linkEntry, l *Link) {
	if !c.two(path, "devices", len(e.Devices)) {
		return
	}
	for side, name := range e.Devices {
		if name == none {
			continue
		}
		c.checkDevice(fmt.Sprintf("%s.devices[%d]", path, side), name)
		l.Ends[side].Device = name
	}
}

func (c *checker) checkAddresses(path string, e *linkEntry, l *Link) {
	if !c.two(path, "addresses", len(e.Addresses)) {
		return
	}
	for side, a := range e.Addresses {
		c.checkAddress(fmt.Sprintf("%s.addresses[%d]", path, side), a.Addr, e.Between[side])
		l.Ends[side].Address = a.Addr
	}
	if a, b := e.Addresses[0], e.Addresses[1]; a.IsValid() && b.IsValid() && a.Is4() != b.Is4() {
		c.Problem(path+".addresses", "", "one address is IPv4, the other IPv6", "write both of one family")
	}
}
