package bench

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/viptable"
	"github.com/fairlead/fairlead/wire"
)

// The server's side. One established connection over the loopback stands for
// all: with tcp_timestamps=1 the program asks its socket, as it would. Its
// packet never reaches it; test runs go nowhere.

const (
	hostVIP      = 1 // id
	hostSlot     = 5
	hostIn       = 54 // where the inner TCP header starts: Ethernet, two IPv4 headers
	hostHarness  = "host-in"
	hostOutEmpty = "host-out"
)

type server struct {
	o       hostObjects
	seed    uint64
	in, out []byte // frames
	state   hostHostCase
	sockets []net.Conn
}

// openServer loads the host programs and makes the connection.
func openServer() (s *suite, err error) {
	spec, err := loadHost()
	if err != nil {
		return nil, fmt.Errorf("read the host programs: %w", err)
	}
	h := &server{}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if err := spec.Variables["jiffy_mult"].Set(uint32(1)); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&h.o, nil); err != nil {
		return nil, fmt.Errorf("load the host programs: %w", err)
	}
	client, vip, err := h.connect()
	if err != nil {
		return nil, fmt.Errorf("a connection over the loopback: %w", err)
	}
	if err := h.fill(client, vip); err != nil {
		return nil, fmt.Errorf("fill the host's tables: %w", err)
	}
	s = &suite{refresh: func() error { return h.clock(0) }, close: h.close}
	s.harnesses = []measured{
		{name: hostHarness, run: func(n int) (float64, error) { return h.measure(h.o.BenchInNone, h.in, n) }},
		{name: hostOutEmpty, run: func(n int) (float64, error) { return h.measure(h.o.BenchOutNone, h.out, n) }},
	}
	for _, timestamps := range []int{2, 1} {
		suffix, lookup := "", uint32(0)
		if timestamps == 1 {
			suffix, lookup = "-timestamps1", 1
		}
		s.cases = append(s.cases,
			measured{name: "host-in" + suffix, harness: hostHarness, run: func(n int) (float64, error) {
				return h.checked(h.o.BenchIn, h.in, n, lookup, restored)
			}},
			measured{name: "host-out" + suffix, harness: hostOutEmpty, run: func(n int) (float64, error) {
				return h.checked(h.o.BenchOut, h.out, n, lookup, sent)
			}})
	}
	return s, nil
}

func (h *server) close() {
	for _, c := range h.sockets {
		c.Close()
	}
	h.o.Close()
}

func (h *server) connect() (client, vip netip.AddrPort, err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return client, vip, err
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		return client, vip, err
	}
	h.sockets = append(h.sockets, c)
	a, err := l.Accept()
	if err != nil {
		return client, vip, err
	}
	h.sockets = append(h.sockets, a)
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), l.Addr().(*net.TCPAddr).AddrPort(), nil
}

func (h *server) fill(client, vip netip.AddrPort) error {
	tunnel := netip.MustParseAddr("10.1.0.5")
	k := viptable.Key{Addr: vip.Addr(), Port: vip.Port(), Proto: wire.ProtoTCP}
	e := hostFlHostVip{Addr: k.Words(), Port: k.PortBE(), Proto: k.Proto, Used: 1, Id: hostVIP,
		Key: [2][2]uint64{benchKeys[0], benchKeys[1]}, Slot: hostSlot, OldSlot: 0xffff,
		Epochs: 1, Shift: 32 - cookieBits, Scheme: 1, Tunnel: words(tunnel)}
	at, seed, err := viptable.Build([]viptable.Key{k}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		return err
	}
	h.seed = seed
	if err := h.o.HostVips.Put(uint32(at[0]), e); err != nil {
		return err
	}

	layout := cheetah.Layout{Bits: cookieBits}
	field := layout.Encode(cheetah.Hash(benchKeys[0], client, vip.Port()), hostSlot, 0)
	ts := wire.Timestamp(1, layout.WireTS(field, sharedNow-1000))
	segment := wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: ts, Payload: make([]byte, 64)}
	h.in = segment.Frame()
	outer := wire.Outer{Tunnel: wire.IPIP, Src: netip.MustParseAddr("10.254.1.2"), Dst: tunnel}
	h.in = append(h.in[:14:14], outer.Encapsulate(h.in[14:])...)
	segment.Src, segment.Dst = vip, client
	h.out = segment.Frame()
	for i := range h.state.Head {
		h.state.Head[i] = binary.LittleEndian.Uint64(h.in[8*i:])
	}
	h.state.Length = uint32(len(h.in))
	h.state.Check = uint32(binary.LittleEndian.Uint16(h.in[hostIn+16:]))
	h.state.Ecr = binary.LittleEndian.Uint32(h.in[hostIn+28:])
	h.state.Constant = field << layout.Shift()
	return nil
}

// clock sets the shared clock back to when the flow was stamped.
func (h *server) clock(lookup uint32) error {
	var c hostHostClock
	out := c
	if _, err := h.o.BenchClock.Run(&ebpf.RunOptions{Context: c, ContextOut: &out}); err != nil {
		return fmt.Errorf("read the kernel's clock: %w", err)
	}
	return h.o.HostControl.Put(uint32(0), hostFlHostControl{Lookup: lookup, VipSeed: [2]uint64{h.seed, h.seed},
		JiffiesBase: sharedNow - uint32(out.Jiffies)})
}

func restored(c hostFlHostCount) uint64 { return c.Restored }
func sent(c hostFlHostCount) uint64     { return c.Packets[1] }

// checked measures, and fails where packets did not do what the case is
// about, as count counts it.
func (h *server) checked(p *ebpf.Program, frame []byte, packets int, lookup uint32, count func(hostFlHostCount) uint64) (float64, error) {
	if err := h.clock(lookup); err != nil {
		return 0, err
	}
	total := func() (n uint64, err error) {
		var cpus []hostFlHostCount
		err = h.o.HostVipCount.Lookup(uint32(hostVIP), &cpus)
		for _, c := range cpus {
			n += count(c)
		}
		return n, err
	}
	before, err := total()
	if err != nil {
		return 0, err
	}
	ns, err := h.measure(p, frame, packets)
	if err != nil {
		return 0, err
	}
	after, err := total()
	if want := uint64(hostRuns(packets) * parts * packetsPerRun); err == nil && after-before < want {
		err = fmt.Errorf("only %d of %d packets went the whole way: this measures something else", after-before, want)
	}
	return ns, err
}

func hostRuns(packets int) int { return max(packets/packetsPerRun/parts, 1) }

// measure takes one sample, like the balancer's.
func (h *server) measure(p *ebpf.Program, frame []byte, packets int) (float64, error) {
	best := math.Inf(1)
	for range parts {
		// Each test run has a socket of its own.
		h.state.Create = 1
		if err := h.o.HostCase.Set(h.state); err != nil {
			return 0, err
		}
		_, d, err := p.Benchmark(frame, hostRuns(packets), nil)
		if err != nil {
			return 0, err
		}
		best = min(best, perPacket(d))
	}
	return best, nil
}
