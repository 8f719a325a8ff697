package topology

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Write writes the fabric as Read reads it. Without KeyFile the key is in it:
// keep the file from others (mode 0600).
func Write(w io.Writer, f *Fabric) error {
	var b bytes.Buffer
	section := func(name string, value any) error {
		text, err := flow(value)
		if err == nil {
			fmt.Fprintf(&b, "%s: %s\n", name, text)
		}
		return err
	}
	s := &f.Selector
	key := ""
	if f.KeyFile == "" {
		key = hex.EncodeToString(s.Key[:])
	}
	err := section("selector", selectorEntry{Key: key, KeyFile: f.KeyFile, Permutation: string(s.Permutation),
		Radix: s.Radix, IPv4: string(s.IPv4), IPv6: string(s.IPv6)})
	if files := cmp.Or(f.writtenTLS, f.TLS); err == nil && files != (TLS{}) {
		err = section("tls", files)
	}
	if err == nil && f.Service != (Endpoint{}) && f.Service != (Endpoint{API: DefaultServiceAPI}) {
		err = section("paths", serviceEntry(f.Service))
	}
	if err != nil {
		return err
	}
	var routers, hosts, links []any
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Host {
			hosts = append(hosts, hostEntry{Name: n.Name, Addresses: n.Addresses, TTL: int(n.TTL)})
		} else {
			routers = append(routers, n.entry())
		}
	}
	for i := range f.Links {
		links = append(links, f.linkEntry(&f.Links[i]))
	}
	for _, list := range []struct {
		name  string
		items []any
	}{{"routers", routers}, {"hosts", hosts}, {"links", links}} {
		if len(list.items) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", list.name)
		for _, item := range list.items {
			text, err := flow(item)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "  - %s\n", text)
		}
	}
	_, err = w.Write(b.Bytes())
	return err
}

// flow is a value on one line.
func flow(value any) (string, error) {
	var n yaml.Node
	err := n.Encode(value)
	n.Style = yaml.FlowStyle
	var text []byte
	if err == nil {
		text, err = yaml.Marshal(&n)
	}
	if err != nil {
		return "", fmt.Errorf("write the fabric: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}

func (n *Node) entry() routerEntry {
	e := routerEntry{Name: n.Name, Addresses: n.Addresses, Plain: n.Plain, API: n.API, Metrics: n.Metrics, Interfaces: n.Interfaces}
	if e.API == defaultRouterAPI(n.Name) {
		e.API = ""
	}
	return e
}

// linkEntry is the link as the file has it; lists of which no item says
// anything are left out.
func (f *Fabric) linkEntry(l *Link) linkEntry {
	e := linkEntry{Capacity: rate(l.Capacity), Down: l.Down}
	if l.Cost != 1 {
		e.Cost = l.Cost
	}
	a, b := &l.Ends[0], &l.Ends[1]
	e.Between = []string{f.Nodes[a.Node].Name, f.Nodes[b.Node].Name}
	if a.Port >= 0 || b.Port >= 0 {
		e.Ports = []number{number(a.Port), number(b.Port)}
	}
	if a.Device != "" || b.Device != "" {
		e.Devices = []string{cmp.Or(a.Device, none), cmp.Or(b.Device, none)}
	}
	if a.Address.IsValid() || b.Address.IsValid() {
		e.Addresses = []address{{a.Address}, {b.Address}}
	}
	return e
}
