package bench

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// lbCase is a packet, the flows that it takes turns with, and what must come
// of it, so that a case that measures something else fails instead of lying.
type lbCase struct {
	name   string
	floor  bool
	to     netip.Addr
	syn    bool
	fin    bool
	set    flowSet
	first  uint32 // of the set's flows
	flows  uint32
	action uint32
	reason bpf.Reason // FL_REASON_COUNT: a known connection
	on     where      // the balancer that has it
	// table names the VIP of which the flow table holds what keepFlows kept.
	table string
	// Shares of the packets that must find an entry, and make one.
	hits, made share
	// seats are those of the case, taken that share of the packets that take one.
	seats seatState
	taken share
	// lru: the floor, and an insert into a BPF LRU hash.
	lru bool
	// cpus are at it at once; 0: one. Then what a packet takes is compared with another
	// case than the floor.
	cpus  int
	other string
}

// share is a range of shares of the packets; the zero value: none.
type share struct{ least, most float64 }

var (
	all  = share{1, 1}
	most = share{0.97, 1} // a few of the flows find their set full
	few  = share{0, 0.03}
	// tenth: of those that the horizon's tenth would take, each a share of
	// 50/550 in expectation.
	tenth = share{0.08, 0.1}
)

// where says which of the balancers a case runs on.
type where int

const (
	usual    where = iota // a flow table of the default size
	full                  // one that has room for every flow
	large                 // a VIP of manyBuckets
	steering              // one that steers tunnels
	seating               // one whose connections have seats
)

// openBalancers loads the balancer once for each kind of case.
func openBalancers() (s *suite, err error) {
	var closers []func()
	closeAll := func() {
		for _, c := range slices.Backward(closers) {
			c()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	open := func(names []string, limit int, sets ...flowSet) (*balancer, error) {
		b, err := openBalancer(names, limit, sets...)
		if err != nil {
			return nil, err
		}
		closers = append(closers, b.close)
		release, err := hold(b.o.BenchNone, b.o.BenchFloor, b.o.BenchLb, b.o.BenchLru)
		if err != nil {
			return nil, err
		}
		closers = append(closers, release)
		return b, nil
	}
	const many, ct, steered, stateful = "beamer-6m", "full-ct", "gue-steered", "stateful"
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(vips)), func(name string) bool {
		return slices.Contains([]string{many, ct, steered, stateful}, name)
	})
	var by [places]*balancer
	if by[usual], err = open(names, flowLimit, known, bad, known6, untracked, tracked); err != nil {
		return nil, err
	}
	if by[full], err = open([]string{ct}, fullFlowLimit, known, bad); err != nil {
		return nil, err
	}
	if by[large], err = open([]string{many}, flowLimit, known, settled); err != nil {
		return nil, err
	}
	if by[steering], err = open([]string{steered}, flowLimit, known); err != nil {
		return nil, err
	}
	if by[seating], err = open([]string{stateful}, flowLimit, seated, bad); err != nil {
		return nil, err
	}
	for cpu := range 2 {
		l, release, err := by[seating].second(cpu)
		if err != nil {
			return nil, err
		}
		closers = append(closers, release)
		by[seating].cpus = append(by[seating].cpus, l)
	}
	for _, keep := range []func() error{
		func() error { return by[usual].keepFlows("jet", tracked) },
		func() error { return by[usual].keepFlows("anchor", tracked) },
		func() error { return by[full].keepFlows(ct, known) },
	} {
		if err := keep(); err != nil {
			return nil, err
		}
	}
	s = balancerSuite(by)
	s.refresh = func() error {
		return errors.Join(by[usual].refresh(), by[full].refresh(), by[large].refresh(), by[steering].refresh(), by[seating].refresh())
	}
	s.close = closeAll
	return s, nil
}

const places = seating + 1

