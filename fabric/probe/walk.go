package probe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// A walk is a probe that ends on its way: its TTL suffices to a router on the
// path, whose ICMP answer tells which router it came to. So it is seen
//
//   - that a path is not the chosen one: a router whose next hop is gone sends
//     the flow elsewhere, and nothing is lost (docs/router.md);
//   - how far a path is well, where two hosts alone cannot tell which link of
//     it is bad;
//   - where a TTL is rewritten.
//
// Each beginning of a path has a flow of its own, as the position of a digit
// depends on the TTL.

// walkBit marks rounds of walks: one that reaches the target is answered.
const walkBit = 1 << 30

// Routers bound their ICMP answers: Linux to one a second for each host, six
// at once.
const (
	askBurst = 5
	askEvery = time.Second
)

// wrongInRow walks that end at another router are no chance.
const wrongInRow = 2

// walker walks to one router over one beginning of paths.
type walker struct {
	index  int
	links  []int // of the beginning
	router int   // node that it shall end at
	after  bool  // the router before it has a choice
	over   paths.Path
	flow   pathsel.Flow
	ttl    uint8
	socket *socket

	asked  time.Time // zero: nothing is on the way
	rtt    time.Duration
	right  time.Time // when the chosen router answered last
	wrong  int       // answers of others in a row
	silent int       // asked in vain, in a row
	saw    string    // who answered instead
	at     int       // the node that did, -1 unknown
	shift  string    // the TTL is rewritten
	tail   sign      // what it said behind a train
	// reserved for a train: not to be asked otherwise
	reserved bool
}

// newWalkers makes a walker for each beginning of the lanes' paths that a flow
// takes.
func (p *Prober) newWalkers() {
	known := map[string]*walker{}
	for _, l := range p.lanes {
		if l.socket == nil {
			continue
		}
		for k := 1; k < len(l.over.Hops); k++ {
			begin := beginning(l.over, l.ttl, k)
			key := fmt.Sprint(linksOf(begin), l.flow.Dst)
			w, seen := known[key]
			if !seen {
				w = p.newWalker(l, begin, k)
				known[key] = w
			}
			if w != nil {
				l.walks = append(l.walks, w)
			}
		}
	}
}

// newWalker is nil where no flow takes the beginning.
func (p *Prober) newWalker(l *lane, begin paths.Path, k int) *walker {
	w := &walker{
		index: len(p.walkers), links: linksOf(begin), router: routersOf(p.c.Fabric, l.over)[k-1], over: begin, ttl: uint8(k), at: -1,
		after: slices.ContainsFunc(begin.Steps, func(s pathsel.Step) bool { return nth(s, l.ttl) == k-1 }),
	}
	var err error
	w.flow, w.socket, err = p.bind(&w.over, paths.Request{Src: l.flow.Src, Dst: l.flow.Dst, DstPort: l.flow.DstPort, TTL: w.ttl})
	if err != nil {
		p.log.Warn("no walk to a router", "router", p.c.Fabric.Nodes[w.router].Name, "path", l.path, "target", p.c.Targets[l.target].Host, "error", err)
		return nil
	}
	p.walkers = append(p.walkers, w)
	return w
}

// beginning is a path as far as its k-th router, with the choices before it.
func beginning(whole paths.Path, ttl uint8, k int) paths.Path {
	begin := paths.Path{Src: whole.Src, Dst: whole.Dst, Hops: whole.Hops[:k]}
	for _, s := range whole.Steps {
		if nth(s, ttl) < k {
			begin.Steps = append(begin.Steps, s)
		}
	}
	return begin
}

// nth is which router on the way makes the step, from 1 on; ttl is what
// packets begin with, as the first router receives them.
func nth(s pathsel.Step, ttl uint8) int { return int(ttl) - int(s.TTL) + 1 }

