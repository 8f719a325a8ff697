package fattree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/packets"
)

var packetsKind = sim.Kind{
	Name:  "fat-tree-packets",
	Short: "The same elephants packet by packet, with MultiPath TCP's coupled congestion control (CFLB §4.2.1)",
	Long: `The permutation matrices of scenario fat-tree on the same paths, packet by packet:
links of 100 Mbit/s with drop-tail queues of 100 packets, and a MultiPath TCP
connection for each pair of hosts, whose subflows are TCP with selective
acknowledgements and coupled increases (LIA, RFC 6356). What receivers get in
--seconds, from the first packet on, stands beside what fluids would.

Acknowledgements go back over the same links, which carry another elephant's
data: no host can receive more than 1500 bytes of every 1540, the optimum here.`,
	Example: `  fairlead sim fat-tree-packets
  fairlead sim fat-tree-packets --subflows 1,2,8 --seconds 2 --seeds 1
  fairlead sim fat-tree-packets --buffer 20 --delay 100us --plot packets.svg`,
	Seeds: 3,
	New:   func() sim.Scenario { return NewPackets() },
}

// Packets are the options of scenario fat-tree-packets.
type Packets struct {
	K        int
	Subflows []int
	Rounds   int
	Seconds  float64
	// Rate of a link in Mbit/s, Delay of its propagation, Buffer of its queue in
	// packets of full size.
	Rate   int
	Delay  time.Duration
	Buffer int
	MinRTO time.Duration
}

// NewPackets are the paper's fat-tree and links; of queues, delays, timeouts and
// seconds it does not tell.
func NewPackets() *Packets {
	return &Packets{
		K: 8, Subflows: []int{1, 2, 3, 4, 5, 6, 7, 8}, Rounds: defaultRounds,
		Seconds: 10, Rate: 100, Delay: 10 * time.Microsecond, Buffer: 100, MinRTO: 200 * time.Millisecond,
	}
}

// Flags adds the options.
func (o *Packets) Flags(f *sim.Flags) {
	f.Add("k", &o.K, "ports of a switch; k³/4 hosts")
	f.Add("subflows", &o.Subflows, subflowsUsage)
	f.Add("rounds", &o.Rounds, roundsUsage)
	f.Add("seconds", &o.Seconds, "simulated time")
	f.Add("rate", &o.Rate, "what a link carries, in Mbit/s")
	f.Add("delay", &o.Delay, "propagation of a link")
	f.Add("buffer", &o.Buffer, "packets of 1500 bytes that a switch's queue holds")
	f.Add("min-rto", &o.MinRTO, "least retransmission timeout")
}

// Limits of scenario fat-tree-packets.
const (
	maxPacketK  = 16
	maxSeconds  = 600
	maxRate     = 100_000
	maxBuffer   = 100_000
	maxDuration = 10 * time.Second
)

// Check says which option is wrong.
func (o *Packets) Check() error {
	if err := cmp.Or(checkK("--k", o.K), checkRounds(o.Rounds), checkList("--subflows", o.Subflows, 1, maxSubflows)); err != nil {
		return err
	}
	switch {
	case o.K > maxPacketK:
		return fmt.Errorf("--k %d: must be at most %d packet by packet; scenario %s has larger ones", o.K, maxPacketK, fluidKind.Name)
	case len(o.Subflows) == 0:
		return errors.New("--subflows: give at least one")
	case !(o.Seconds >= 0.1 && o.Seconds <= maxSeconds):
		return fmt.Errorf("--seconds %g: must be 0.1 to %d", o.Seconds, maxSeconds)
	case o.Rate < 1 || o.Rate > maxRate:
		return fmt.Errorf("--rate %d: must be 1 to %d Mbit/s", o.Rate, maxRate)
	case o.Buffer < 1 || o.Buffer > maxBuffer:
		return fmt.Errorf("--buffer %d: must be 1 to %d packets", o.Buffer, maxBuffer)
	case o.Delay < 0 || o.Delay > maxDuration:
		return fmt.Errorf("--delay %v: must be 0s to %v", o.Delay, maxDuration)
	case o.MinRTO < time.Millisecond || o.MinRTO > maxDuration:
		return fmt.Errorf("--min-rto %v: must be 1ms to %v", o.MinRTO, maxDuration)
	}
	return nil
}

