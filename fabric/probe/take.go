package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/fabric/topology"
)

// namesOf finds nodes by their addresses.
func namesOf(f *topology.Fabric) map[netip.Addr]int {
	names := map[netip.Addr]int{}
	for i, n := range f.Nodes {
		for _, a := range n.Addresses {
			names[a] = i
		}
	}
	for _, l := range f.Links {
		for _, e := range l.Ends {
			if e.Address.IsValid() {
				names[e.Address] = e.Node
			}
		}
	}
	return names
}

// take takes in what came to a socket.
func (p *Prober) take(s *socket, k packet) {
	if k.icmp != nil {
		p.takeError(s, k)
		return
	}
	m, err := p.secret.decode(k.data)
	if err != nil || m.kind != kindAnswer || m.session != p.session {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.round&trainBit != 0:
		p.trains.take(m, k.at)
	case m.round&walkBit != 0 && int(m.path) < len(p.walkers):
		p.walkers[m.path].arrived(k.at)
	case int(m.path) < len(p.lanes):
		p.lanes[m.path].take(m, k, p.c.Timeout)
	}
}

// take takes in the answer to a probe of a round.
func (l *lane) take(m message, k packet, timeout time.Duration) {
	s := &l.rounds[int(m.round)%len(l.rounds)]
	if s.round != m.round || s.at.IsZero() || s.rtt != 0 {
		return // judged before it came, or a copy
	}
	s.rtt = roundTrip(s.at, k.at, m.held, timeout)
	l.why, l.reached, l.arrived, l.passed = "", false, false, 0
	l.rewritten = l.rewriting(m, k.ttl)
}

// roundTrip is from sent to received without the time that the answerer held
// it. The clocks are the kernel's and ours of one machine; should it have been
// stepped between, the monotonic one is asked.
func roundTrip(sent, received time.Time, held int64, bound time.Duration) time.Duration {
	rtt := received.Sub(sent) - time.Duration(held)
	if rtt <= 0 || rtt > bound+time.Duration(held) {
		rtt = time.Since(sent) - time.Duration(held)
	}
	return max(rtt, 1)
}

// rewriting says what was changed on the way, "" if nothing.
func (l *lane) rewriting(m message, ttlBack uint8) string {
	sent, seen := m.sent, m.seen
	switch {
	case seen.Src != sent.Src || seen.SrcPort != sent.SrcPort:
		return fmt.Sprintf("NAT on the way: %s arrives as %s; routers behind it read another selector, so the path is not the one chosen",
			netip.AddrPortFrom(sent.Src, sent.SrcPort), netip.AddrPortFrom(seen.Src, seen.SrcPort))
	case seen.Dst != sent.Dst || seen.DstPort != sent.DstPort:
		return fmt.Sprintf("NAT on the way: what is sent to %s arrives at %s; routers behind it read another selector, so the path is not the one chosen",
			netip.AddrPortFrom(sent.Dst, sent.DstPort), netip.AddrPortFrom(seen.Dst, seen.DstPort))
	case seen.Label != sent.Label:
		return fmt.Sprintf("the flow label is rewritten on the way: %#05x arrives as %#05x", sent.Label, seen.Label)
	case m.seenTTL != l.ttlThere:
		return fmt.Sprintf("the TTL arrives as %d, not %d: rewritten on the way, or over another number of routers", m.seenTTL, l.ttlThere)
	}
	if wanted := l.backTTL - uint8(len(l.over.Hops)-1); l.back.SrcPort != 0 && ttlBack != wanted {
		return fmt.Sprintf("the TTL of answers arrives as %d, not %d: rewritten on the way back, or over another number of routers", ttlBack, wanted)
	}
	return ""
}

// takeError takes in a router's ICMP answer about what the socket sent.
func (p *Prober) takeError(s *socket, k packet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.walkers {
		if w.socket == s {
			w.expired(k, p)
			return
		}
	}
	for _, l := range p.lanes {
		if l.socket == s {
			l.why, l.reached = p.whyNot(k, p.c.Targets[l.target].Host), k.icmp.noPort()
			l.arrived = l.reached && k.icmp.router == l.flow.Dst
			l.passed = 0
			if node, known := p.names[k.icmp.router]; known && k.icmp.unreachable() {
				l.passed = 1 + slices.Index(routersOf(p.c.Fabric, l.over), node)
			}
		}
	}
}

// whyNot says what an ICMP error about a probe means.
func (p *Prober) whyNot(k packet, host string) string {
	who := p.nodeName(k.icmp.router)
	switch {
	case k.icmp.noPort():
		return fmt.Sprintf("%s has no answerer on UDP port %d; run there: fairlead path answer", host, p.c.Port)
	case k.icmp.unreachable():
		return fmt.Sprintf("%s says that it has no way to %s", who, host)
	case k.icmp.expired():
		return fmt.Sprintf("the TTL ends at %s: a loop, or the TTL is rewritten on the way", who)
	}
	return fmt.Sprintf("%s refuses it (ICMP type %d, code %d)", who, k.icmp.kind, k.icmp.code)
}

// nodeName is the node that has the address, for people.
func (p *Prober) nodeName(a netip.Addr) string {
	if !a.IsValid() {
		return p.c.From
	}
	if i, ok := p.names[a]; ok {
		return p.c.Fabric.Nodes[i].Name
	}
	return fmt.Sprintf("%s (which fabric.yaml does not know)", a)
}
