// Package packets is a network packet by packet: links with drop-tail queues,
// and MultiPath TCP connections over them, whose subflows are TCP with selective
// acknowledgements (RFC 6675) and coupled increases (LIA, RFC 6356).
//
//	network   links, queues, events; connections and what they received
//	sender    a subflow's window, losses, timeouts
//	host      whose turn it is at a host's own link
//	receiver  what arrived, and acknowledgements
//	couple    how fast windows grow
//
// Senders always have data. A subflow's segments count as received in their
// order; data are not put together again over subflows, as if the connection's
// receive window had no end. There is no handshake; every segment is
// acknowledged at once.
package packets

import (
	"context"
	"math/rand/v2"

	"github.com/fairlead/fairlead/sim"
)

// Sizes of packets on a link, in bytes.
const (
	SegmentBytes = 1500
	AckBytes     = 40
)

// Config is the same for all links and hosts.
type Config struct {
	Rate   int64    // of a link, bit/s
	Delay  sim.Time // propagation over a link
	Buffer int      // how many whole segments a switch's queue holds beside the one that is sent
	MinRTO sim.Time // least retransmission timeout
}

// Path is a subflow's links there, and those of its acknowledgements. The first
// link of each is the host's own.
type Path struct {
	Forward, Back []int32
}

// Network of links and connections. Not for several goroutines.
type Network struct {
	config      Config
	segment     sim.Time // to send one
	ack         sim.Time
	limit       sim.Time // of a queue, in the time that it takes to send
	unsure      sim.Time // of it, what there is or is not
	links       []link
	subflows    []subflow
	connections []connection
	queue       sim.Queue[event]
	random      *rand.Rand
	now         sim.Time
	counts      Counts
}

// Counts are what happened in a network.
type Counts struct {
	Segments int64 // sent, again or not
	Lost     int64 // packets that found a queue full
	Again    int64 // segments sent again
	Timeouts int64
}

// link is busy until then with what is in its queue.
type link struct {
	until sim.Time
	turns // of a host's own
}

// connection's subflows are those from first to last-1.
type connection struct {
	first, last int32
}

// event is a packet that arrives at a link, or at the end of its path; or the
// time at which a subflow looks at its timer, or a host's link at whose turn it
// is.
type event struct {
	sent    sim.Time // segment: when; acknowledgement: of the segment that it answers
	subflow int32    // turn: the link
	number  int32    // of the segment, or of the one that is acknowledged
	below   int32    // acknowledgement: all segments below are there
	hop     uint8
	kind    kind
}

type kind uint8

const (
	segment kind = iota
	ack
	timer
	turn
)

// New has links without connections. What is drawn is how much room a full
// queue has.
func New(c Config, links int, random *rand.Rand) *Network {
	n := &Network{config: c, links: make([]link, links), random: random}
	n.segment = n.sending(SegmentBytes)
	n.ack = n.sending(AckBytes)
	n.limit, n.unsure = sim.Time(c.Buffer+1)*n.segment, min(uncertain, sim.Time(c.Buffer)/4)*n.segment
	return n
}

// sending is how long it takes.
func (n *Network) sending(bytes int64) sim.Time {
	return sim.Time(bytes * 8 * int64(sim.Second) / n.config.Rate)
}

// Connect opens a connection with a subflow on each path, each with its own
// time at which it begins. It returns the connection's number.
func (n *Network) Connect(paths []Path, begin []sim.Time) int {
	first := len(n.subflows)
	for i, p := range paths {
		n.subflows = append(n.subflows, newSubflow(int32(len(n.connections)), p))
		n.queue.Put(begin[i], event{subflow: int32(first + i), kind: timer})
	}
	n.connections = append(n.connections, connection{int32(first), int32(len(n.subflows))})
	return len(n.connections) - 1
}

// Received is how many segments a connection's receiver got, each subflow's in
// their order.
func (n *Network) Received(connection int) (segments int64) {
	c := n.connections[connection]
	for i := c.first; i < c.last; i++ {
		segments += int64(n.subflows[i].expected)
	}
	return segments
}

// Counts of all that happened so far.
func (n *Network) Counts() Counts { return n.counts }

// Run goes on until a time.
func (n *Network) Run(ctx context.Context, until sim.Time) error {
	for count := 0; ; count++ {
		if count&(1<<17-1) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at, ok := n.queue.Peek()
		if !ok || at >= until {
			n.now = until
			return nil
		}
		_, e, _ := n.queue.Next()
		n.now = at
		n.happens(e)
	}
}

func (n *Network) happens(e event) {
	switch e.kind {
	case timer:
		n.lookAtTimer(e.subflow)
	case turn:
		n.links[e.subflow].woken = false
		n.serve(e.subflow)
	case segment:
		s := &n.subflows[e.subflow]
		if int(e.hop) < len(s.path.Forward) {
			n.pass(s.path.Forward[e.hop], n.segment, e)
			return
		}
		s.receive(e.number)
		n.acknowledge(s.path.Back[0], event{sent: e.sent, subflow: e.subflow, number: e.number, below: s.expected, kind: ack})
	case ack:
		s := &n.subflows[e.subflow]
		if int(e.hop) < len(s.path.Back) {
			n.pass(s.path.Back[e.hop], n.ack, e)
			return
		}
		n.acknowledged(e)
	}
}

// uncertain is how many packets of room a queue has or has not, at random, but
// no more than a quarter of it: else packets of a sender that keeps a queue full
// come just as there is room, and those of all others just as there is none.
const uncertain = 3

// pass puts a packet into a switch's queue, if there is room for it. As the queue
// is first in, first out, it is known at once when the packet will be at the
// other end.
func (n *Network) pass(over int32, takes sim.Time, e event) {
	l := &n.links[over]
	begin := max(l.until, n.now)
	if room := n.limit - takes - (begin - n.now); room < n.unsure && (room < 0 || sim.Time(n.random.Int64N(int64(n.unsure))) >= room) {
		n.counts.Lost++
		return
	}
	n.put(l, begin, takes, e)
}

// put has a packet sent from a time on.
func (n *Network) put(l *link, begin, takes sim.Time, e event) {
	l.until = begin + takes
	e.hop++
	n.queue.Put(l.until+n.config.Delay, e)
}