// packetPoint is a number of subflows on the paths of a way, packet by packet or
// as fluids.
type packetPoint struct {
	subflows int
	way      way
	fluid    bool
}

// packetOutcomes are those of each point, by seed, and what happened in all.
type packetOutcomes struct {
	of     map[packetPoint][]outcome
	counts packets.Counts
}

func (o *Packets) runAll(ctx context.Context, c sim.Common) (packetOutcomes, error) {
	seeds := c.SeedList()
	all := packetOutcomes{of: map[packetPoint][]outcome{}}
	var points []packetPoint
	for _, w := range []way{hashed, way(o.Rounds)} {
		for _, s := range o.Subflows {
			points = append(points, packetPoint{s, w, false})
			for _, fluid := range []bool{false, true} {
				all.of[packetPoint{s, w, fluid}] = make([]outcome, len(seeds))
			}
		}
	}
	counts := make([]packets.Counts, len(points)*len(seeds))
	err := c.Each(ctx, len(counts), func(ctx context.Context, i int) error {
		p, seed := points[i/len(seeds)], i%len(seeds)
		found, flowing, count, err := o.runOne(ctx, p, seeds[seed])
		all.of[p][seed], counts[i] = found, count
		p.fluid = true
		all.of[p][seed] = flowing
		return err
	})
	for _, n := range counts {
		all.counts.Segments += n.Segments
		all.counts.Lost += n.Lost
		all.counts.Again += n.Again
		all.counts.Timeouts += n.Timeouts
	}
	return all, err
}

// runOne is one point under one seed: packets, and fluids on the same paths.
func (o *Packets) runOne(ctx context.Context, p packetPoint, seed uint64) (found, flowing outcome, counts packets.Counts, err error) {
	t, m := newTree(o.K), matrix{o.K, permuted}
	connections := m.connections(seed)
	var placed []subflow
	if p.way == hashed {
		placed = t.hashed(connections, p.subflows, m.stream(seed, "hash", p.subflows))
	} else {
		s := newScheduler(t, m.stream(seed, "scheduler", p.subflows))
		s.schedule(connections, p.subflows, int(p.way), func(_ int, of []subflow) { placed = of })
	}
	optimum := t.optimum(connections)
	flowing = newOutcome(throughputs(len(connections), placed, maxMin(t.links(), placed)), optimum)

	n := packets.New(o.config(), t.links(), sim.Stream(seed, "room"))
	starts := sim.Stream(seed, "starts")
	for i := 0; i < len(placed); i += p.subflows {
		var ways []packets.Path
		var begin []sim.Time
		for _, s := range placed[i : i+p.subflows] {
			ways = append(ways, packets.Path{Forward: s.links, Back: reverse(s.links)})
			begin = append(begin, sim.Time(starts.Int64N(int64(startsWithin))))
		}
		n.Connect(ways, begin)
	}
	if err := o.play(ctx, n); err != nil {
		return found, flowing, counts, err
	}
	rates := make([]float64, len(connections))
	for i := range rates {
		rates[i] = float64(n.Received(i)) * packets.SegmentBytes * 8 / (o.Seconds * float64(o.Rate) * 1e6)
		optimum[i] *= besideAcks
	}
	return newOutcome(rates, optimum), flowing, n.Counts(), nil
}

// startsWithin is when elephants begin: at any time before.
const startsWithin = 10 * sim.Millisecond

// besideAcks is what data can have of a link that carries as many
// acknowledgements of the other direction.
const besideAcks = float64(packets.SegmentBytes) / (packets.SegmentBytes + packets.AckBytes)

func (o *Packets) config() packets.Config {
	return packets.Config{Rate: int64(o.Rate) * 1e6, Delay: sim.Time(o.Delay), Buffer: o.Buffer, MinRTO: sim.Time(o.MinRTO)}
}

// play runs the network, and says how far it is.
func (o *Packets) play(ctx context.Context, n *packets.Network) error {
	const steps = 20
	end := sim.Time(o.Seconds * float64(sim.Second))
	for i := range sim.Time(steps) {
		if err := n.Run(ctx, end*(i+1)/steps); err != nil {
			return err
		}
		sim.Done(ctx, float64(i+1)/steps)
	}
	return nil
}

// reverse is the way back over the same links.
func reverse(links []int32) []int32 {
	back := slices.Clone(links)
	slices.Reverse(back)
	for i := range back {
		back[i] ^= 1
	}
	return back
}
