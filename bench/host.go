package bench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// agent is the host's programs around one real connection over loopback,
// whose socket they ask when tcp_timestamps is 1. Nothing is sent on it.
type agent struct {
	o       hostObjects
	control bpf.HostControl
	client  netip.AddrPort
	vip     netip.AddrPort
	// stranger is a client of whom only the VIP's listener could hear.
	stranger netip.AddrPort
	close    []func() error
}

const hostConstant = 0x12345678 // any; what the socket's TSvals are moved by

func openAgent() (s *suite, err error) {
	a := &agent{}
	defer func() {
		if err != nil {
			a.shut()
		}
	}()
	if err := a.connect(); err != nil {
		return nil, fmt.Errorf("make a connection over loopback: %w", err)
	}
	spec, err := loadHost()
	if err != nil {
		return nil, fmt.Errorf("read the host's program: %w", err)
	}
	if err := spec.Variables["jiffy_mult"].Set(uint32(1)); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&a.o, nil); err != nil {
		return nil, fmt.Errorf("load the host's program: %w", err)
	}
	a.close = append(a.close, a.o.Close)
	if err := a.fill(); err != nil {
		return nil, fmt.Errorf("fill the host's tables: %w", err)
	}
	release, err := hold(a.o.BenchInNone, a.o.BenchIn, a.o.BenchOwnNone, a.o.BenchOwn)
	if err != nil {
		return nil, err
	}
	a.close = append(a.close, func() error { release(); return nil })
	s = &suite{
		refresh: func() error { return nil },
		close:   a.shut,
		harnesses: []measured{
			{name: "host-in-none", run: a.in(a.o.BenchInNone, 0)},
			{name: "host-out-none", run: a.out(a.o.BenchOutNone, 0)},
			{name: "host-own-none", run: a.own(a.o.BenchOwnNone, false, a.client, wire.ACK, 0)},
		},
		cases: a.cases(),
	}
	return s, nil
}

func (a *agent) cases() []measured {
	return []measured{
		{name: "host-in", harness: "host-in-none", run: a.in(a.o.BenchIn, 0)},
		{name: "host-out", harness: "host-out-none", run: a.out(a.o.BenchOut, 0)},
		{name: "host-in-ts1", harness: "host-in-none", run: a.in(a.o.BenchIn, 1)},
		{name: "host-out-ts1", harness: "host-out-none", run: a.out(a.o.BenchOut, 1)},
		{name: "host-in-settled", harness: "host-own-none", run: a.own(a.o.BenchOwn, true, a.client, wire.ACK, xdpPass)},
		{name: "host-in-owned", harness: "host-own-none", run: a.own(a.o.BenchOwn, false, a.client, wire.ACK, xdpPass)},
		{name: "host-forward", harness: "host-own-none", run: a.own(a.o.BenchOwn, false, a.stranger, wire.ACK, xdpTX)},
		// Without an ACK, a packet is asked about each time.
		{name: "host-forward-first", harness: "host-own-none", run: a.own(a.o.BenchOwn, false, a.stranger, wire.RST, xdpTX)},
	}
}

func (a *agent) shut() {
	for _, c := range a.close {
		_ = c()
	}
}

func (a *agent) connect() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a.close = append(a.close, l.Close)
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		return err
	}
	a.close = append(a.close, c.Close)
	server, err := l.Accept()
	if err != nil {
		return err
	}
	a.close = append(a.close, server.Close)
	a.client = c.LocalAddr().(*net.TCPAddr).AddrPort()
	a.vip = server.LocalAddr().(*net.TCPAddr).AddrPort()
	a.stranger = netip.MustParseAddrPort("192.0.2.77:4711")
	return nil
}

var (
	tunnelEnd   = netip.MustParseAddr("10.1.0.1")
	tunnelStart = netip.MustParseAddr("10.254.0.1")
)

// The VIP stands in the table's first half for scheme cheetah, in the second
// for scheme beamer.
const (
	halfCheetah = 0
	halfBeamer  = 1

	previousSlot = 3
	generation   = 7
)

func (a *agent) fill() error {
	k := tables.Key{Addr: a.vip.Addr(), Port: a.vip.Port(), Proto: wire.ProtoTCP}
	at, seed, err := tables.Build([]tables.Key{k}, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		return err
	}
	v := bpf.HostVIP{Addr: k.Words(), Port: k.PortBE(), Proto: k.Proto, Used: 1, Id: 1,
		Key: [2][2]uint64{benchKeys[0], benchKeys[1]}, Slot: 0, OldSlot: 0xffff, Epochs: 1,
		Shift: 32 - cookieBits, Scheme: 1, Tunnel: words(tunnelEnd),
		Flags: tables.Refuses(choices.GUE) | uint16(bpf.HostVIPSources)}
	if err := a.o.HostVips.Put(uint32(at[0]), v); err != nil {
		return err
	}
	v.Scheme, v.Generation, v.ChainMs = uint8(bpf.SchemeBeamer), generation, 3600_000
	if err := a.o.HostVips.Put(uint32(bpf.VIPLines+at[0]), v); err != nil {
		return err
	}
	all := ^uint64(0)
	balancers := bpf.HostSource{Addr: words(netip.MustParseAddr("10.254.0.0")), Mask: [2]uint64{all, all >> 16}}
	if err := a.o.HostSources.Put(uint32(0), balancers); err != nil {
		return err
	}
	// By the loopback, by which test runs' packets come.
	peer := bpf.HostPeer{Addr: words(netip.MustParseAddr("10.1.0.2")), MacDst: 0x0200_0000_0002, MacSrc: 0x0200_0000_0001, Ifindex: 1}
	if err := a.o.HostPeers.Put(bpf.HostPeerKey{VipId: 1, Slot: previousSlot}, peer); err != nil {
		return err
	}
	var c hostBenchJiffies
	if _, err := a.o.BenchClock.Run(&ebpf.RunOptions{Context: c, ContextOut: &c}); err != nil {
		return err
	}
	a.control = bpf.HostControl{VipSeed: [2]uint64{seed, seed}, JiffiesBase: sharedNow - uint32(c.Jiffies)}
	return a.o.BenchSocket.Set(bpf.Socket{Constant: hostConstant, Stamped: 1, VipId: 1})
}

