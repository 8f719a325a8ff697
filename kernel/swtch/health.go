package swtch

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

// unsureTime is for how long what was known of a server stays while its agent
// answers that it does not know yet: longer than a first check should take.
const unsureTime = time.Minute

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
//	          report says so, Fall polls unanswered, or its port is down
//	unknown ─▶ up ⇄ down, disabled
//	                 │ more than Flaps times not up within FlapWindow
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
	// unsure is since when its agent answers that it does not know; zero: it
	// does.
	unsure time.Time
	// cut says that frames cannot reach it, and why.
	cut string
	// presumed: nothing was heard yet; state is what the rows that an earlier
	// run installed say of it.
	presumed bool
	// downs are when reported went from up to something else, within
	// FlapWindow.
	downs []time.Time
	// hold is how long the last holding down was; heldUntil when it ends.
	hold      time.Duration
	heldUntil time.Time
	// fell is when state last went from Up to Down, for another reason than a
	// port that is down or a listener that is gone; presumedUp: that Up was presumed.
	fell       time.Time
	presumedUp bool

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

// presume says what the state of a server was that nothing was heard of yet.
func (h *health) presume(name string, state State, now time.Time) {
	s := h.servers[name]
	if s == nil || s.state != Unknown {
		return
	}
	s.state, s.reported, s.since, s.presumed = state, state, now, true
	if state != Up {
		s.detail = "it had no nexthops when this daemon started, and was not heard of since"
	}
}

// take takes one report of a known server.
func (h *health) take(name string, r Report, now time.Time) {
	s := h.servers[name]
	if s == nil {
		return
	}
	state, detail := r.State, r.Detail
	s.cut = r.cut
	if r.Answered {
		s.silent = 0
		if !r.At.IsZero() {
			s.connections, s.owned, s.counted = r.Connections, r.Owned, r.At
		}
		if state != Unknown {
			s.unsure = time.Time{}
		} else if s.unsure.IsZero() {
			s.unsure = now
		}
		if state == Unknown && s.cut == "" && now.Sub(s.unsure) < unsureTime {
			return // it has just started: what was known stays
		}
		if state != Up && state != Disabled {
			// An agent that says something else, or nothing, does not serve.
			if state == Unknown {
				detail = fmt.Sprintf("its agent does not know its state since %v", unsureTime)
			} else if state != Down {
				detail = fmt.Sprintf("the agent reports state %q", string(r.State))
			}
			state = Down
		}
	} else {
		if s.silent++; s.silent < h.o.Fall && s.cut == "" {
			return // a lost packet, perhaps
		}
		state = Down
		detail = "its agent does not answer"
		if r.Detail != "" {
			detail += ": " + r.Detail
		}
	}
	if s.cut != "" {
		state, detail = Down, s.cut
	}
	if s.reported == Up && state != Up {
		h.flap(s, now)
	}
	s.reported = state
	if state != Down && now.Before(s.heldUntil) {
		state = Down
		detail = fmt.Sprintf("stopped being up more than %d times within %v: held down until %s", h.o.Flaps, h.o.FlapWindow, s.heldUntil.UTC().Format(time.RFC3339))
	}
	s.detail = detail
	if state == Up {
		s.detail = ""
	}
	if state != s.state {
		// Who was not up before does not fall, and it is no doubtful thing
		// that a port is down, or that nobody listens any more.
		if s.state == Up && state == Down && s.cut == "" && !r.Ended {
			s.fell, s.presumedUp = now, s.presumed
		}
		s.state, s.since = state, now
	}
	s.presumed = false
}

// flap counts one more time not up, and holds the server down where there were too
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
		if s.state == Unknown || s.presumed {
			return false
		}
	}
	return true
}

// anyUp: some server was heard to be up.
func (h *health) anyUp() bool {
	for _, s := range h.servers {
		if s.state == Up && !s.presumed {
			return true
		}
	}
	return false
}

// out are the servers that take no new connections.
func (h *health) out() map[string]bool {
	out := map[string]bool{}
	for name, s := range h.servers {
		if s.state == Down || s.state == Disabled {
			out[name] = true
		}
	}
	return out
}

// dead: the machine does not answer, or cannot be reached. A server that is
// down or disabled and does still passes on packets of others' connections,
// and has its own.
func (h *health) dead(s *hostHealth) bool {
	return s.state == Down && (s.silent >= h.o.Fall || s.cut != "")
}

// cascade says whether more servers went down within the lock's window than
// may, and which. Servers that a daemon finds down when it starts may have
// been so for long: they count only if it finds nobody up, and so is blind
// itself, perhaps: then all that were up have fallen, however few they are.
func (h *health) cascade(now time.Time) (fallen []string, locks bool) {
	blind, found := h.known() && !h.anyUp(), false
	for name, s := range h.servers {
		if s.presumedUp && !blind {
			continue
		}
		if s.state == Down && !s.fell.IsZero() && now.Sub(s.fell) < h.o.LockWindow {
			fallen = append(fallen, name)
			found = found || s.presumedUp
		}
	}
	return fallen, found && h.o.LockShare < 1 || float64(len(fallen)) > h.o.LockShare*float64(len(h.servers))
}
