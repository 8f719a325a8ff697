package paths

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Ports that are chosen if a request does not say: those that are free for
// clients on Linux (net.ipv4.ip_local_port_range), and up to the last.
const (
	FirstPort = 32768
	LastPort  = 65535
)

// Protocols whose ports select paths.
const (
	TCP = 6
	UDP = 17
)

// Request is what of a flow is decided before its path is: zero fields are free.
type Request struct {
	Src, Dst         netip.Addr // zero: the path's ends', IPv4 before IPv6
	IPv6             bool       // only IPv6 for addresses that are free
	Proto            uint8      // 0: TCP
	SrcPort, DstPort uint16     // 0: free
	// SrcPorts and DstPorts bound what is chosen, both ends included; zero:
	// 32,768 to 65,535 (from 1,024 where both ports are free).
	SrcPorts, DstPorts [2]uint16
	TTL                uint8  // that packets begin with; 0: the source node's
	Random             uint64 // chooses among many selectors for the path
	// Taken, if not nil, are flows that must not be returned.
	Taken func(pathsel.Flow) bool
}

// Ports is a flow that takes the path. It fails where no choice of the free
// fields does, and says what would work: ErrUnsteered, pathsel.ErrCollision,
// pathsel.ErrNoSelector.
func (n *Net) Ports(p *Path, r Request) (pathsel.Flow, error) {
	c := chooser{net: n, request: &r, left: 1}
	err := c.choose(p)
	return c.last, err
}

// EachPorts yields such flows, each with other ports or another label, until
// yield returns false; at most limit. It fails if there is none at all.
func (n *Net) EachPorts(p *Path, r Request, limit int, yield func(pathsel.Flow) bool) error {
	c := chooser{net: n, request: &r, left: limit, yield: yield}
	return c.choose(p)
}

// flow is the part of the flow that is decided.
func (n *Net) flow(p *Path, r *Request) (f pathsel.Flow, err error) {
	f = pathsel.Flow{Src: r.Src, Dst: r.Dst, Proto: r.Proto, SrcPort: r.SrcPort, DstPort: r.DstPort}
	f.Proto = cmp.Or(f.Proto, TCP)
	first, last := p.Hops[0].Link, p.Hops[len(p.Hops)-1].Link
	if on := n.linkOf(r.Dst); on >= 0 && on != int32(last) {
		return f, fmt.Errorf("destination %s stands on link %s, and the path ends with link %s: it %w by fields; name an address of that link, or none",
			r.Dst, n.linkName[on], n.linkName[last], ErrUnsteered)
	}
	for _, six := range []bool{r.IPv6, true} {
		src, dst := r.Src, r.Dst
		okSrc, okDst := src.IsValid() && src.Is6() == six, dst.IsValid() && dst.Is6() == six
		if !src.IsValid() {
			src, okSrc = n.addressFor(p.Src, first, six)
		}
		if !dst.IsValid() {
			dst, okDst = n.addressFor(p.Dst, last, six)
		}
		if okSrc && okDst {
			f.Src, f.Dst = src, dst
			return f, nil
		}
	}
	return f, n.unaddressed(p, r)
}

// unaddressed is the error of a path whose ends have no addresses of one family.
func (n *Net) unaddressed(p *Path, r *Request) error {
	six := r.IPv6 || r.Src.Is6() || r.Dst.Is6()
	family := "IPv4"
	if six {
		family = "IPv6"
	}
	var who []string
	for _, end := range []struct {
		Place
		given netip.Addr
		link  int
	}{{p.Src, r.Src, p.Hops[0].Link}, {p.Dst, r.Dst, p.Hops[len(p.Hops)-1].Link}} {
		_, has := n.addressFor(end.Place, end.link, six)
		if has = end.given.IsValid() && end.given.Is6() == six || !end.given.IsValid() && has; !has {
			who = append(who, n.placeName(end.Place))
		}
	}
	return fmt.Errorf("from %s to %s: the path %w by fields, as no address of %s is known of %s there; add one to the file, or name one",
		n.placeName(p.Src), n.placeName(p.Dst), ErrUnsteered, family, strings.Join(who, " and "))
}

// Steered says why no selector leads over the path; nil: one does, if a flow
// has fields left to choose. It goes by IPv6 where the path's ends have no
// addresses of IPv4, and some of IPv6: by the family that Ports takes.
func (n *Net) Steered(p *Path) error {
	steps, err := n.steps(p, 0)
	if err == nil {
		err = n.selector.Collide(!n.both(p, false) && n.both(p, true), steps)
	}
	return err
}

// both tells whether both ends have an address of the family.
func (n *Net) both(p *Path, six bool) bool {
	_, src := n.addressFor(p.Src, p.Hops[0].Link, six)
	_, dst := n.addressFor(p.Dst, p.Hops[len(p.Hops)-1].Link, six)
	return src && dst
}

// steps are the path's for packets that begin with ttl.
func (n *Net) steps(p *Path, ttl uint8) ([]pathsel.Step, error) {
	usual := n.fabric.Nodes[p.Src.Node].TTL
	ttl = cmp.Or(ttl, usual)
	if routers := len(p.Hops) - 1; int(ttl) < routers {
		return nil, fmt.Errorf("time to live %d: the path has %d routers; begin with more", ttl, routers)
	}
	for _, s := range p.Steps {
		if s.Port == NoPort {
			return nil, n.unsteered(p, usual-s.TTL)
		}
	}
	if ttl == usual {
		return p.Steps, nil
	}
	out := make([]pathsel.Step, len(p.Steps))
	for i, s := range p.Steps {
		out[i] = pathsel.Step{TTL: s.TTL - usual + ttl, Port: s.Port}
	}
	return out, nil
}

// unsteered is the error of a choice that no selector makes, at the router
// after so many others.
func (n *Net) unsteered(p *Path, before uint8) error {
	h := p.Hops[int(before)+1]
	e := &n.fabric.Links[h.Link].Ends[h.From]
	name := n.name(e.Node)
	switch {
	case n.fabric.Nodes[e.Node].Plain:
		return fmt.Errorf("link %s %w: router %s is plain and chooses by a hash nobody knows; run `fairlead router` on it, or take a path where it has no choice",
			n.linkName[h.Link], ErrUnsteered, name)
	case e.Port < 0:
		return fmt.Errorf("link %s %w: its port at %s has no number; write one under the link's ports in the file, below the radix, which is %d",
			n.linkName[h.Link], ErrUnsteered, name, n.fabric.Selector.Radix)
	}
	return fmt.Errorf("link %s %w: its port %d at %s does not fit the radix, which is %d; write a larger one, or other numbers",
		n.linkName[h.Link], ErrUnsteered, e.Port, name, n.fabric.Selector.Radix)
}
