package packets

import "github.com/fairlead/fairlead/sim"

// turns are the subflows that have something to send over a host's own link.
// They take turns, a segment each, and no more than ahead segments stand in the
// link's queue: a host keeps the rest (Linux: TCP small queues, fair queueing),
// so that it loses nothing and its windows do not grow by its own queue.
type turns struct {
	waiting []int32
	woken   bool // an event will serve them
}

// ahead is how many segments of all subflows a host's link has in its queue.
const ahead = 2

// offer has a subflow take its turns as long as its window lets it.
func (n *Network) offer(i int32) {
	s := &n.subflows[i]
	if s.waiting || !s.may() {
		return
	}
	s.waiting = true
	l := s.path.Forward[0]
	n.links[l].waiting = append(n.links[l].waiting, i)
	n.serve(l)
}

// serve fills a host's link up.
func (n *Network) serve(over int32) {
	l := &n.links[over]
	for len(l.waiting) > 0 {
		begin := max(l.until, n.now)
		if begin-n.now > (ahead-1)*n.segment {
			if !l.woken {
				l.woken = true
				n.queue.Put(begin-(ahead-1)*n.segment, event{subflow: over, kind: turn})
			}
			return
		}
		i := l.waiting[0]
		copy(l.waiting, l.waiting[1:])
		l.waiting = l.waiting[:len(l.waiting)-1]
		s := &n.subflows[i]
		if s.may() {
			n.put(l, begin, n.segment, event{sent: n.now, subflow: i, number: n.nextOf(i), kind: segment})
		}
		if s.waiting = s.may(); s.waiting {
			l.waiting = append(l.waiting, i)
		}
	}
}

// acknowledge sends an acknowledgement over a host's own link: before its data,
// behind what is on the wire.
func (n *Network) acknowledge(over int32, e event) {
	l := &n.links[over]
	begin := max(l.until, n.now)
	l.until = begin + n.ack
	e.hop++
	sent := min(begin, n.now+n.segment) + n.ack
	n.queue.Put(sent+sim.Time(n.config.Delay), e)
}
