package packets

import (
	"math"

	"github.com/fairlead/fairlead/sim"
)

// subflow is a sender and its receiver. Windows and numbers are in segments.
type subflow struct {
	receiver
	path       Path
	connection int32

	window    float64 // congestion window
	threshold float64 // of slow start
	oldest    int32   // not acknowledged
	next      int32   // to be sent
	beyond    int32   // all that was ever sent is below
	same      int     // acknowledgements in a row that say the same

	recovering bool  // fast recovery
	recovery   int32 // ends when all below are acknowledged
	partial    bool  // an acknowledgement of part of it has come

	smoothed, variation float64  // round trip, ns; 0: none was measured
	backoff             sim.Time // factor of the timeout: 1, 2, 4 …
	deadline            sim.Time // of the oldest segment; 0: nothing is outstanding
	looking             bool     // an event for the timer is in the queue
	left                sim.Time // when the host sent the last segment
}

// Values that the RFCs name.
const (
	initialWindow = 10              // RFC 6928
	duplicates    = 3               // RFC 5681
	firstRTO      = 1 * sim.Second  // RFC 6298
	longestRTO    = 60 * sim.Second // RFC 6298
)

func newSubflow(connection int32, p Path) subflow {
	return subflow{connection: connection, path: p, window: initialWindow, threshold: math.Inf(1), backoff: 1, looking: true}
}

func (s *subflow) outstanding() int32 { return s.next - s.oldest }

// send puts a segment on its way.
func (n *Network) send(i, number int32) {
	s := &n.subflows[i]
	n.counts.Segments++
	if number < s.beyond {
		n.counts.Again++
	}
	at := n.now
	if n.config.Jitter > 0 {
		at += sim.Time(n.random.Int64N(int64(n.config.Jitter) + 1))
	}
	s.left = max(at, s.left) // never before the one sent last
	n.queue.Put(s.left, event{sent: s.left, subflow: i, number: number, kind: segment})
	if s.deadline == 0 {
		n.restart(i)
	}
}

// sendNew sends what the window allows and some segments more.
func (n *Network) sendNew(i int32, more int32) {
	s := &n.subflows[i]
	allowed := min(int32(min(s.window, window))+more, window-1)
	for s.outstanding() < allowed {
		n.send(i, s.next)
		s.next++
		s.beyond = max(s.beyond, s.next)
	}
}

// acknowledged takes an acknowledgement of all segments below number. There are
// always more to send, so that something is outstanding behind it.
func (n *Network) acknowledged(i, number int32, sent sim.Time) {
	s := &n.subflows[i]
	switch {
	case number > s.oldest:
		fresh := number - s.oldest
		s.oldest = number
		s.next = max(s.next, number)
		s.measure(float64(n.now - sent))
		s.backoff, s.same = 1, 0
		if s.recovering {
			n.recovers(i, fresh)
		} else {
			n.grow(i, fresh)
			n.restart(i)
		}
		n.sendNew(i, 0)
	case number == s.oldest && s.beyond > s.oldest:
		n.duplicate(i)
	}
}

// duplicate: a segment after a hole has arrived.
func (n *Network) duplicate(i int32) {
	s := &n.subflows[i]
	s.same++
	switch {
	case s.recovering:
		s.window++
		n.sendNew(i, 0)
	case s.oldest < s.recovery: // of what a timeout has sent again
	case s.same < duplicates:
		n.sendNew(i, int32(s.same)) // limited transmit, RFC 3042
	case s.same == duplicates:
		s.lost()
		s.recovering, s.partial = true, false
		s.window = s.threshold + duplicates
		n.send(i, s.oldest)
		n.sendNew(i, 0)
	}
}

// lost halves what slow start ends at.
func (s *subflow) lost() {
	s.threshold = max(min(s.window, float64(s.outstanding()))/2, 2)
	s.recovery = s.beyond
}

// recovers takes an acknowledgement of fresh segments in fast recovery
// (RFC 6582).
func (n *Network) recovers(i, fresh int32) {
	s := &n.subflows[i]
	if s.oldest >= s.recovery {
		s.recovering = false
		s.window = min(s.threshold, max(float64(s.outstanding()), 1)+1)
		n.restart(i)
		return
	}
	// The next hole is lost, too.
	s.window = max(s.window-float64(fresh)+1, 1)
	n.send(i, s.oldest)
	if !s.partial {
		s.partial = true
		n.restart(i)
	}
}

// measure takes a round trip, in ns, as RFC 6298 does.
func (s *subflow) measure(took float64) {
	if s.smoothed == 0 {
		s.smoothed, s.variation = took, took/2
		return
	}
	s.variation += (math.Abs(s.smoothed-took) - s.variation) / 4
	s.smoothed += (took - s.smoothed) / 8
}

func (n *Network) timeout(s *subflow) sim.Time {
	rto := firstRTO
	if s.smoothed > 0 {
		rto = max(n.config.MinRTO, sim.Time(s.smoothed+4*s.variation))
	}
	return min(rto*s.backoff, longestRTO)
}

// restart sets the timer anew.
func (n *Network) restart(i int32) {
	s := &n.subflows[i]
	s.deadline = n.now + n.timeout(s)
	if !s.looking {
		s.looking = true
		n.queue.Put(s.deadline, event{subflow: i, kind: timer})
	}
}

// lookAtTimer begins the subflow, or sends again what was not acknowledged in
// time. Where the deadline has moved, it looks again then.
func (n *Network) lookAtTimer(i int32) {
	s := &n.subflows[i]
	s.looking = false
	switch {
	case s.beyond == 0:
		n.sendNew(i, 0)
	case s.deadline == 0:
	case n.now < s.deadline:
		s.looking = true
		n.queue.Put(s.deadline, event{subflow: i, kind: timer})
	default:
		n.counts.Timeouts++
		s.lost()
		s.window, s.same, s.recovering = 1, 0, false
		s.next = s.oldest
		s.backoff *= 2
		s.deadline = 0
		n.sendNew(i, 0)
	}
}
