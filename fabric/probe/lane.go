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
	src, dst := first(l.over.Src.Addr, p.c.Source), first(l.over.Dst.Addr, t.Address)
	nodes := p.c.Fabric.Nodes
	l.ttl = nodes[l.over.Src.Node].TTL
	l.backTTL = nodes[l.over.Dst.Node].TTL
	l.ttlThere = l.ttl - uint8(len(l.over.Hops)-1)
	var err error
	l.flow, l.socket, err = p.bind(&l.over, paths.Request{Src: src, Dst: dst, DstPort: p.c.Port, TTL: l.ttl})
	if err != nil {
		l.why = "cannot be probed: " + err.Error()
		return l, fmt.Errorf("probe path %d to %s: %w", index, t.Host, err)
	}
	l.back, err = p.wayBack(l.over, src, dst, l.flow.SrcPort, l.backTTL)
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
	tried := 0
	search := p.net.EachPorts(over, r, candidates, func(f pathsel.Flow) bool {
		tried++
		s, err = openSocket(netip.AddrPortFrom(f.Src, f.SrcPort), true)
		flow = f
		return errors.Is(err, syscall.EADDRINUSE) // the next one
	})
	switch {
	case s != nil:
		p.sockets = append(p.sockets, s)
		return flow, s, nil
	case search != nil:
		return flow, nil, search
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return flow, nil, fmt.Errorf("this host has no address %s; run it on %s, or correct the host's addresses in fabric.yaml", r.Src, p.c.From)
	case err != nil:
		return flow, nil, fmt.Errorf("%d source ports that take it are tried, the last one: %w", tried, err)
	}
	return flow, nil, errors.New("no source port takes it")
}

// wayBack is the answer's flow: the same links in reverse.
func (p *Prober) wayBack(over paths.Path, src, dst netip.Addr, to uint16, ttl uint8) (pathsel.Flow, error) {
	routes, err := p.net.Routes(paths.Place{Node: over.Dst.Node, Addr: dst}, paths.Place{Node: over.Src.Node, Addr: src}, paths.Rules{ViaLinks: linksOf(over)})
	if err != nil {
		return pathsel.Flow{}, err
	}
	links := linksOf(over)
	slices.Reverse(links)
	for r := range routes.All() {
		if !slices.Equal(linksOf(r), links) {
			continue
		}
		return p.net.Ports(&r, paths.Request{
			Src: dst, Dst: src, Proto: protoUDP, DstPort: to, TTL: ttl, Random: rand.Uint64(),
		})
	}
	return pathsel.Flow{}, errors.New("no path back over the same links costs as little")
}
