package steer

import "time"

const (
	// firstHold is how long a path that turned bad again soon after it had come
	// back is left alone once probes call it good; it doubles each time, up to
	// maxHold. A slow link looks well as soon as the load has left it.
	firstHold = 2 * time.Second
	maxHold   = 16 * time.Second
	// forgive is how long a path has to be used without turning bad until what
	// was before is forgotten.
	forgive = 2 * time.Minute
)

// Hold follows one path. The zero value is a path that nothing is known of. Bad is
// here whatever stands below Unknown.
//
//	good ──bad──▶ left ──probes are well again──▶ held ──its time is over──▶ good
//	                ▲                               │
//	                └───────────────bad─────────────┘
type Hold struct {
	says  Standing      // what probes say: never Held
	used  time.Time     // when it was good again last; zero: it was never left
	until time.Time     // held until then
	next  time.Duration // how long it is held next time; 0: not at all
}

// Judge takes in what probes say, all but Held, and returns how the path stands.
func (h *Hold) Judge(says Standing, now time.Time) Standing {
	switch bad, was := says < Unknown, h.says < Unknown; {
	case bad && !was:
		if now.Sub(h.used) > forgive {
			h.next = 0
		}
	case !bad && was:
		h.until = now.Add(h.next)
		h.used = h.until
		h.next = min(max(2*h.next, firstHold), maxHold)
	}
	h.says = says
	return h.Standing(now)
}

// Standing is how the path stands.
func (h *Hold) Standing(now time.Time) Standing {
	if h.says == Good && now.Before(h.until) {
		return Held
	}
	return h.says
}

// Until is when a held path may be used again; zero if it is not held.
func (h *Hold) Until(now time.Time) time.Time {
	if h.Standing(now) == Held {
		return h.until
	}
	return time.Time{}
}
