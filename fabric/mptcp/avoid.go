package mptcp

import (
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
)

// A link that failing subflows had to themselves is avoided for firstHold,
// then tried again; each further failure doubles that, up to longestHold.
const (
	firstHold   = 10 * time.Second
	longestHold = 5 * time.Minute
)

// avoided are links that failed, with the direction.
type avoided map[paths.Hop]*hold

type hold struct {
	until time.Time
	last  time.Duration
}

// has tells whether the link is to be avoided now.
func (a avoided) has(h paths.Hop, now time.Time) bool {
	held, ok := a[h]
	return ok && now.Before(held.until)
}

// blame notes a failure of a link; false: it was noted before.
func (a avoided) blame(h paths.Hop, now time.Time) bool {
	held, ok := a[h]
	switch {
	case !ok:
		a[h] = &hold{now.Add(firstHold), firstHold}
	case now.Before(held.until):
		return false
	default:
		held.last = min(2*held.last, longestHold)
		held.until = now.Add(held.last)
	}
	return true
}

// works forgets what was held against links over which data passed.
func (a avoided) works(hops []paths.Hop) {
	for _, h := range hops {
		delete(a, h)
	}
}

// in is the same in another state of the fabric, where links have other
// numbers: they are the same if they have the same name.
func (a avoided) in(before, now *paths.Net) avoided {
	b := avoided{}
	for h, held := range a {
		if link, err := now.Link(before.LinkName(h.Link)); err == nil {
			b[paths.Hop{Link: link, From: h.From}] = held
		}
	}
	return b
}

// count is how many links are avoided now.
func (a avoided) count(now time.Time) (n int) {
	for _, held := range a {
		if now.Before(held.until) {
			n++
		}
	}
	return n
}

// A subflow fails when its time-out was doubled failedBackoff times in a row
// without an answer (about a second), or when its SYN was repeated failedSYNs
// times (three seconds).
const (
	failedBackoff = 2
	failedSYNs    = 2
)

// fails tells whether nothing comes back from the subflow's path.
func (s *Subflow) fails() bool {
	switch {
	case s.connecting():
		return s.Info.Retransmits >= failedSYNs
	case s.ends():
		return false
	}
	// Probes of a closed window double the time-out, too.
	return s.Info.Backoff >= failedBackoff && s.Info.Unacked > 0 && s.Info.Probes == 0
}
