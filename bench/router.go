package bench

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/kernel/router"
	"github.com/fairlead/fairlead/wire"
)

// routerFloor is the case that the router's are compared with: the same
// program, which chooses by its hash alone.
const routerFloor = "router-hash"

// routerCase is a permutation, and packets of the family.
type routerCase struct {
	name        string
	permutation pathsel.Permutation
	six         bool
	// selected is the share of packets whose digit names a hop: of flows that
	// nobody steered, hops in radix; of steered ones all.
	selected float64
}

const (
	routerRadix = 16
	routerHops  = 4
	// routerRoutes are beside the one that packets take.
	routerRoutes = 63
	routerTTL    = 61
)

func routerCases() []routerCase {
	const unsteered = float64(routerHops) / routerRadix
	return []routerCase{
		{routerFloor, pathsel.None, false, 0},
		{"router-cflb", pathsel.Feistel, false, unsteered},
		{"router-cflb-steered", pathsel.Feistel, false, 1},
		{"router-rc5", pathsel.RC5, false, unsteered},
		{"router-skip32", pathsel.Skip32, false, unsteered},
		{"router-hash-v6", pathsel.None, true, 0},
		{"router-cflb-v6", pathsel.Feistel, true, unsteered},
	}
}

// floor is what a case of the router is compared with.
func (c routerCase) floor() string {
	if c.six {
		return routerFloor + "-v6"
	}
	return routerFloor
}

// forwarder is the router's program for one case.
type forwarder struct {
	c        routerCase
	o        routerObjects
	selector *pathsel.Selector
	frame    []byte
	state    routerBenchRun
}

var (
	routerMAC = wire.MAC{2, 0, 0, 0, 0, 1}
	routerTo  = map[bool]netip.AddrPort{false: netip.MustParseAddrPort("203.0.113.9:80"), true: netip.MustParseAddrPort("[2001:db8:2::9]:80")}
)

// openRouters loads the program once for each case.
func openRouters() (s *suite, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	var all []*forwarder
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
	for _, c := range routerCases() {
		f, err := openForwarder(c)
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", c.name, err)
		}
		closers = append(closers, func() { f.o.Close() })
		release, err := hold(f.o.BenchNone, f.o.BenchRouter)
		if err != nil {
			return nil, err
		}
		closers = append(closers, release)
		all = append(all, f)
	}
	s = routerSuite(all)
	s.refresh, s.close = func() error { return nil }, closeAll
	return s, nil
}

// routerSuite names the cases; forwarders may be nil where only names matter.
func routerSuite(forwarders []*forwarder) *suite {
	s := &suite{}
	for i, c := range routerCases() {
		var f *forwarder
		if forwarders != nil {
			f = forwarders[i]
		}
		harness := c.floor() + "-none"
		if c.name == c.floor() {
			s.harnesses = append(s.harnesses, measured{name: harness, run: func(part, n int) (float64, error) {
				return f.measure(f.o.BenchNone, xdpPass, part, n)
			}})
		}
		s.cases = append(s.cases, measured{name: c.name, harness: harness, floor: c.floor(), run: func(part, n int) (float64, error) {
			return f.checked(part, n)
		}})
	}
	return s
}

func openForwarder(c routerCase) (f *forwarder, err error) {
	spec, err := loadRouter()
	if err != nil {
		return nil, fmt.Errorf("read the router's program: %w", err)
	}
	f = &forwarder{c: c}
	f.selector, err = pathsel.New(pathsel.Config{Key: [16]byte{1, 2, 3, 4}, Permutation: c.permutation, Radix: routerRadix, IPv4: pathsel.Ports, IPv6: pathsel.Ports})
	if err != nil {
		return nil, err
	}
	if err := router.Configure(spec, f.selector, "bench"); err != nil {
		return nil, err
	}
	spec.Maps[routerMapBenchFlows].MaxEntries = flowCount
	if err := spec.LoadAndAssign(&f.o, nil); err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	f.packet()
	for _, fill := range []func() error{f.fillTables, f.fillFlows} {
		if err := fill(); err != nil {
			f.o.Close()
			return nil, fmt.Errorf("fill the tables: %w", err)
		}
	}
	return f, nil
}

// fillTables writes the way in, a group of hops, the routes that packets take to it
// and others of their length.
func (f *forwarder) fillTables() error {
	t := router.Tables{Devices: []router.Device{{Ifindex: loopback, Name: "lo", MAC: routerMAC, IPv4: true, IPv6: true}}, Groups: make([]router.Group, 1)}
	for i := range routerHops {
		id := router.HopID{Device: 10 + i, Gateway: netip.AddrFrom4([4]byte{10, 255, 0, byte(i)})}
		t.Hops = append(t.Hops, router.Hop{ID: id, Ifindex: id.Device, Source: wire.MAC{2, 1, 0, 0, 0, byte(i)}, MAC: wire.MAC{2, 2, 0, 0, 0, byte(i)},
			MTU: 1500, Port: i, Usable: true, Redirect: true})
		t.Groups[0] = append(t.Groups[0], router.Member{Hop: id, Weight: 1})
		t.Ports = append(t.Ports, i)
	}
	for i := range routerRoutes + 1 {
		to4, to6 := netip.AddrFrom4([4]byte{10, byte(i)}), netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, byte(0x10 + i)})
		if i == 0 {
			to4, to6 = routerTo[false].Addr(), routerTo[true].Addr()
		}
		t.Routes = append(t.Routes, router.Route{Prefix: netip.PrefixFrom(to4, 24)}, router.Route{Prefix: netip.PrefixFrom(to6, 48)})
	}
	return router.Fill(map[string]*ebpf.Map{routerMapInputs: f.o.Inputs, routerMapHops: f.o.Hops, routerMapGroups: f.o.Groups,
		routerMapRoutes4: f.o.Routes4, routerMapRoutes6: f.o.Routes6}, f.selector, t)
}