// walk walks until ctx ends: where a router has a choice every Config.Walk,
// and all the way on paths that are bad, as often as routers answer.
func (p *Prober) walk(ctx context.Context) {
	tick := time.NewTicker(min(p.c.Walk, p.c.Timeout))
	defer tick.Stop()
	budget := map[int]*asks{}
	var due time.Time
	for {
		now := time.Now()
		p.mu.Lock()
		p.conclude(now)
		wanted := p.suspected()
		if !now.Before(due) {
			due = now.Add(p.c.Walk)
			wanted = append(wanted, p.choices()...)
		}
		var ask []*walker
		for _, w := range wanted {
			if budget[w.router] == nil {
				budget[w.router] = &asks{askBurst, now}
			}
			if w.asked.IsZero() && !w.reserved && !slices.Contains(ask, w) && budget[w.router].take(now) {
				ask = append(ask, w)
			}
		}
		p.mu.Unlock()
		for _, w := range ask {
			p.ask(w)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// asks bounds what is asked of one router.
type asks struct {
	left   float64
	filled time.Time
}

func (a *asks) take(now time.Time) bool {
	a.left = min(askBurst, a.left+now.Sub(a.filled).Seconds()/askEvery.Seconds())
	a.filled = now
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

// choices are the walks that see what a router chose.
func (p *Prober) choices() (all []*walker) {
	for _, w := range p.walkers {
		if w.after {
			all = append(all, w)
		}
	}
	return all
}

// suspected are the walks on bad paths that tell nothing yet.
func (p *Prober) suspected() (all []*walker) {
	for _, l := range p.lanes {
		if l.track.verdict != Lost && l.track.verdict != Slow && l.rewritten == "" && l.track.astray == "" {
			continue
		}
		for _, w := range l.walks {
			if w.right.Before(l.track.since) {
				all = append(all, w)
			}
		}
	}
	return all
}

// ask sends a walk.
func (p *Prober) ask(w *walker) {
	m := message{kind: kindProbe, ttl: w.ttl, session: p.session, path: uint32(w.index), round: walkBit, sent: w.flow}
	var b [messageSize]byte
	p.secret.encode(b[:], &m)
	p.mu.Lock()
	w.asked = time.Now()
	p.mu.Unlock()
	_ = w.socket.send(b[:], netip.AddrPortFrom(w.flow.Dst, w.flow.DstPort), w.ttl, w.flow.Label) // rounds say why not
}

// conclude takes walks that nobody answered as silence, and tells lanes what
// was seen.
func (p *Prober) conclude(now time.Time) {
	for _, w := range p.walkers {
		if !w.asked.IsZero() && now.Sub(w.asked) > p.c.Timeout {
			w.asked = time.Time{}
			w.silent++
		}
	}
	changed := false
	for _, l := range p.lanes {
		changed = l.track.leads(p.astray(l), now) || changed
	}
	if changed {
		p.changed()
	}
}

// astray says where a lane leaves its path, "" if nothing shows that it does.
func (p *Prober) astray(l *lane) string {
	if w := l.leaves(); w != nil {
		nodes := p.c.Fabric.Nodes
		before := w.over.Hops[len(w.over.Hops)-1]
		from := p.c.Fabric.Links[before.Link].Ends[before.From].Node
		return fmt.Sprintf("%s does not send it to %s: it comes to %s", nodes[from].Name, nodes[w.router].Name, w.saw)
	}
	return ""
}

// leaves is the first walk of the lane that ended at another router.
func (l *lane) leaves() *walker {
	for _, w := range l.walks {
		if w.wrong >= wrongInRow && w.at >= 0 {
			return w
		}
	}
	return nil
}

// expired takes in the answer of the router at which a walk ended.
func (w *walker) expired(k packet, p *Prober) {
	node, known := p.names[k.icmp.router]
	// A router that has no way on says so before it looks at the TTL.
	lost := known && node == w.router && k.icmp.unreachable()
	if w.asked.IsZero() || !k.icmp.expired() && !lost {
		return
	}
	w.rtt = roundTrip(w.asked, k.at, 0, p.c.Timeout)
	w.asked, w.silent, w.shift = time.Time{}, 0, ""
	if known && node == w.router {
		w.right, w.wrong, w.saw, w.at = k.at, 0, "", -1
		return
	}
	w.saw, w.at = p.nodeName(k.icmp.router), -1
	if known {
		w.at = node
	}
	if nth := slices.Index(routersOf(p.c.Fabric, w.over), node); known && nth >= 0 {
		w.shift, w.at = fmt.Sprintf("one of %d ends at %s already", w.ttl, w.saw), -1
	}
	w.wrong++
}

// arrived takes in the target's answer to a walk, which should not have come
// so far.
func (w *walker) arrived(at time.Time) {
	if w.asked.IsZero() {
		return
	}
	w.asked, w.silent, w.wrong, w.at = time.Time{}, 0, 0, -1
	w.shift = fmt.Sprintf("one of %d reaches the target", w.ttl)
}