// in measures packets of the client as a balancer's tunnel brings them. The
// shared clock goes on by a tick a millisecond at most, so the cookie stays
// young enough for a quarter of an hour.
func (a *agent) in(p *ebpf.Program, lookup uint32) sample {
	layout := cheetah.Layout{Bits: cookieBits}
	ecr := layout.WireTS(layout.Encode(hash.Tuple(benchKeys[0], a.client, a.vip.Port()), 0, 0), sharedNow-10)
	inner := wire.TCP{Src: a.client, Dst: a.vip, Flags: wire.ACK, Options: wire.Timestamp(1, ecr)}.Packet()
	outer := wire.Outer{Tunnel: wire.IPIP, Src: tunnelStart, Dst: tunnelEnd}
	frame := wire.Link{}.Frame(outer.Encapsulate(inner))
	const l4 = 14 + 20 + 20
	state := benchState(frame, l4+28, l4+16)
	return a.sample(p, frame, state, halfCheetah, lookup, p != a.o.BenchInNone)
}

// own measures packets of scheme beamer, of a settled bucket or of one that
// another server had before, and which the entry gives the verdict.
func (a *agent) own(p *ebpf.Program, settled bool, client netip.AddrPort, flags uint8, verdict uint32) sample {
	hops := wire.NewHops(sharedNow, generation)
	if !settled {
		hops = wire.NewHops(sharedNow, generation, previousSlot)
	}
	inner := wire.TCP{Src: client, Dst: a.vip, Flags: flags, Options: wire.Timestamp(1, 1)}.Packet()
	outer := wire.Outer{Tunnel: wire.IPIP, Src: tunnelStart, Dst: tunnelEnd, Hops: &hops}
	frame := wire.Link{}.Frame(outer.Encapsulate(inner))
	const l4 = 14 + 36 + 20
	state := benchState(frame, l4+28, l4+16)
	for i := range state.Hops {
		state.Hops[i] = binary.LittleEndian.Uint64(frame[34+8*i:])
	}
	state.Verdict, state.After = verdict, state.Length
	if verdict == xdpPass {
		state.After -= 36
	}
	return a.sample(p, frame, state, halfBeamer, 0, p != a.o.BenchOwnNone)
}

// out measures the server's segments of an established connection.
func (a *agent) out(p *ebpf.Program, lookup uint32) sample {
	frame := wire.TCP{Src: a.vip, Dst: a.client, Flags: wire.ACK | wire.PSH, Options: wire.Timestamp(1000, 1),
		Payload: make([]byte, 100)}.Frame()
	const l4 = 14 + 20
	state := benchState(frame, l4+24, l4+16)
	return a.sample(p, frame, state, halfCheetah, lookup, p != a.o.BenchOutNone)
}

// benchState is what the programs write anew before each packet: its head, and
// the word and the checksum at these offsets.
func benchState(frame []byte, word, check int) hostBenchHostRun {
	state := hostBenchHostRun{Length: uint32(len(frame)), AtWord: uint32(word), AtCheck: uint32(check)}
	for i := range state.Head {
		state.Head[i] = binary.LittleEndian.Uint64(frame[8*i:])
	}
	state.HeadRest = binary.LittleEndian.Uint16(frame[32:])
	state.Word = binary.LittleEndian.Uint32(frame[word:])
	state.Check = binary.LittleEndian.Uint16(frame[check:])
	return state
}

func (a *agent) sample(p *ebpf.Program, frame []byte, state hostBenchHostRun, half, lookup uint32, changes bool) sample {
	return func(_, packets int) (float64, error) {
		control := a.control
		control.Active, control.Lookup = half, lookup
		if err := a.o.HostControl.Put(uint32(0), control); err != nil {
			return 0, err
		}
		if err := a.o.HostBench.Set(state); err != nil {
			return 0, err
		}
		runs := packets / packetsPerRun
		_, d, err := p.Benchmark(frame, runs, nil)
		if err != nil {
			return 0, err
		}
		after := state
		if err := a.o.HostBench.Get(&after); err != nil {
			return 0, err
		}
		if all := uint32(runs * packetsPerRun); changes && after.Changed < all {
			return 0, fmt.Errorf("only %d of %d packets were changed: this measures something else", after.Changed, all)
		}
		return perPacket(d), nil
	}
}