// fillFlows makes the flows: random, or steered to a hop each.
func (f *forwarder) fillFlows() error {
	random := rand.New(rand.NewPCG(seed, 1))
	to := routerTo[f.c.six]
	all := make([]routerBenchFlow, flowCount)
	for i := range all {
		src := known.source(random.Uint32(), i)
		for src.Addr().IsLoopback() { // which no router forwards
			src = known.source(random.Uint32(), i)
		}
		if f.c.six {
			src = known6.source(random.Uint32(), i)
		}
		flow := pathsel.Flow{Src: src.Addr(), Dst: to.Addr(), Proto: wire.ProtoTCP, SrcPort: src.Port(), DstPort: to.Port()}
		if f.c.selected == 1 {
			steps := []pathsel.Step{{TTL: routerTTL, Port: uint8(i % routerHops)}}
			if err := f.selector.Encode(&flow, steps, random.Uint64()); err != nil {
				return err
			}
		}
		a := src.Addr().AsSlice()
		ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, flow.SrcPort), flow.DstPort)
		all[i] = routerBenchFlow{Saddr: binary.LittleEndian.Uint32(a[len(a)-4:]), Ports: binary.LittleEndian.Uint32(ports), Ttl: f.ttlWord(a)}
	}
	m, err := f.o.BenchFlows.Memory()
	if err != nil {
		return err
	}
	_, err = m.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), len(all)*int(unsafe.Sizeof(all[0]))), 0)
	return err
}

// ttlWord is the word of the frame with the time to live, for a source: IPv4 has
// its checksum there.
func (f *forwarder) ttlWord(src []byte) uint32 {
	at := f.state.AtTtl
	if f.c.six {
		return binary.LittleEndian.Uint32(f.frame[at:])
	}
	header := slices.Clone(f.frame[14:34])
	copy(header[12:], src)
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], wire.Checksum(header))
	return binary.LittleEndian.Uint32(header[at-14:])
}

// packet makes the frame, and says what of it is written anew each time.
func (f *forwarder) packet() {
	src, saddr, ttl, ports := netip.MustParseAddrPort("198.51.100.1:1"), 14+12, 14+8, 14+20
	if f.c.six {
		src, saddr, ttl, ports = netip.AddrPortFrom(known6.source(0, 0).Addr(), 1), 14+8+12, 14+4, 14+40
	}
	f.frame = wire.TCP{Src: src, Dst: routerTo[f.c.six], Flags: wire.ACK, Options: wire.Timestamp(1, 1), IP: wire.IP{TTL: routerTTL},
		Link: wire.Link{Dst: routerMAC}}.Frame()
	var head [16]byte
	copy(head[:], f.frame[:14])
	f.state = routerBenchRun{Head: binary.LittleEndian.Uint64(head[:]), HeadRest: binary.LittleEndian.Uint64(head[8:]),
		AtTtl: uint32(ttl), AtSaddr: uint32(saddr), AtPorts: uint32(ports), Mask: flowCount - 1}
}

// checked measures a part, and that packets went the way that the case says.
func (f *forwarder) checked(part, packets int) (float64, error) {
	before, err := f.ways()
	if err != nil {
		return 0, err
	}
	ns, err := f.measure(f.o.BenchRouter, xdpRedirect, part, packets)
	if err != nil {
		return 0, err
	}
	after, err := f.ways()
	if err != nil {
		return 0, err
	}
	n, sum := [bpf.HowCount]float64{}, 0.0
	for i := range n {
		n[i] = float64(after[i] - before[i])
		sum += n[i]
	}
	share := n[bpf.HowSelected] / sum
	// Five standard deviations of so few packets.
	if slack := 5 * math.Sqrt(f.c.selected*(1-f.c.selected)/sum); math.Abs(share-f.c.selected) > slack || n[bpf.HowSingle] > 0 {
		return 0, fmt.Errorf("%.4f of the packets were selected, want %g: this measures something else", share, f.c.selected)
	}
	return ns, nil
}

// ways are all packets by how their hop was chosen.
func (f *forwarder) ways() (n [bpf.HowCount]uint64, err error) {
	for i := range uint32(routerHops) {
		var cpus []bpf.HopCount
		if err := f.o.HopCounts.Lookup(i, &cpus); err != nil {
			return n, fmt.Errorf("read the hops' counters: %w", err)
		}
		for _, c := range cpus {
			for how, x := range c.Packets {
				n[how] += x
			}
		}
	}
	return n, nil
}

// measure takes one part of a case.
func (f *forwarder) measure(p *ebpf.Program, action uint32, part, packets int) (float64, error) {
	state := f.state
	if err := f.o.BenchCase.Set(state); err != nil {
		return 0, err
	}
	if err := f.o.BenchNext.Set(uint32(part * packets)); err != nil {
		return 0, err
	}
	runs := packets / packetsPerRun
	_, d, err := p.Benchmark(f.frame, runs, nil)
	if err != nil {
		return 0, err
	}
	if err := f.o.BenchCase.Get(&state); err != nil {
		return 0, err
	}
	if n := state.Verdicts[action]; n < uint32(runs*packetsPerRun) {
		return 0, fmt.Errorf("only %d of %d packets had verdict %d (%v): this measures something else", n, runs*packetsPerRun, action, state.Verdicts)
	}
	return perPacket(d), nil
}
