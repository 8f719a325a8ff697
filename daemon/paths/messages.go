package paths

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Between the path service's messages and what fabric/paths works on.

// bounded is a count as the API has it.
func bounded(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// atMost checks a number of a message.
func atMost(field string, value uint32, most uint32) (uint32, error) {
	if value > most {
		return 0, fmt.Errorf("%s %d: must be %d at most", field, value, most)
	}
	return value, nil
}

// ends are the places that a request names.
func (v *view) ends(from, to string) (a, b paths.Place, err error) {
	if a, err = v.net.Place(from); err != nil {
		return a, b, fmt.Errorf("from %w", err)
	}
	if b, err = v.net.Place(to); err != nil {
		return a, b, fmt.Errorf("to %w", err)
	}
	return a, b, nil
}

// checkEnds says what is wrong with addresses that a flow shall have.
func (v *view) checkEnds(from, to string, wanted *paths.Request) error {
	a, b, err := v.ends(from, to)
	if err != nil {
		return err
	}
	if _, err := v.net.At(a, wanted.Src); err != nil {
		return fmt.Errorf("src %w", err)
	}
	if _, err := v.net.At(b, wanted.Dst); err != nil {
		return fmt.Errorf("dst %w", err)
	}
	return nil
}

// number is the path's among all from node to node, as a list by their names
// has it; 0 where it is none of them, as it ends before.
func (v *view) number(p *paths.Path, rules paths.Rules) uint64 {
	routes, err := v.net.Routes(paths.Place{Node: p.Src.Node}, paths.Place{Node: p.Dst.Node}, rules)
	if err != nil {
		return 0
	}
	number, _ := routes.Number(p.Hops)
	return number
}

func (v *view) routes(from, to string, m *fairleadv1.PathRules) (*paths.Routes, error) {
	a, b, err := v.ends(from, to)
	if err != nil {
		return nil, err
	}
	rules, err := v.rules(m)
	if err != nil {
		return nil, err
	}
	return v.net.Routes(a, b, rules)
}

// rules tells nodes from links.
func (v *view) rules(m *fairleadv1.PathRules) (r paths.Rules, err error) {
	if m == nil {
		return r, nil
	}
	sort := func(names []string, nodes, links *[]int) error {
		for _, name := range names {
			if link, err := v.net.Link(name); err == nil {
				*links = append(*links, link)
				continue
			}
			node, err := v.net.Node(name)
			if err != nil {
				return fmt.Errorf("%w; links are called as leaf1:0-spine1:3 (`fairlead path load` lists them)", err)
			}
			*nodes = append(*nodes, node)
		}
		return nil
	}
	if err := sort(m.Via, &r.Via, &r.ViaLinks); err != nil {
		return r, fmt.Errorf("via %w", err)
	}
	if err := sort(m.Avoid, &r.Avoid, &r.AvoidLinks); err != nil {
		return r, fmt.Errorf("avoid %w", err)
	}
	return r, nil
}

// protocols that have a name.
var protocols = map[string]uint8{"": paths.TCP, "tcp": paths.TCP, "udp": paths.UDP}

func protocolOf(text string) (uint8, error) {
	if p, ok := protocols[strings.ToLower(text)]; ok {
		return p, nil
	}
	p, err := strconv.ParseUint(text, 10, 8)
	if err != nil || p == 0 {
		return 0, fmt.Errorf("protocol %q: must be tcp, udp or a number from 1 to 255", text)
	}
	return uint8(p), nil
}

// addressOf reads an address; empty: none.
func addressOf(field, text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("%s %q: not an IP address, such as 10.1.1.2 or 2001:db8::2", field, text)
	}
	return a.Unmap(), nil
}

func portOf(field string, value uint32) (uint16, error) {
	n, err := atMost(field, value, math.MaxUint16)
	return uint16(n), err
}

// flowOf reads all fields of a packet.
func flowOf(m *fairleadv1.FlowFields) (f pathsel.Flow, err error) {
	if m == nil || m.Src == "" || m.Dst == "" {
		return f, fmt.Errorf("flow: must have addresses src and dst")
	}
	if f.Src, err = addressOf("src", m.Src); err != nil {
		return f, err
	}
	if f.Dst, err = addressOf("dst", m.Dst); err != nil {
		return f, err
	}
	if f.Proto, err = protocolOf(m.Protocol); err != nil {
		return f, err
	}
	if f.SrcPort, err = portOf("src_port", m.SrcPort); err != nil {
		return f, err
	}
	if f.DstPort, err = portOf("dst_port", m.DstPort); err != nil {
		return f, err
	}
	f.Label, err = atMost("flow_label", m.FlowLabel, 1<<20-1)
	return f, err
}

// requestOf reads what of a flow is decided.
func requestOf(m *fairleadv1.WantedFields) (r paths.Request, err error) {
	if m == nil {
		return r, nil
	}
	if r.Src, err = addressOf("src", m.Src); err != nil {
		return r, err
	}
	if r.Dst, err = addressOf("dst", m.Dst); err != nil {
		return r, err
	}
	if r.Proto, err = protocolOf(m.Protocol); err != nil {
		return r, err
	}
	if r.SrcPort, err = portOf("src_port", m.SrcPort); err != nil {
		return r, err
	}
	if r.DstPort, err = portOf("dst_port", m.DstPort); err != nil {
		return r, err
	}
	if r.SrcPorts, err = portRange("src_ports", m.SrcPorts); err != nil {
		return r, err
	}
	if r.DstPorts, err = portRange("dst_ports", m.DstPorts); err != nil {
		return r, err
	}
	ttl, err := atMost("ttl", m.Ttl, 255)
	r.TTL, r.IPv6 = uint8(ttl), m.Ipv6
	return r, err
}

