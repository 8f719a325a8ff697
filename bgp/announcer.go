package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Speaker has sessions with neighbours and tells them routes.
type Speaker interface {
	// Set makes routes all that neighbours are told: others are withdrawn.
	Set(routes []Route) error
	// Start opens the sessions, with what is set; once.
	Start() error
	Neighbours() []Neighbour
	// Changed tells that a neighbour's state did.
	Changed() <-chan struct{}
	// Close ends the sessions, upon which neighbours drop the routes.
	Close() error
}

// Options are an announcer's.
type Options struct {
	Common Common
	Log    *slog.Logger
	// Restart is for how long neighbours keep routes of a daemon that died. Until
	// there is something to say, or no route can be left, no session is opened: the
	// first thing that a neighbour hears ends what it has kept.
	Restart time.Duration
}

// Announcer keeps a speaker to what is decided.
type Announcer struct {
	options Options
	speaker Speaker
	node    func() (Node, error)
	poke    chan struct{}
	started time.Time

	// looks lets one at a time look and set.
	looks sync.Mutex

	mu        sync.Mutex
	open      bool // sessions are
	left      bool // everything is withdrawn, for good
	decisions []Decision
	since     map[netip.Addr]time.Time // as the decision is
	failed    string                   // why what is decided is not set
}

// New has s say what shall be by how the node stands; an error of that changes nothing.
func New(s Speaker, node func() (Node, error), o Options) *Announcer {
	return &Announcer{options: o, speaker: s, node: node, poke: make(chan struct{}, 1), started: time.Now()}
}

// lookInterval is how often the node is looked at, unless looking takes more than a
// lookShare of that time, lookGap how soon after a look at the earliest.
const (
	lookInterval = 500 * time.Millisecond
	lookShare    = 20
	lookGap      = 20 * time.Millisecond
)

// Poke has the node looked at soon.
func (a *Announcer) Poke() {
	select {
	case a.poke <- struct{}{}:
	default: // it will be
	}
}

// Run announces until ctx ends; then all is withdrawn and sessions end.
func (a *Announcer) Run(ctx context.Context) error {
	for {
		began := time.Now()
		a.look()
		took := time.Since(began)
		timer := time.NewTimer(max(lookInterval, lookShare*took))
		select {
		case <-ctx.Done():
			timer.Stop()
			a.Leave()
			return a.speaker.Close()
		case <-timer.C:
			continue
		case <-a.poke:
		case <-a.speaker.Changed():
		}
		timer.Reset(max(lookGap, took))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look has the speaker say what is to be said.
func (a *Announcer) look() {
	node, err := a.node()
	if err != nil {
		a.note("look what to announce", err)
		return
	}
	a.looks.Lock()
	defer a.looks.Unlock()
	open, left := a.is()
	if left {
		return
	}
	decisions := Decide(node, a.options.Common)
	var routes []Route
	for _, d := range decisions {
		if len(d.Withheld) == 0 {
			routes = append(routes, d.Route)
		}
	}
	if err := a.speaker.Set(routes); err != nil {
		a.note("set what is announced", err)
		return
	}
	a.keep(decisions)
	if !open && (len(node.NotReady) == 0 || time.Since(a.started) >= a.options.Restart) {
		if err := a.speaker.Start(); err != nil {
			a.note("open BGP sessions", err)
			return
		}
		a.mu.Lock()
		a.open = true
		a.mu.Unlock()
	}
	a.note("", nil)
}

// Leave withdraws everything, for good.
func (a *Announcer) Leave() {
	a.looks.Lock()
	defer a.looks.Unlock()
	if _, left := a.is(); left {
		return
	}
	a.mu.Lock()
	a.left = true
	decisions := slices.Clone(a.decisions)
	a.mu.Unlock()
	for i := range decisions {
		decisions[i].Withheld = append([]string{"the daemon is stopping"}, decisions[i].Withheld...)
	}
	a.note("withdraw routes", a.speaker.Set(nil))
	a.keep(decisions)
}

// keep remembers decisions, and logs those that changed.
func (a *Announcer) keep(decisions []Decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := map[netip.Addr]bool{}
	for _, d := range a.decisions {
		was[d.Address] = len(d.Withheld) == 0
	}
	now, since := time.Now(), map[netip.Addr]time.Time{}
	for _, d := range decisions {
		before, known := was[d.Address]
		is := len(d.Withheld) == 0
		since[d.Address] = now
		switch {
		case known && before == is:
			since[d.Address] = a.since[d.Address]
		case is:
			a.options.Log.Info("route announced", "address", d.Address.String())
		case known:
			a.options.Log.Warn("route withdrawn", "address", d.Address.String(), "why", strings.Join(d.Withheld, "; "))
		default:
			a.options.Log.Info("route not announced", "address", d.Address.String(), "why", strings.Join(d.Withheld, "; "))
		}
		delete(was, d.Address)
	}
	for gone, is := range was {
		if is {
			a.options.Log.Info("route withdrawn", "address", gone.String(), "why", "no VIP has the address any more")
		}
	}
	a.decisions, a.since = decisions, since
}

// note logs what failed, once, and keeps it for Report.
func (a *Announcer) note(what string, err error) {
	text := ""
	if err != nil {
		text = what + ": " + err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if text != "" && text != a.failed {
		a.options.Log.Error(text)
	}
	a.failed = text
}

// is says whether sessions are open, and whether everything is withdrawn for good.
func (a *Announcer) is() (open, left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open, a.left
}

// Report is what is announced to whom.
type Report struct {
	Neighbours []Neighbour
	Addresses  []Address
	Failed     string // why what was decided is not so; empty: it is
}

// Address is a VIPs' address in a Report.
type Address struct {
	Decision
	Since     time.Time // the decision is
	HeardBy   []netip.Addr
	Announced bool     // somebody hears it
	Why       []string // why not, or not everybody
}

// Report says what is announced, and why something is not.
func (a *Announcer) Report() (r Report) {
	r.Neighbours = a.speaker.Neighbours()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open {
		for i := range r.Neighbours {
			r.Neighbours[i].State, r.Neighbours[i].Since = Waiting, a.started
			r.Neighbours[i].Error = "sessions are opened when the daemon is ready, or graceful_restart is over"
		}
	}
	r.Failed = a.failed
	for _, d := range a.decisions {
		out := Address{Decision: d, Since: a.since[d.Address], Why: d.Withheld}
		if len(d.Withheld) == 0 {
			out.HeardBy, out.Why = Heard(d.Address, r.Neighbours)
			out.Announced = len(out.HeardBy) > 0
		}
		r.Addresses = append(r.Addresses, out)
	}
	return r
}
