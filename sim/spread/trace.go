package spread

import (
	"encoding/binary"
	"iter"
	"math"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/wire"
)

// The hosts of drawn flows. Clients talk to servers; which ones is by Zipf's
// law with a low exponent, so that hardly any two of ten million flows are the
// same: χ² would count them as one decision made twice.
const (
	clients    = 200_000
	servers    = 20_000
	hostSkew   = 0.5
	reversed   = 0.5 // of the flows are seen from server to client
	lastPort   = 65_535
	firstPort  = 1024
	bytesOfOne = 750 // of a recorded flow's packets, if only its bytes are known
)

// services are servers' ports and how common they are.
var services = []struct {
	port   uint16
	proto  uint8
	weight float64
}{
	{80, wire.ProtoTCP, 45}, {443, wire.ProtoTCP, 25}, {53, wire.ProtoUDP, 12}, {25, wire.ProtoTCP, 4},
	{22, wire.ProtoTCP, 2}, {6881, wire.ProtoUDP, 8}, {1935, wire.ProtoTCP, 4},
}

// drawer draws flows' tuples.
type drawer struct {
	r                        *rand.Rand
	clients, servers, common workload.Alias
}

func newDrawer(r *rand.Rand) *drawer {
	weights := make([]float64, len(services))
	for i, s := range services {
		weights[i] = s.weight
	}
	return &drawer{r, workload.NewZipf(clients, hostSkew), workload.NewZipf(servers, hostSkew), workload.NewAlias(weights)}
}

// host is the address of a number, any IPv4 address.
func host(n uint64) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(sim.SplitMix(n)))))
}

func (d *drawer) flow() pathsel.Flow {
	s := services[d.common.Draw(d.r)]
	f := pathsel.Flow{
		Src: host(uint64(d.clients.Draw(d.r))), Dst: host(1<<32 + uint64(d.servers.Draw(d.r))), Proto: s.proto,
		SrcPort: uint16(firstPort + d.r.IntN(lastPort-firstPort+1)), DstPort: s.port,
	}
	if d.r.Float64() < reversed {
		f.Src, f.Dst, f.SrcPort, f.DstPort = f.Dst, f.Src, f.DstPort, f.SrcPort
	}
	return f
}

// flows are those that are tested for evenness, each once.
func (o *Options) flows(seed uint64) iter.Seq[pathsel.Flow] {
	if o.Flows.Record != nil {
		return o.recorded
	}
	return func(yield func(pathsel.Flow) bool) {
		d := newDrawer(sim.Stream(seed, "flows"))
		for range o.Packets {
			if !yield(d.flow()) {
				return
			}
		}
	}
}

// recorded are a record's flows, without those that come again.
func (o *Options) recorded(yield func(pathsel.Flow) bool) {
	seen := map[pathsel.Flow]bool{}
	for _, w := range o.Flows.Flows {
		if f := tupleOf(w); !seen[f] {
			seen[f] = true
			if !yield(f) {
				return
			}
		}
	}
}

func tupleOf(w workload.Flow) pathsel.Flow {
	return pathsel.Flow{
		Src: w.Source.Addr(), Dst: w.Destination.Addr(), Proto: w.Protocol,
		SrcPort: w.Source.Port(), DstPort: w.Destination.Port(),
	}
}

// burst is a flow of the trace: its packets lie evenly between its start and
// its end.
type burst struct {
	flow          pathsel.Flow
	start, length sim.Time
	packets       int
}

// each gives the moments of the packets. What lies behind the span comes at
// its beginning, so that a drawn trace is as dense at its ends as in its middle.
func (b *burst) each(span sim.Time, f func(at sim.Time)) {
	gap := b.length / sim.Time(b.packets)
	for at, i := b.start, 0; i < b.packets; i++ {
		f(at)
		if at += gap; at >= span {
			at -= span
		}
	}
}

// span of the trace.
func (o *Options) span() sim.Time {
	if o.Flows.Record != nil {
		return o.Flows.Span() + 1
	}
	return sim.Time(o.Span)
}

// trace are the flows with their packets.
func (o *Options) trace(seed uint64) iter.Seq[burst] {
	if o.Flows.Record != nil {
		return func(yield func(burst) bool) {
			for _, w := range o.Flows.Flows {
				b := burst{tupleOf(w), w.Start, w.Duration, int(max(1, w.Bytes/bytesOfOne))}
				if !yield(b) {
					return
				}
			}
		}
	}
	return o.drawn(seed)
}

// drawn flows have sizes by Zipf's law: the n-th largest has packets in
// proportion to 1/n^skew, one at least, rounded at random so that the sum is
// right in the mean.
func (o *Options) drawn(seed uint64) iter.Seq[burst] {
	return func(yield func(burst) bool) {
		r := sim.Stream(seed, "trace")
		d := newDrawer(r)
		count := o.Packets / o.Mean
		sum := 0.0
		for rank := 1; rank <= count; rank++ {
			sum += math.Pow(float64(rank), -o.Skew)
		}
		for rank := 1; rank <= count; rank++ {
			size := math.Pow(float64(rank), -o.Skew) / sum * float64(o.Packets)
			start, length := r.Int64N(int64(o.Span)), r.Int64N(int64(o.Span))
			if !yield(burst{d.flow(), sim.Time(start), sim.Time(length), max(1, int(size+r.Float64()))}) {
				return
			}
		}
	}
}
