package fabric

import (
	"fmt"
	"time"
)

// Defaults of HealthOptions.
const (
	defaultFall        = 2
	defaultFlaps       = 3
	defaultFlapWindow  = time.Minute
	defaultHoldDown    = 30 * time.Second
	defaultMaxHoldDown = 10 * time.Minute
	defaultLockShare   = 0.5
	defaultLockWindow  = 10 * time.Second
)

func (o HealthOptions) withDefaults() HealthOptions {
	defaults := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.Fall <= 0 {
		o.Fall = defaultFall
	}
	if o.Flaps <= 0 {
		o.Flaps = defaultFlaps
	}
	if o.LockShare <= 0 {
		o.LockShare = defaultLockShare
	}
	defaults(&o.FlapWindow, defaultFlapWindow)
	defaults(&o.HoldDown, defaultHoldDown)
	defaults(&o.MaxHoldDown, defaultMaxHoldDown)
	defaults(&o.LockWindow, defaultLockWindow)
	return o
}

// health is what reports say of the servers, damped. It has no clock of its
// own: time comes with the reports.
type health struct {
	o       HealthOptions
	servers map[string]*hostHealth
}

// hostHealth is one server's.
//
//	          report says so, or Fall polls unanswered
//	unknown ─▶ up ⇄ down, disabled
//	                 │ more than Flaps downs within FlapWindow
//	                 ▼
//	               held down ─until, and a report says up─▶ up
type hostHealth struct {
	state  State // damped
	detail string
	since  time.Time
	// reported is the last state that an agent said or that its silence
	// means, undamped.
	reported State
	silent   int // polls in a row without an answer
	// downs are when reported went from up to down, within FlapWindow.
	downs []time.Time
	// hold is how long the last holding down was; heldUntil when it ends.
	hold      time.Duration
	heldUntil time.Time
	// fell is when state last became Down.
	fell time.Time

	connections uint64
	owned       []byte // see Report
	counted     time.Time
}

func newHealth(o HealthOptions) *health {
	return &health{o: o.withDefaults(), servers: map[string]*hostHealth{}}
}

// owns says whether a connection of the bucket lives on the server, as far as
// is known: without a bitmap (or with byBucket false, where it is not to be
// believed) a server that has any connection may have one of each bucket.
func (s *hostHealth) owns(bucket, buckets int, byBucket bool) bool {
	if byBucket && len(s.owned) == (buckets+7)/8 {
		return s.owned[bucket/8]>>(bucket%8)&1 != 0
	}
	return s.connections > 0
}

// keep forgets all servers but those named, and takes new ones up as unknown.
func (h *health) keep(names []string) {
	servers := make(map[string]*hostHealth, len(names))
	for _, n := range names {
		servers[n] = h.servers[n]
		if servers[n] == nil {
			servers[n] = &hostHealth{}
		}
	}
	h.servers = servers
}

// take takes one report of a known server.
func (h *health) take(name string, r Report, now time.Time) {
	s := h.servers[name]
	if s == nil {
		return
	}
	state, detail := r.State, r.Detail
	if r.Answered {
		s.silent = 0
		if !r.At.IsZero() {
			s.connections, s.owned, s.counted = r.Connections, r.Owned, r.At
		}
		if state != Up && state != Disabled {
			// An agent that says something else, or nothing, does not serve.
			if state != Down {
				detail = fmt.Sprintf("the agent reports state %q", string(r.State))
			}
			state = Down
		}
	} else {
		if s.silent++; s.silent < h.o.Fall {
			return // a lost packet, perhaps
		}
		state = Down
		detail = "its agent does not answer"
		if r.Detail != "" {
			detail += ": " + r.Detail
		}
	}
	if s.reported == Up && state == Down {
		h.flap(s, now)
	}
	s.reported = state
	if state == Up && now.Before(s.heldUntil) {
		state = Down
		detail = fmt.Sprintf("went down more than %d times within %v: held down until %s", h.o.Flaps, h.o.FlapWindow, s.heldUntil.UTC().Format(time.RFC3339))
	}
	s.detail = detail
	if state == Up {
		s.detail = ""
	}
	if state != s.state {
		if state == Down {
			s.fell = now
		}
		s.state, s.since = state, now
	}
}

// flap counts one more down, and holds the server down where there were too
// many: longer each time, until it has been quiet.
func (h *health) flap(s *hostHealth, now time.Time) {
	kept := s.downs[:0]
	for _, t := range s.downs {
		if now.Sub(t) < h.o.FlapWindow {
			kept = append(kept, t)
		}
	}
	s.downs = append(kept, now)
	switch {
	case len(s.downs) > h.o.Flaps && s.hold == 0:
		s.hold = h.o.HoldDown
	case s.hold > 0 && now.Before(s.heldUntil.Add(s.hold)):
		// It flaps on: while it is held down, or soon after.
		s.hold = min(2*s.hold, h.o.MaxHoldDown)
	case len(s.downs) > h.o.Flaps:
		s.hold = h.o.HoldDown
	default:
		s.hold = 0
		return
	}
	s.heldUntil = now.Add(s.hold)
}

// known: every server's state was heard or is known by its silence.
func (h *health) known() bool {
	for _, s := range h.servers {
		if s.state == Unknown {
			return false
		}
	}
	return true
}

// dead: the machine does not answer. A server that is down or disabled and
// does still passes on packets of others' connections, and has its own.
func (h *health) dead(s *hostHealth) bool { return s.state == Down && s.silent >= h.o.Fall }

// cascade says whether more servers went down within the lock's window than
// may, and which.
func (h *health) cascade(now time.Time) (fallen []string, locks bool) {
	for name, s := range h.servers {
		if s.state == Down && !s.fell.IsZero() && now.Sub(s.fell) < h.o.LockWindow {
			fallen = append(fallen, name)
		}
	}
	return fallen, float64(len(fallen)) > h.o.LockShare*float64(len(h.servers))
}
