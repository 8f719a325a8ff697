package tracking

import (
	"context"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/wire"
)

// Packet is what a balancer reads of a TCP or UDP packet, 16 bytes: words as
// they lie in the headers, loaded little endian.
type Packet struct {
	Source uint32 // IPv4 address; of an IPv6 VIP: index of Trace.sources
	Ports  uint32 // source port, then destination port
	VIP    uint32 // index of Trace.VIPs: destination address, port, protocol
	Flow   uint32 // index of Trace.Flows
}

// VIP is a destination of a trace's packets.
type VIP struct {
	Address  netip.AddrPort
	Protocol uint8
}

// Trace is packets in their order, and their flows.
type Trace struct {
	// Name says where it comes from.
	Name string
	// Packets, each of one of Flows.
	Packets []Packet
	// Flows holds one packet of each.
	Flows []Packet
	VIPs  []VIP
	// Skipped counts packets of a capture that are of no use here: neither
	// TCP nor UDP, fragments, malformed.
	Skipped int

	keys    []hash.Key  // of VIPs
	sources [][2]uint64 // IPv6 addresses
	six     []bool      // by VIP; nil: all are IPv4's
}

// TraceOptions says which trace to make.
type TraceOptions struct {
	Flows   int // 1 to 2^26
	Packets int // at least Flows, to 2^28
	// Zipf is the exponent by which flows differ in size, 0 (all alike) to 4.
	Zipf float64
	Seed uint64 // below 2^32
}

// DefaultTrace has the flows and packets, in number, of the trace of JET's
// slides, which is not public.
func DefaultTrace() TraceOptions {
	return TraceOptions{Flows: 1_600_000, Packets: 34_100_000, Zipf: 1, Seed: 1}
}

const (
	maxFlows   = 1 << 26
	maxPackets = 1 << 28 // 4 GiB
	maxSeed    = 1<<32 - 1
)

// Check says what is wrong with the options, if anything.
func (o TraceOptions) Check() error {
	switch {
	case o.Flows < 1 || o.Flows > maxFlows:
		return fmt.Errorf("flows %d: must be 1 to %d", o.Flows, maxFlows)
	case o.Packets < o.Flows || o.Packets > maxPackets:
		return fmt.Errorf("packets %d: must be at least the flows (%d: each has one) and at most %d", o.Packets, o.Flows, maxPackets)
	case !(o.Zipf >= 0 && o.Zipf <= workload.MaxSkew):
		return fmt.Errorf("zipf %v: must be 0 (all flows alike) to %d", o.Zipf, workload.MaxSkew)
	case o.Seed > maxSeed:
		return fmt.Errorf("seed %d: must be at most %d (the trace's keys are seed·2^32 + number)", o.Seed, uint64(maxSeed))
	}
	return nil
}

// NewTrace makes the trace: each flow once, then flows drawn from Zipf's
// distribution (flow 0 the largest), all shuffled (Fisher–Yates). Flow f comes
// from the address of the low 32 bits of sm(2f), port 1024 + sm(2f+1) mod
// 64,512, to 10.0.0.1 port 80 by TCP; sm(i) is SplitMix64's finaliser of
// seed·2^32 + i. When ctx ends, so does the making.
func NewTrace(ctx context.Context, o TraceOptions) (*Trace, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	zipf := workload.NewZipf(o.Flows, o.Zipf)
	vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), 80)
	t := &Trace{
		Name:    fmt.Sprintf("synthetic, Zipf %g", o.Zipf),
		Packets: make([]Packet, o.Packets),
		Flows:   make([]Packet, o.Flows),
		VIPs:    []VIP{{vip, wire.ProtoTCP}},
	}
	t.rekey(o.Seed)
	for f := range t.Flows {
		i := o.Seed<<32 + 2*uint64(f)
		t.Flows[f] = Packet{
			// The first byte of an address is its highest as a number.
			Source: bits.ReverseBytes32(uint32(sim.SplitMix(i))),
			Ports:  portsWord(uint16(1024+sim.SplitMix(i+1)%64512), vip.Port()),
			Flow:   uint32(f),
		}
	}
	order := make([]uint32, o.Packets)
	sizes := sim.Stream(o.Seed, "flow sizes")
	draw := func(i int) {
		order[i] = uint32(i)
		if i >= o.Flows {
			order[i] = zipf.Draw(sizes)
		}
	}
	places := sim.Stream(o.Seed, "packet order")
	shuffle := func(i int) {
		i = len(order) - 1 - i // from the last to the first
		j := places.Uint32N(uint32(i + 1))
		order[i], order[j] = order[j], order[i]
	}
	put := func(i int) { t.Packets[i] = t.Flows[order[i]] }
	for _, step := range []func(i int){draw, shuffle, put} {
		if err := eachPacket(ctx, o.Packets, step); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// eachPacket calls step for each of n packets, as long as ctx lasts.
func eachPacket(ctx context.Context, n int, step func(i int)) error {
	const between = 1 << 20
	for i := range n {
		if i%between == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		step(i)
	}
	return nil
}

// portsWord is the word of the two ports as the header has it.
func portsWord(source, destination uint16) uint32 {
	return uint32(bits.ReverseBytes16(source)) | uint32(bits.ReverseBytes16(destination))<<16
}

// rekey gives the VIPs the keys of a seed.
func (t *Trace) rekey(seed uint64) {
	t.keys = t.keys[:0]
	for _, v := range t.VIPs {
		secret := fmt.Appendf(nil, "simulation %d", seed)
		t.keys = append(t.keys, cheetah.VIPKey(secret, v.Address.Addr(), v.Address.Port(), v.Protocol))
	}
}

// hash is the program's hash of the packet's flow.
func (t *Trace) hash(p *Packet) uint64 {
	k := &t.keys[p.VIP]
	if t.six != nil && t.six[p.VIP] {
		a := &t.sources[p.Source]
		return hash.IPv6(k, a[0], a[1], p.Ports)
	}
	return hash.IPv4(k, p.Source, p.Ports)
}

// flowKey is the program's key of the flow table (fl_flow_key): VIPs share
// the table, and ports tell connections apart where the hash leaves them out.
func flowKey(hash uint64, p *Packet) uint64 {
	return hash + uint64(p.VIP)*0x9e3779b97f4a7c15 + uint64(p.Ports)*0xd6e8feb86659fd93
}
