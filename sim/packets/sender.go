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
	next      int32   // to be sent for the first time
	state     [window]marks
	flying    int32 // sent, and neither acknowledged nor lost, as far as is known
	highest   int32 // that was acknowledged
	judged    int32 // below it, it is known which are lost
	again     int32 // below it, nothing is to be sent again
	waiting   bool  // for its turn

	recovering bool  // fast recovery
	recovery   int32 // ends when all below are acknowledged

	smoothed, variation float64  // round trip, ns; 0: none was measured
	backoff             sim.Time // factor of the timeout: 1, 2, 4 …
	deadline            sim.Time // of the oldest segment; 0: nothing was sent
	looking             bool     // an event for the timer is in the queue
}

// marks of a segment between oldest and next.
type marks uint8

const (
	there marks = 1 << iota // acknowledged by itself
	gone                    // lost
	anew                    // and sent again
)

// Values that the RFCs name.
const (
	initialWindow = 10              // RFC 6928
	duplicates    = 3               // RFC 6675
	firstRTO      = 1 * sim.Second  // RFC 6298
	longestRTO    = 60 * sim.Second // RFC 6298
)

func newSubflow(connection int32, p Path) subflow {
	return subflow{connection: connection, path: p, window: initialWindow, threshold: math.Inf(1), backoff: 1, looking: true}
}

func (s *subflow) of(number int32) *marks { return &s.state[number%window] }

// may tells whether the window has room.
func (s *subflow) may() bool {
	return float64(s.flying+1) <= s.window && (s.lostNext() < s.judged || s.next-s.oldest < window-1)
}

// lostNext is the first lost segment that was not sent again; judged: none.
func (s *subflow) lostNext() int32 {
	s.again = max(s.again, s.oldest)
	for s.again < s.judged && *s.of(s.again)&(gone|anew|there) != gone {
		s.again++
	}
	return s.again
}

// nextOf is the segment that a subflow sends now: a lost one, or a new one.
func (n *Network) nextOf(i int32) int32 {
	s := &n.subflows[i]
	n.counts.Segments++
	s.flying++
	if s.deadline == 0 {
		n.restart(i)
	}
	if lost := s.lostNext(); lost < s.judged {
		*s.of(lost) |= anew
		n.counts.Again++
		return lost
	}
	*s.of(s.next) = 0
	s.next++
	return s.next - 1
}

// acknowledged takes an acknowledgement. There is always more to send, so that
// something is outstanding behind it.
func (n *Network) acknowledged(e event) {
	i, s := e.subflow, &n.subflows[e.subflow]
	full := s.flying+1 > int32(s.window) // else the window was not what held it back
	if e.number >= s.oldest {
		s.landed(e.number)
	}
	if e.below > s.oldest {
		fresh := e.below - s.oldest
		for ; s.oldest < e.below; s.oldest++ {
			s.landed(s.oldest)
		}
		s.measure(float64(n.now - e.sent))
		s.backoff = 1
		if s.recovering && s.oldest >= s.recovery {
			s.recovering = false
		} else if !s.recovering && full {
			n.grow(i, fresh)
		}
		n.restart(i)
	}
	if s.judge() && !s.recovering && s.oldest >= s.recovery {
		s.halve()
		s.recovering, s.window = true, s.threshold
	}
	n.offer(i)
}

// landed marks a segment as acknowledged.
func (s *subflow) landed(number int32) {
	m := s.of(number)
	if *m&there != 0 {
		return
	}
	if *m&(gone|anew) != gone {
		s.flying--
	}
	*m |= there
	s.highest = max(s.highest, number)
}

// judge finds what is lost: on a path nothing overtakes, so what has three
// segments acknowledged beyond it will not come. It tells whether any is.
func (s *subflow) judge() (any bool) {
	s.judged = max(s.judged, s.oldest)
	for ; s.judged+duplicates <= s.highest; s.judged++ {
		if m := s.of(s.judged); *m&there == 0 {
			*m |= gone
			s.flying--
			any = true
		}
	}
	return any
}

// halve sets what slow start ends at.
func (s *subflow) halve() {
	s.threshold = max(s.window/2, 2)
	s.recovery = s.next
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

// lookAtTimer begins the subflow, or takes all that was not acknowledged in time
// for lost. Where the deadline has moved, it looks again then.
func (n *Network) lookAtTimer(i int32) {
	s := &n.subflows[i]
	s.looking = false
	switch {
	case s.deadline == 0:
	case n.now < s.deadline:
		s.looking = true
		n.queue.Put(s.deadline, event{subflow: i, kind: timer})
		return
	default:
		n.counts.Timeouts++
		s.halve()
		s.window, s.recovering, s.flying = 1, false, 0
		for number := s.oldest; number < s.next; number++ {
			if m := s.of(number); *m&there == 0 {
				*m = gone
			}
		}
		s.judged, s.again = s.next, s.oldest
		s.backoff *= 2
		n.restart(i)
	}
	n.offer(i)
}
