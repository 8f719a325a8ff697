package paths

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// State is what a scheduler has placed, by names, so that it outlasts a
// restart and a change of the fabric. As JSON it is the path service's file.
type State struct {
	Last  uint64      `json:"last"` // the last ID that was given
	Flows []FlowState `json:"flows"`
}

// FlowState is one placement.
type FlowState struct {
	ID         uint64    `json:"id"`
	From       EndState  `json:"from"`
	To         EndState  `json:"to"`
	Owner      string    `json:"owner,omitempty"`
	Until      time.Time `json:"until,omitzero"`
	Via        []string  `json:"via,omitempty"`
	ViaLinks   []string  `json:"via_links,omitempty"`
	Avoid      []string  `json:"avoid,omitempty"`
	AvoidLinks []string  `json:"avoid_links,omitempty"`
	// Links are the path's.
	Links []string `json:"links"`
	// Ports and what follows are there if fields were asked for.
	Ports *PortsState `json:"ports,omitempty"`
}

// EndState is a place.
type EndState struct {
	Node    string     `json:"node"`
	Address netip.Addr `json:"address,omitzero"`
}

// PortsState is what was asked for, and the flow that was given. Addresses that
// were not asked for are found anew with a new path.
type PortsState struct {
	AskedSrc netip.Addr `json:"asked_src,omitzero"`
	AskedDst netip.Addr `json:"asked_dst,omitzero"`
	Src      netip.Addr `json:"src"`
	Dst      netip.Addr `json:"dst"`
	Proto    uint8      `json:"proto"`
	SrcPort  uint16     `json:"src_port"`
	DstPort  uint16     `json:"dst_port"`
	Label    uint32     `json:"label,omitempty"`
	TTL      uint8      `json:"ttl,omitempty"`
	IPv6     bool       `json:"ipv6,omitempty"`
	FixedSrc uint16     `json:"fixed_src,omitempty"`
	FixedDst uint16     `json:"fixed_dst,omitempty"`
	SrcPorts [2]uint16  `json:"src_ports,omitzero"`
	DstPorts [2]uint16  `json:"dst_ports,omitzero"`
}

// State is all that is placed.
func (s *Scheduler) State() State {
	placed := s.Placed()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{Last: s.last, Flows: make([]FlowState, 0, len(placed))}
	for i := range placed {
		out.Flows = append(out.Flows, s.net.flowState(&placed[i]))
	}
	return out
}

func (n *Net) flowState(p *Placement) FlowState {
	o := &p.Order
	f := FlowState{ID: p.ID, Owner: o.Owner, Until: o.Until,
		From: EndState{n.name(o.From.Node), o.From.Addr}, To: EndState{n.name(o.To.Node), o.To.Addr},
		Via: n.nodeNames(o.Rules.Via), Avoid: n.nodeNames(o.Rules.Avoid),
		ViaLinks: n.linkNames(o.Rules.ViaLinks), AvoidLinks: n.linkNames(o.Rules.AvoidLinks)}
	for _, h := range p.Path.Hops {
		f.Links = append(f.Links, n.linkName[h.Link])
	}
	if r := o.Ports; r != nil {
		f.Ports = &PortsState{AskedSrc: r.Src, AskedDst: r.Dst, Src: p.Flow.Src, Dst: p.Flow.Dst, Proto: p.Flow.Proto,
			SrcPort: p.Flow.SrcPort, DstPort: p.Flow.DstPort, Label: p.Flow.Label, TTL: r.TTL, IPv6: r.IPv6, FixedSrc: r.SrcPort, FixedDst: r.DstPort, SrcPorts: r.SrcPorts, DstPorts: r.DstPorts}
	}
	return f
}

func (n *Net) nodeNames(nodes []int) (out []string) {
	for _, i := range nodes {
		out = append(out, n.name(i))
	}
	return out
}

func (n *Net) linkNames(links []int) (out []string) {
	for _, i := range links {
		out = append(out, n.linkName[i])
	}
	return out
}

// Restored is what became of one flow of a State.
type Restored struct {
	FlowState
	Moved bool  // its path is not the one it was given, but the one it takes now
	Err   error // it is not placed, and why
}

// Restore places what the state holds where it goes in this fabric, which may
// have changed, and returns those flows whose path is not the same. A flow with
// fields is counted where routers send it now. Call it before any Place.
func (s *Scheduler) Restore(state State) (changed []Restored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, state.Last)
	for _, f := range state.Flows {
		p, err := s.net.restore(f)
		if err == nil && s.placed[p.ID] != nil {
			err = fmt.Errorf("flow %d is there already", p.ID)
		}
		if err != nil {
			changed = append(changed, Restored{FlowState: f, Err: err})
			continue
		}
		s.last = max(s.last, p.ID)
		s.add(p)
		if names := s.net.flowState(p).Links; !slices.Equal(names, f.Links) {
			changed = append(changed, Restored{FlowState: f, Moved: true})
		}
	}
	return changed
}

// restore is the placement that a state describes.
func (n *Net) restore(f FlowState) (*Placement, error) {
	p := &Placement{ID: f.ID, Order: Order{Owner: f.Owner, Until: f.Until}}
	var err error
	find := func(names []string, by func(string) (int, error)) (out []int) {
		for _, name := range names {
			i, failed := by(name)
			if failed != nil && err == nil {
				err = failed
			}
			out = append(out, i)
		}
		return out
	}
	ends := find([]string{f.From.Node, f.To.Node}, n.Node)
	o := &p.Order
	o.Rules = Rules{Via: find(f.Via, n.Node), Avoid: find(f.Avoid, n.Node), ViaLinks: find(f.ViaLinks, n.Link), AvoidLinks: find(f.AvoidLinks, n.Link)}
	if err != nil {
		return nil, err
	}
	o.From, o.To = Place{ends[0], f.From.Address}, Place{ends[1], f.To.Address}
	if f.Ports == nil {
		p.Path, err = n.along(o.From, o.To, f.Links)
		return p, err
	}
	q := f.Ports
	o.Ports = &Request{Src: q.AskedSrc, Dst: q.AskedDst, IPv6: q.IPv6, Proto: q.Proto, SrcPort: q.FixedSrc, DstPort: q.FixedDst, SrcPorts: q.SrcPorts, DstPorts: q.DstPorts, TTL: q.TTL}
	p.Flow = pathsel.Flow{Src: q.Src, Dst: q.Dst, Proto: q.Proto, SrcPort: q.SrcPort, DstPort: q.DstPort, Label: q.Label}
	var known bool
	if p.Path, _, known, err = n.Of(p.Flow, q.TTL); err == nil && !known {
		// A host's own choice among its links, or a plain router's: as it was.
		p.Path, err = n.along(o.From, o.To, f.Links)
	}
	if o.From.Addr.IsValid() {
		p.Path.Src = o.From
	}
	if o.To.Addr.IsValid() {
		p.Path.Dst = o.To
	}
	return p, err
}

// along is the path over the links of these names.
func (n *Net) along(a, b Place, names []string) (Path, error) {
	var links []int
	for _, name := range names {
		i, err := n.Link(name)
		if err != nil {
			return Path{}, err
		}
		links = append(links, i)
	}
	routes, err := n.Routes(a, b, Rules{ViaLinks: links[:min(len(links), maxViaLinks)]})
	if err != nil {
		return Path{}, err
	}
	for p := range routes.All() {
		if slices.EqualFunc(p.Hops, links, func(h Hop, link int) bool { return h.Link == link }) {
			return p, nil
		}
	}
	return Path{}, fmt.Errorf("%w from %s to %s over these links", ErrNoPath, n.placeName(a), n.placeName(b))
}
