package probe

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// A fabric is learned from one host by traceroute with selectors: a packet
// whose TTL ends behind a router shows where that router sent it, and its
// selector says which port it was told to take. The routers before it take the
// choices that lead there.
//
//	one answer to flows of all digits    the router has no choice
//	one answer to all flows of a digit   the digit is the number of a port
//	several answers to flows of a digit  no port has it: the hash chose
//
// Links side by side between the same two routers look like one where they are
// all that the first one has, for the answer is the second one's.

// LearnConfig says what is learned.
type LearnConfig struct {
	// Host and Source are this host; Target and Address whom it traces.
	Host    string
	Source  netip.Addr
	Target  string
	Address netip.Addr
	// Timeout is how long an answer may take; 0: DefaultTimeout.
	Timeout time.Duration
	// Progress is told each step, for people; it may be nil.
	Progress func(string)
}

const (
	// learnHops bounds the routers on a way.
	learnHops = 30
	// sameFlows with one answer, at least, and one for each digit: a router that
	// had two ways by its hash would have sent all to one of them once in 2^9
	// times.
	sameFlows = 10
	// byChance is how probable it may be that a digit that is no port's looks
	// like one, as its flows all happened to go the same way.
	byChance = 1e-3
	// askTries are made for an answer, learnPause apart: routers answer about
	// one packet a second.
	askTries   = 8
	learnPause = 400 * time.Millisecond
)

// Learn adds what it sees between this host and a target to f: the nodes, the
// links, the numbers of the ports towards the target. Nodes are known by the
// addresses that they have in f; others are called as the address that
// answers. It needs f's selector, and routers that read it.
func Learn(ctx context.Context, f *topology.Fabric, c LearnConfig) error {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	selector, err := pathsel.New(f.Selector)
	if err != nil {
		return err
	}
	l := &learner{ctx: ctx, c: c, f: f, selector: selector, names: namesOf(f), explored: map[int]bool{}}
	l.ask = l.trace
	host := l.node(c.Host, c.Source, true)
	l.target = l.node(c.Target, c.Address, true)
	return l.explore(host, nil, 0)
}

type learner struct {
	ctx      context.Context
	c        LearnConfig
	f        *topology.Fabric
	selector *pathsel.Selector
	names    map[netip.Addr]int
	target   int
	explored map[int]bool
	sent     uint64
	// ask is trace, or a test's.
	ask func(turns []turn, ttl int) (node int, err error)
}

// turn is a choice on the way: the nth router, from 1 on, takes the port.
type turn struct{ nth, port int }

// node is the node with the name or the address; a new one if there is none.
func (l *learner) node(name string, a netip.Addr, host bool) int {
	if i, ok := l.names[a]; ok {
		return i
	}
	i := slices.IndexFunc(l.f.Nodes, func(n topology.Node) bool { return n.Name == name })
	if i < 0 {
		i = len(l.f.Nodes)
		l.f.Nodes = append(l.f.Nodes, topology.Node{Name: name, Host: host, TTL: 64})
	}
	l.f.Nodes[i].Addresses = append(l.f.Nodes[i].Addresses, a)
	l.names[a] = i
	return i
}

// explore finds where a node, the nth on the way that the turns lead, sends
// packets to the target, and goes on there.
func (l *learner) explore(node int, turns []turn, nth int) error {
	if l.explored[node] || node == l.target {
		return nil
	}
	l.explored[node] = true
	if nth >= learnHops {
		return fmt.Errorf("to %s: more than %d routers; is there a loop?", l.c.Address, learnHops)
	}
	if nth > 0 {
		l.c.Progress(fmt.Sprintf("asking %s where it sends %d flows; routers give about one answer a second (net.ipv4.icmp_ratelimit)", l.f.Nodes[node].Name, l.wayFlows(nth)))
	}
	next, err := l.ways(turns, nth)
	if err != nil {
		return err
	}
	if len(next) == 1 {
		l.link(node, next[0], -1)
		l.c.Progress(fmt.Sprintf("%s sends all to %s", l.f.Nodes[node].Name, l.f.Nodes[next[0]].Name))
		return l.explore(next[0], turns, nth+1)
	}
	l.c.Progress(fmt.Sprintf("%s has %d ways; asking which port leads where, which takes about %d answers", l.f.Nodes[node].Name, len(next), l.portFlows(len(next))))
	ports, err := l.ports(turns, nth, len(next))
	if err != nil {
		return err
	}
	if len(ports) == 0 {
		return fmt.Errorf("%s sends packets to %s over %d ways and reads no selector; is `fairlead router` on it, with this file's selector?",
			l.f.Nodes[node].Name, l.c.Address, len(next))
	}
	for _, p := range ports {
		l.link(node, p.to, p.port)
		l.c.Progress(fmt.Sprintf("%s sends port %d to %s", l.f.Nodes[node].Name, p.port, l.f.Nodes[p.to].Name))
	}
	for _, p := range ports {
		if err := l.explore(p.to, append(slices.Clone(turns), turn{nth, p.port}), nth+1); err != nil {
			return err
		}
	}
	return nil
}

// ways are the nodes that the nth router sends flows to.
func (l *learner) ways(turns []turn, nth int) (next []int, err error) {
	for i := range l.wayFlows(nth) {
		steer := turns
		if nth > 0 { // every digit is a port's or the hash's; all together show all ways
			steer = append(slices.Clone(turns), turn{nth, i % l.f.Selector.Radix})
		}
		to, err := l.ask(steer, nth+1)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(next, to) {
			next = append(next, to)
		}
	}
	return next, nil
}

