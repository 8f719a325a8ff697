package bench

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/wire"
)

// lbCase is a packet, the flows that it takes turns with, and what must come
// of it, so that a case that measures something else fails instead of lying.
type lbCase struct {
	name   string
	floor  bool
	to     netip.Addr
	syn    bool
	first  uint32
	flows  uint32
	action uint32
	reason lbFlReason // FL_REASON_COUNT: a known connection
}

// openSuites loads everything that has cases.
func openSuites() ([]*suite, error) {
	b, err := openBalancer()
	if err != nil {
		return nil, err
	}
	h, err := openAgent()
	if err != nil {
		b.close()
		return nil, err
	}
	return []*suite{b, h}, nil
}

func (b *balancer) suite() *suite {
	const known = lbFlReasonFL_REASON_COUNT
	rr, v6 := vips["rr"].addr, vips["v6"].addr
	list := []lbCase{
		{name: "floor", floor: true, to: rr, flows: 1, action: xdpTX, reason: known},
		{name: "floor-1m", floor: true, to: rr, flows: flowCount, action: xdpTX, reason: known},
		{name: "floor-novip", floor: true, to: noVIP, flows: 1, action: xdpPass, reason: known},
		{name: "novip", to: noVIP, flows: 1, action: xdpPass, reason: lbFlReasonFL_PASS_NO_VIP},
		{name: "cheetah-known-1", to: rr, flows: 1, action: xdpTX, reason: known},
		{name: "cheetah-known-1m", to: rr, flows: flowCount, action: xdpTX, reason: known},
		{name: "cheetah-known-v6", to: v6, first: known6Flows, flows: flowCount, action: xdpTX, reason: known},
		{name: "cheetah-known-gue", to: vips["gue"].addr, flows: flowCount, action: xdpTX, reason: known},
	}
	for _, policy := range []string{"rr", "wrr", "p2c", "least-conn", "hash"} {
		list = append(list, lbCase{name: "cheetah-new-" + policy, to: vips[policy].addr, syn: true,
			flows: flowCount, action: xdpTX, reason: lbFlReasonFL_FORWARD_NEW})
	}
	list = append(list,
		lbCase{name: "cheetah-bad-cookie", to: rr, first: badFlows, flows: flowCount,
			action: xdpTX, reason: lbFlReasonFL_FORWARD_BAD_COOKIE},
		lbCase{name: "stateless-known-1m", to: vips["stateless"].addr, flows: flowCount,
			action: xdpTX, reason: lbFlReasonFL_FORWARD_STATELESS})
	s := &suite{}
	seen := map[string]bool{}
	for _, c := range list {
		h := harnessName(c)
		if !seen[h] {
			seen[h] = true
			s.harnesses = append(s.harnesses, measured{name: h, run: func(part, n int) (float64, error) {
				return b.measure(b.o.BenchNone, c, xdpPass, part, n)
			}})
		}
		program := b.o.BenchLb
		if c.floor {
			program = b.o.BenchFloor
		}
		s.cases = append(s.cases, measured{name: c.name, harness: h, run: func(part, n int) (float64, error) {
			before, err := b.reasons()
			if err != nil {
				return 0, err
			}
			ns, err := b.measure(program, c, c.action, part, n)
			if err != nil {
				return 0, err
			}
			return ns, b.checkReasons(before, c)
		}})
	}
	return s
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
	if c.flows > 1 {
		flows = "1m"
	}
	return fmt.Sprintf("v%d-%s-%s", family, kind, flows)
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
	if c.syn {
		t.Flags, t.Options, ecr = wire.SYN, wire.SYNOptions(1460, 1), l4+20+12
	}
	return t.Frame(), family, saddr, l4, ecr
}

// measure takes one part of a case.
func (b *balancer) measure(p *ebpf.Program, c lbCase, action uint32, part, packets int) (float64, error) {
	frame, family, saddr, ports, ecr := c.frame()
	state := lbBenchCase{First: c.first, Mask: c.flows - 1, Length: uint32(len(frame)), Family: family,
		AtSaddr: saddr, AtPorts: ports, AtEcr: ecr}
	if err := b.o.BenchCase.Set(state); err != nil {
		return 0, err
	}
	if err := b.o.BenchNext.Set(uint32(part * packets)); err != nil {
		return 0, err
	}
	runs := packets / packetsPerRun
	_, d, err := p.Benchmark(frame, runs, nil)
	if err != nil {
		return 0, err
	}
	if err := b.o.BenchCase.Get(&state); err != nil {
		return 0, err
	}
	if n := state.Verdicts[action]; n < uint32(runs*packetsPerRun) {
		return 0, fmt.Errorf("only %d of %d packets had verdict %d (%v): this measures something else",
			n, runs*packetsPerRun, action, state.Verdicts)
	}
	return perPacket(d), nil
}

func (b *balancer) reasons() (n [lbFlReasonFL_REASON_COUNT]uint64, err error) {
	for i := range n {
		var c []lbFlCount
		if err := b.o.Reasons.Lookup(uint32(i), &c); err != nil {
			return n, err
		}
		for _, x := range c {
			n[i] += x.Packets
		}
	}
	return n, nil
}

// checkReasons says whether packets were counted under another reason than
// the case's.
func (b *balancer) checkReasons(before [lbFlReasonFL_REASON_COUNT]uint64, c lbCase) error {
	after, err := b.reasons()
	if err != nil {
		return err
	}
	for i := range after {
		if lbFlReason(i) != c.reason && after[i] != before[i] {
			return fmt.Errorf("%d packets were counted under reason %d, not %d: this measures something else",
				after[i]-before[i], i, c.reason)
		}
	}
	return nil
}
