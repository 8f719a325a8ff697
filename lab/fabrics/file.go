package fabrics

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// yaml is the fabric.yaml of what was built.
func (f *Fabric) yaml() []byte {
	t := &f.topology
	var b strings.Builder
	s := t.Selector
	fmt.Fprintf(&b, "selector: {key: %s, permutation: %s, radix: %d, ipv4: %s, ipv6: %s}\n", hex.EncodeToString(s.Key[:]), s.Permutation, s.Radix, s.IPv4, s.IPv6)
	var routers, hosts strings.Builder
	for _, n := range t.Nodes {
		addresses := make([]string, len(n.Addresses))
		for i, a := range n.Addresses {
			addresses[i] = fmt.Sprintf("%q", a)
		}
		list := strings.Join(addresses, ", ")
		switch {
		case n.Host:
			fmt.Fprintf(&hosts, "  - {name: %s, addresses: [%s], ttl: %d}\n", n.Name, list, n.TTL)
		case n.Plain:
			fmt.Fprintf(&routers, "  - {name: %s, addresses: [%s], plain: true}\n", n.Name, list)
		default:
			fmt.Fprintf(&routers, "  - {name: %s, addresses: [%s], api: %q}\n", n.Name, list, "unix:"+f.Socket(n.Name))
		}
	}
	b.WriteString("routers:\n" + routers.String())
	if hosts.Len() > 0 {
		b.WriteString("hosts:\n" + hosts.String())
	}
	b.WriteString("links:\n")
	for _, l := range t.Links {
		fmt.Fprintf(&b, "  - {between: [%s, %s]", t.Nodes[l.Ends[0].Node].Name, t.Nodes[l.Ends[1].Node].Name)
		fmt.Fprintf(&b, ", devices: [%s, %s], addresses: [%q, %q]", l.Ends[0].Device, l.Ends[1].Device, l.Ends[0].Address, l.Ends[1].Address)
		fmt.Fprintf(&b, ", ports: [%s, %s]", number(l.Ends[0].Port), number(l.Ends[1].Port))
		if l.Capacity > 0 {
			fmt.Fprintf(&b, ", capacity: %dbit", l.Capacity)
		}
		if l.Cost > 1 {
			fmt.Fprintf(&b, ", cost: %d", l.Cost)
		}
		b.WriteString("}\n")
	}
	return []byte(b.String())
}

// number is a port's number as the file has it.
func number(port int) string {
	if port < 0 {
		return "none"
	}
	return fmt.Sprint(port)
}