// wayFlows is how many flows show the nth router's ways.
func (l *learner) wayFlows(nth int) int {
	if nth == 0 {
		return 1 // this host itself
	}
	return max(sameFlows, l.f.Selector.Radix)
}

// sameWay is how many flows that the hash spreads over known ways all go the
// same one by chance once in 1/byChance times: known^(1-flows).
func sameWay(known int) int {
	return 1 + int(math.Ceil(math.Log(1/byChance)/math.Log(float64(known))))
}

// portFlows is about how many flows show the ports of a router with known ways:
// all of sameWay for each port, and two or three for each digit that is none's.
func (l *learner) portFlows(known int) int {
	ports := min(known, l.f.Selector.Radix)
	return ports*sameWay(known) + (l.f.Selector.Radix-ports)*5/2
}

// way is a port and the node behind it.
type way struct{ port, to int }

// ports are those of the nth router's ways, of which several are known.
func (l *learner) ports(turns []turn, nth, known int) (ports []way, err error) {
	flows := sameWay(known)
	for port := range l.f.Selector.Radix {
		to := -1
		for i := range flows {
			at, err := l.ask(append(slices.Clone(turns), turn{nth, port}), nth+1)
			if err != nil {
				return nil, err
			}
			if i > 0 && at != to {
				to = -1
				break
			}
			to = at
		}
		if to >= 0 {
			ports = append(ports, way{port, to})
		}
	}
	return ports, nil
}

// link adds a link between two nodes, with the number of from's port (-1:
// not known), unless it is there.
func (l *learner) link(from, to, port int) {
	for i := range l.f.Links {
		ends := &l.f.Links[i].Ends
		for side := range ends {
			if ends[side].Node != from || ends[1-side].Node != to {
				continue
			}
			if port < 0 || ends[side].Port == port {
				return
			}
			if ends[side].Port < 0 {
				ends[side].Port = port
				return
			}
		}
	}
	l.f.Links = append(l.f.Links, topology.Link{Ends: [2]topology.End{{Node: from, Port: port}, {Node: to, Port: -1}}, Cost: 1})
}

// trace is the node at which a flow over the turns ends that begins with ttl.
func (l *learner) trace(turns []turn, ttl int) (int, error) {
	for range askTries {
		node, ok, err := l.traceOnce(turns, ttl)
		if ok || err != nil {
			return node, err
		}
		select {
		case <-l.ctx.Done():
			return 0, fmt.Errorf("stopped: %w", l.ctx.Err())
		case <-time.After(learnPause):
		}
	}
	return 0, fmt.Errorf("to %s: router number %d on the way does not answer packets whose TTL ends there; see its firewall and net.ipv4.icmp_ratelimit", l.c.Address, ttl)
}

// traceOnce sends one flow; ok is whether somebody answered.
func (l *learner) traceOnce(turns []turn, ttl int) (node int, ok bool, err error) {
	flow, s, err := l.open(turns, ttl)
	if err != nil {
		return 0, false, err
	}
	defer s.close()
	answers := make(chan netip.Addr, 4)
	go s.receive(func(k packet) {
		switch {
		case k.icmp == nil:
		case k.icmp.expired():
			offer(answers, k.icmp.router)
		case k.icmp.noPort():
			offer(answers, l.c.Address)
		}
	})
	var b [messageSize]byte // zeroes: nobody's message
	if err := s.send(b[:], netip.AddrPortFrom(flow.Dst, flow.DstPort), uint8(ttl), flow.Label); err != nil {
		return 0, false, fmt.Errorf("send to %s: %s", l.c.Address, plainError(err))
	}
	select {
	case <-l.ctx.Done():
		return 0, false, fmt.Errorf("stopped: %w", l.ctx.Err())
	case <-time.After(l.c.Timeout):
		return 0, false, nil
	case a := <-answers:
		return l.node("router-"+strings.NewReplacer(".", "-", ":", "-").Replace(a.String()), a, false), true, nil
	}
}

func offer(answers chan<- netip.Addr, a netip.Addr) {
	if !a.IsValid() {
		return
	}
	select {
	case answers <- a:
	default:
	}
}

// open finds a new flow over the turns and opens the socket that sends it.
func (l *learner) open(turns []turn, ttl int) (pathsel.Flow, *socket, error) {
	var steps []pathsel.Step
	for _, t := range turns {
		steps = append(steps, pathsel.Step{TTL: uint8(ttl - t.nth + 1), Port: uint8(t.port)})
	}
	const ephemeral = 32768 // services listen below
	for range 1000 {
		l.sent++
		flow := pathsel.Flow{Src: l.c.Source, Dst: l.c.Address, Proto: protoUDP, SrcPort: ephemeral + uint16(l.sent%ephemeral), DstPort: 33434}
		if err := l.selector.Encode(&flow, steps, l.sent*0x9e3779b97f4a7c15); err != nil {
			return flow, nil, err
		}
		if flow.SrcPort < ephemeral || flow.DstPort < ephemeral {
			continue
		}
		s, err := openSocket(netip.AddrPortFrom(flow.Src, flow.SrcPort), true)
		if err == nil {
			return flow, s, nil
		}
	}
	return pathsel.Flow{}, nil, fmt.Errorf("no socket of %s for a flow over %d choices; is it this host's address?", l.c.Source, len(turns))
}