func balancerSuite(balancers [places]*balancer) *suite {
	const passes, news = bpf.ReasonCount, bpf.ForwardNew
	rr, jet, ct, stateful := vips["rr"].addr, vips["jet"].addr, vips["full-ct"].addr, vips["stateful"].addr
	list := []lbCase{
		{name: "floor", floor: true, to: rr, flows: 1, action: xdpTX, reason: passes},
		{name: "floor-1m", floor: true, to: rr, flows: flowCount, action: xdpTX, reason: passes},
		{name: "floor-novip", floor: true, to: noVIP, flows: 1, action: xdpPass, reason: passes},
		{name: "novip", to: noVIP, flows: 1, action: xdpPass, reason: bpf.PassNoVIP},
		{name: "cheetah-known-1", to: rr, flows: 1, action: xdpTX, reason: passes},
		{name: "cheetah-known-1m", to: rr, flows: flowCount, action: xdpTX, reason: passes},
		{name: "cheetah-known-v6", to: vips["v6"].addr, set: known6, flows: flowCount, action: xdpTX, reason: passes},
		{name: "cheetah-known-gue", to: vips["gue"].addr, flows: flowCount, action: xdpTX, reason: passes},
		{name: "tier1-known", to: vips["tier1"].addr, flows: flowCount, action: xdpTX, reason: passes},
		{name: "cheetah-known-gue-steered", on: steering, to: vips["gue-steered"].addr, flows: flowCount, action: xdpTX, reason: passes},
	}
	for _, policy := range []string{"rr", "wrr", "p2c", "least-conn", "hash"} {
		list = append(list, lbCase{name: "cheetah-new-" + policy, to: vips[policy].addr, syn: true,
			flows: flowCount, action: xdpTX, reason: news})
	}
	list = append(list,
		lbCase{name: "cheetah-bad-cookie", to: rr, set: bad, flows: flowCount,
			action: xdpTX, reason: bpf.ForwardBadCookie},
		lbCase{name: "stateless-known-1m", to: vips["stateless"].addr, flows: flowCount,
			action: xdpTX, reason: bpf.ForwardStateless},
		lbCase{name: "jet-known-1m", to: jet, set: untracked, flows: flowCount, table: "jet", action: xdpTX, reason: passes},
		lbCase{name: "jet-anchor-known-1m", to: vips["anchor"].addr, set: untracked, flows: flowCount, table: "anchor",
			action: xdpTX, reason: passes},
		lbCase{name: "jet-tracked", to: jet, set: tracked, first: trackedCount - hotCount, flows: hotCount, table: "jet",
			action: xdpTX, reason: passes, hits: most, made: few},
		lbCase{name: "jet-new", to: jet, syn: true, flows: flowCount, table: "jet", action: xdpTX, reason: news, made: tenth},
		lbCase{name: "full-ct-known-1", on: full, to: ct, flows: 1, table: "full-ct", action: xdpTX, reason: passes, hits: all},
		lbCase{name: "full-ct-known-1m", on: full, to: ct, flows: flowCount, table: "full-ct", action: xdpTX, reason: passes,
			hits: most, made: few},
		lbCase{name: "full-ct-new", on: full, to: ct, syn: true, set: bad, flows: flowCount, table: "full-ct", action: xdpTX,
			reason: news, made: all},
		lbCase{name: "stateful-known-1", on: seating, to: stateful, set: seated, flows: 1, seats: seatsLive, action: xdpTX, reason: passes},
		lbCase{name: "stateful-known-1m", on: seating, to: stateful, set: seated, flows: flowCount, seats: seatsLive, action: xdpTX, reason: passes},
		lbCase{name: "stateful-known-2cpu", on: seating, to: stateful, set: seated, flows: flowCount, seats: seatsLive, cpus: 2, other: "stateful-known-1m", action: xdpTX, reason: passes},
		lbCase{name: "stateful-new", on: seating, to: stateful, syn: true, set: bad, flows: flowCount, seats: seatsFree, taken: most, action: xdpTX, reason: news},
		lbCase{name: "stateful-close", on: seating, to: stateful, set: seated, fin: true, flows: flowCount, seats: seatsClosing, action: xdpTX, reason: passes},
		lbCase{name: "floor-lru-new", lru: true, to: rr, set: bad, flows: flowCount, action: xdpTX, reason: passes},
		lbCase{name: "beamer-known", to: vips["beamer"].addr, flows: flowCount, action: xdpTX, reason: passes},
		lbCase{name: "beamer-known-v6", to: vips["beamer-v6"].addr, set: known6, flows: flowCount, action: xdpTX, reason: passes},
		lbCase{name: "beamer-known-gue", to: vips["beamer-gue"].addr, flows: flowCount, action: xdpTX, reason: passes},
		lbCase{name: "beamer-known-moved", to: vips["beamer-moved"].addr, flows: flowCount, action: xdpTX, reason: passes},
		lbCase{name: "beamer-new", to: vips["beamer"].addr, syn: true, flows: flowCount, action: xdpTX, reason: news},
		lbCase{name: "beamer-known-6m", on: large, to: vips["beamer-6m"].addr, set: settled, flows: flowCount, action: xdpTX, reason: passes},
		lbCase{name: "beamer-known-6m-moved", on: large, to: vips["beamer-6m"].addr, flows: flowCount, action: xdpTX, reason: passes})
	s := &suite{}
	seen := map[string]bool{}
	for _, c := range list {
		h := harnessName(c)
		if !seen[h] {
			seen[h] = true
			s.harnesses = append(s.harnesses, measured{name: h, run: func(part, n int) (float64, error) {
				b := balancers[c.on]
				return b.timed(progNone, c, xdpPass, part, n)
			}})
		}
		b := balancers[c.on]
		s.cases = append(s.cases, measured{name: c.name, harness: h, floor: c.other, run: func(part, n int) (float64, error) {
			return b.checked(c, part, n)
		}})
	}
	return s
}

