package probe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// lane is one path of one target, with the flows that take it there and back.
type lane struct {
	target, path int // as in State
	over         paths.Path
	flow         pathsel.Flow
	ttl          uint8 // that probes begin with
	ttlThere     uint8 // that the target should see
	back         pathsel.Flow
	backTTL      uint8
	socket       *socket

	track     track
	rounds    []sentProbe // the last ones, by round modulo their number
	why       string      // ICMP or the kernel says why nothing arrives
	reached   bool        // and that it came to the host, where nobody answers
	arrived   bool        // the host itself has said so since the last round was judged
	passed    int         // hops to the router that says it has no way on; 0: none says so
	rewritten string
	rates     Rates
	walks     []*walker // by the routers on the way; nil without walks
}

// sentProbe is a probe that waits to be judged.
type sentProbe struct {
	round uint32
	at    time.Time
	rtt   time.Duration // 0: no answer yet
}

// links of the lane, in their order.
func (l *lane) links() []int { return linksOf(l.over) }

func linksOf(p paths.Path) []int {
	links := make([]int, len(p.Hops))
	for i, h := range p.Hops {
		links[i] = h.Link
	}
	return links
}

// routersOf are the nodes between a path's ends.
func routersOf(f *topology.Fabric, p paths.Path) []int {
	var nodes []int
	for _, h := range p.Hops[:len(p.Hops)-1] {
		nodes = append(nodes, f.Links[h.Link].Ends[1-h.From].Node)
	}
	return nodes
}

// candidates is how many flows of a path are tried before its source ports
// count as all taken.
const candidates = 256

// newLane finds flows for a path, both ways. With an error the lane has no
// socket, and says why.
func (p *Prober) newLane(target, index int) (*lane, error) {
	t := p.c.Targets[target]
	l := &lane{target: target, path: index, over: t.Paths[index]}
	nodes := p.c.Fabric.Nodes
	l.ttl = nodes[l.over.Src.Node].TTL
	l.backTTL = nodes[l.over.Dst.Node].TTL
	l.ttlThere = l.ttl - uint8(len(l.over.Hops)-1)
	var err error
	l.flow, l.socket, err = p.bind(&l.over, paths.Request{
		Src: first(l.over.Src.Addr, p.c.Source), Dst: first(l.over.Dst.Addr, t.Address), IPv6: p.c.IPv6, DstPort: p.c.Port, TTL: l.ttl,
	})
	if err != nil {
		l.why = "cannot be probed: " + err.Error()
		return l, fmt.Errorf("probe path %d to %s: %w", index, t.Host, err)
	}
	l.back, err = p.wayBack(l.over, l.flow, l.backTTL)
	if err != nil {
		// What is lost on the way back then says less about this path.
		p.log.Warn("answers to probes take whatever way routers choose", "path", index, "target", t.Host, "error", err)
	}
	return l, nil
}

func first(a, b netip.Addr) netip.Addr {
	if a.IsValid() {
		return a
	}
	return b
}

// bind finds a flow over the path whose source port nobody here uses, and
// opens the socket that has it.
func (p *Prober) bind(over *paths.Path, r paths.Request) (flow pathsel.Flow, s *socket, err error) {
	r.Proto = protoUDP
	r.Random = rand.Uint64()
	if p.labels(r) {
		flow, s, err = p.bindAny(over, r)
	} else {
		flow, s, err = p.bindPort(over, r)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		err = fmt.Errorf("this host has no address %s; run it on %s, or correct the host's addresses in fabric.yaml", flow.Src, p.c.From)
	}
	if err == nil {
		p.sockets = append(p.sockets, s)
	}
	return flow, s, err
}

// labels says whether flow labels choose the path, and source ports do not.
func (p *Prober) labels(r paths.Request) bool {
	return p.c.Fabric.Selector.IPv6 == pathsel.FlowLabel && (r.IPv6 || r.Src.Is6() || r.Dst.Is6())
}

// bindAny is bind where the kernel may choose the port.
func (p *Prober) bindAny(over *paths.Path, r paths.Request) (pathsel.Flow, *socket, error) {
	source := r.Src
	if !source.IsValid() {
		source = netip.IPv6Unspecified()
	}
	s, err := openSocket(netip.AddrPortFrom(source, 0), true)
	if err != nil {
		return pathsel.Flow{Src: source}, nil, err
	}
	r.SrcPort = s.port()
	flow, err := p.net.Ports(over, r)
	if err != nil {
		s.close()
		return flow, nil, err
	}
	return flow, s, nil
}

// bindPort is bind where the source port chooses the path.
func (p *Prober) bindPort(over *paths.Path, r paths.Request) (flow pathsel.Flow, s *socket, err error) {
	search := p.net.EachPorts(over, r, candidates, func(f pathsel.Flow) bool {
		flow = f
		s, err = openSocket(netip.AddrPortFrom(f.Src, f.SrcPort), true)
		return errors.Is(err, syscall.EADDRINUSE) // the next one
	})
	switch {
	case search != nil:
		return flow, nil, search
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%d source ports that take it are in use", candidates)
	}
	return flow, s, err
}

// wayBack is the answer's flow: the same links in reverse.
func (p *Prober) wayBack(over paths.Path, there pathsel.Flow, ttl uint8) (pathsel.Flow, error) {
	links := linksOf(over)
	routes, err := p.net.Routes(over.Dst, over.Src, paths.Rules{ViaLinks: links})
	if err != nil {
		return pathsel.Flow{}, err
	}
	slices.Reverse(links)
	r := paths.Request{Src: there.Dst, Dst: there.Src, Proto: protoUDP, DstPort: there.SrcPort, TTL: ttl, Random: rand.Uint64()}
	if p.labels(r) {
		r.SrcPort = p.c.Port
	}
	for back := range routes.All() {
		if slices.Equal(linksOf(back), links) {
			return p.net.Ports(&back, r)
		}
	}
	return pathsel.Flow{}, errors.New("no path back over the same links costs as little")
}