func portRange(field string, m *fairleadv1.PortRange) (r [2]uint16, err error) {
	if m == nil {
		return r, nil
	}
	if r[0], err = portOf(field+".first", m.First); err != nil {
		return r, err
	}
	if r[1], err = portOf(field+".last", m.Last); err != nil {
		return r, err
	}
	if r[0] > r[1] || r[1] == 0 {
		return r, fmt.Errorf("%s %d-%d: write first and last, 1 to 65535", field, r[0], r[1])
	}
	return r, nil
}

// path is a path by names.
func (v *view) path(p *paths.Path, number uint64) *fairleadv1.FabricPath {
	m := &fairleadv1.FabricPath{Number: bounded(number), From: v.fabric.Nodes[p.Src.Node].Name, To: v.fabric.Nodes[p.Dst.Node].Name,
		FromAddress: addressText(p.Src.Addr), ToAddress: addressText(p.Dst.Addr)}
	nodes := v.net.Nodes(p)
	for i, h := range p.Hops {
		m.Hops = append(m.Hops, &fairleadv1.PathHop{Link: v.net.LinkName(h.Link), From: v.fabric.Nodes[nodes[i]].Name, To: v.fabric.Nodes[nodes[i+1]].Name})
	}
	first := v.fabric.Nodes[p.Src.Node].TTL
	for _, s := range p.Steps {
		step := &fairleadv1.PathStep{Router: v.fabric.Nodes[nodes[1+first-s.TTL]].Name, Ttl: uint32(s.TTL), Port: int32(s.Port)}
		if s.Port == paths.NoPort {
			step.Port = -1
		}
		m.Steps = append(m.Steps, step)
	}
	if len(p.Hops) > 0 {
		if err := v.net.Steered(p); err != nil {
			m.Unsteered = err.Error()
		}
	}
	return m
}

// addressText is "" for none.
func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func fieldsOf(f pathsel.Flow) *fairleadv1.FlowFields {
	if !f.Src.IsValid() {
		return nil
	}
	m := &fairleadv1.FlowFields{Src: f.Src.String(), Dst: f.Dst.String(), Protocol: strconv.Itoa(int(f.Proto)),
		SrcPort: uint32(f.SrcPort), DstPort: uint32(f.DstPort), FlowLabel: f.Label}
	for name, number := range protocols {
		if number == f.Proto && name != "" {
			m.Protocol = name
		}
	}
	return m
}

func (v *view) choice(c *paths.Choice) *fairleadv1.PathChoice {
	m := &fairleadv1.PathChoice{Router: v.fabric.Nodes[c.Node].Name, Ttl: uint32(c.TTL), Port: -1, How: "unknown"}
	for _, h := range c.Hops {
		m.Ports = append(m.Ports, int32(h.Port))
	}
	if c.Taken >= 0 {
		m.Port, m.How = m.Ports[c.Taken], c.How.String()
	}
	return m
}

func (v *view) placed(p *paths.Placement) *fairleadv1.PlacedFlow {
	return &fairleadv1.PlacedFlow{Id: p.ID, Owner: p.Order.Owner, Path: v.path(&p.Path, v.number(&p.Path, p.Order.Rules)), Flow: fieldsOf(p.Flow), UntilUnixMs: daemon.UnixMS(p.Order.Until)}
}

// message is the fabric and its links' loads.
func (v *view) message() *fairleadv1.GetFabricResponse {
	s := v.fabric.Selector
	m := &fairleadv1.GetFabricResponse{Permutation: string(s.Permutation), Radix: uint32(s.Radix), Ipv4: string(s.IPv4), Ipv6: string(s.IPv6),
		Flows: uint32(len(v.scheduler.Placed()))}
	for i := range v.fabric.Nodes {
		n := &v.fabric.Nodes[i]
		node := &fairleadv1.PathNode{Name: n.Name, Host: n.Host, Plain: n.Plain, Ttl: uint32(n.TTL)}
		for _, a := range n.Addresses {
			node.Addresses = append(node.Addresses, a.String())
		}
		m.Nodes = append(m.Nodes, node)
	}
	loads := v.scheduler.Loads()
	for i := range v.fabric.Links {
		l := &v.fabric.Links[i]
		link := &fairleadv1.PathLink{Name: v.net.LinkName(i), Capacity: l.Capacity, Down: l.Down}
		for side := range l.Ends {
			load := loads[2*i+side]
			link.Loads = append(link.Loads, &fairleadv1.LinkLoad{
				From: v.fabric.Nodes[l.Ends[side].Node].Name, To: v.fabric.Nodes[l.Ends[1-side].Node].Name,
				Flows: uint32(load.Flows), Measured: load.Measured, Background: load.Background, UntilUnixMs: daemon.UnixMS(load.Until)})
		}
		m.Links = append(m.Links, link)
	}
	return m
}
