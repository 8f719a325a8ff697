package packets

// grow widens a window as segments are acknowledged: by one each in slow start;
// beyond it, as RFC 6356 says, so that all subflows of a connection together
// take no more than one TCP connection on the best of their paths would, and
// those on congested paths less.
func (n *Network) grow(i, fresh int32) {
	s := &n.subflows[i]
	if s.window < s.threshold {
		s.window++ // each segment has an acknowledgement of its own
		return
	}
	alone := float64(fresh) / s.window
	c := n.connections[s.connection]
	if c.last-c.first == 1 {
		s.window += alone
		return
	}
	best, sum := 0.0, 0.0
	for j := c.first; j < c.last; j++ {
		o := &n.subflows[j]
		if o.smoothed == 0 {
			continue // has not begun
		}
		rate := o.settled() / o.smoothed
		best = max(best, rate/o.smoothed)
		sum += rate
	}
	// RFC 6356: alpha/total, where alpha is total · best / sum².
	s.window += min(float64(fresh)*best/(sum*sum), alone)
}

// settled is the window without what fast recovery adds to it.
func (s *subflow) settled() float64 {
	if s.recovering {
		return s.threshold
	}
	return s.window
}