// checked measures a part of a case and holds what was counted against what
// the case says of itself.
func (b *balancer) checked(c lbCase, part, packets int) (float64, error) {
	if c.table != "" {
		if err := b.putFlows(c.table); err != nil {
			return 0, err
		}
	}
	if err := b.putSeats(c.seats); err != nil {
		return 0, err
	}
	before, err := b.count()
	if err != nil {
		return 0, err
	}
	program := progLB
	switch {
	case c.floor:
		program = progFloor
	case c.lru:
		program = progLRU
	}
	ns, err := b.timed(program, c, c.action, part, packets)
	if err != nil {
		return 0, err
	}
	after, err := b.count()
	if err != nil {
		return 0, err
	}
	return ns, after.since(before).check(c, packets)
}

// harnessName tells apart the harnesses whose cost differs: by family, size
// and memory that the flows take.
func harnessName(c lbCase) string {
	family, kind, flows := 4, "segment", "1"
	if c.to.Is6() {
		family = 6
	}
	if c.syn {
		kind = "syn"
	}
	switch {
	case c.flows == flowCount:
		flows = "1m"
	case c.flows > 1:
		flows = fmt.Sprint(c.flows)
	}
	name := fmt.Sprintf("v%d-%s-%s", family, kind, flows)
	if c.cpus > 1 {
		name += fmt.Sprintf("-%dcpu", c.cpus)
	}
	return name
}

// frame is a case's packet before the flow is written in: a bare ACK or SYN
// as Linux sends it.
func (c lbCase) frame() (frame []byte, family, saddr, ports, ecr uint32) {
	family, saddr = 4, 14+12
	l4 := uint32(14 + 20)
	src := netip.MustParseAddr("198.51.100.1")
	if c.to.Is6() {
		family, saddr, l4 = 6, 14+8+12, 14+40
		src = netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01})
	}
	t := wire.TCP{Src: netip.AddrPortFrom(src, 1024), Dst: netip.AddrPortFrom(c.to, 80),
		Flags: wire.ACK, Options: wire.Timestamp(1, 1)}
	ecr = l4 + 20 + 8
	if c.fin {
		t.Flags |= wire.FIN
	}
	if c.syn {
		t.Flags, t.Options, ecr = wire.SYN, wire.SYNOptions(1460, 1), l4+20+12
	}
	return t.Frame(), family, saddr, l4, ecr
}
