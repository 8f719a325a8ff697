package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/sim"
)

// LoadPlan is what the client does: the same connections at the same times
// to every target. Its size bounds the load in count and time.
type LoadPlan struct {
	Seed    uint64   `json:"seed"`
	Targets []Target `json:"targets"`
	// Seconds from the first connection's start to the last one's planned
	// end.
	Seconds float64 `json:"seconds"`
	// Connections of each kind to each target.
	Short  int `json:"short"`
	Stream int `json:"stream"`
	Upload int `json:"upload"`
	Idle   int `json:"idle"`
	// Steady ones open within Settle seconds from the start, then are mostly
	// silent and ask now and then who answers, until they are told that it
	// is Over and have asked once more.
	Steady int     `json:"steady"`
	Settle float64 `json:"settle"`
	// Pause is their longest silence, seconds; the shortest is a quarter.
	Pause float64 `json:"pause"`
	// Patience is for how many seconds an answer is waited for; 0: as long as
	// no busy machine needs (answerTimeout).
	Patience float64 `json:"patience,omitempty"`
	// Paced are connections of scenario scaling. A load that has some counts
	// ends by the second, and goes on until it is told that it is Over.
	Paced []Paced `json:"paced,omitempty"`
	// Hold makes the load go on with short connections after its plan, until
	// it is told that this is Over: what changes meanwhile may take longer
	// than it was planned.
	Hold bool `json:"hold"`
	// Beyond is for how many seconds it may hold on, at most, beside what a busy
	// machine needs.
	Beyond float64 `json:"beyond,omitempty"`
	// Device is where RSTs to the client are captured; empty: nowhere.
	Device string `json:"device,omitempty"`
	// Returns: servers die and come back meanwhile (deaths.go); it needs a Device.
	Returns bool `json:"returns,omitempty"`
}

// Target is a VIP under load.
type Target struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
}

// Tally counts a target's connections. Started = Alive + Completed + Broken +
// LostWithServer.
type Tally struct {
	Started        int `json:"started"`
	Answered       int `json:"answered"` // by a server, at least once
	Alive          int `json:"alive"`
	Completed      int `json:"completed"`
	Broken         int `json:"broken"`
	LostWithServer int `json:"lost_with_server"`
	// Survived are those of Completed that a server had answered before a
	// change began, and that ended after it was made.
	Survived int `json:"survived"`
	// Resets are RSTs that the client's network showed for connections whose
	// server lived; LateResets those after the client had all it wanted.
	Resets     int `json:"resets"`
	LateResets int `json:"late_resets"`
}

// Failure is one connection that did not complete.
type Failure struct {
	Target string  `json:"target"`
	At     float64 `json:"at"`  // seconds since the load's start
	Age    float64 `json:"age"` // of the connection, seconds
	Kind   string  `json:"kind"`
	Server string  `json:"server"` // who answered first; empty: nobody
	Local  string  `json:"local"`
	Error  string  `json:"error"`
	// By is who answered its SYN, or refused it, where that is known.
	By   string `json:"by,omitempty"`
	Lost bool   `json:"lost"` // its server had crashed
}

// LoadReport is what the client tells: every half second while it runs, and
// once, with Done, at the end.
type LoadReport struct {
	Seconds  float64          `json:"seconds"`
	Tallies  map[string]Tally `json:"tallies"`
	Failures []Failure        `json:"failures,omitempty"` // since the report before
	// Start is the load's.
	Start time.Time `json:"start"`
	// LatestStart and LatestEnd are by how many seconds the most belated of the
	// paced connections began too late, and by how many the most belated of
	// the complete answers ended after the plan: the machine was busy.
	LatestStart float64 `json:"latest_start"`
	LatestEnd   float64 `json:"latest_end"`
	// PerSecond, in the last report, is when the connections ended (plans with
	// Paced).
	PerSecond map[string][]Second `json:"per_second,omitempty"`
	// MissedResets are RSTs that the capture saw and could not keep.
	MissedResets int `json:"missed_resets"`
	// Round is the last of LoadNotice.Ask that every connection open has
	// answered.
	Round int  `json:"round,omitempty"`
	Done  bool `json:"done"`
}

// LoadNotice is what the client is told while it runs.
type LoadNotice struct {
	// Crashed names a server that is dead: what its connections do from now on is
	// not the balancers' fault. Back names one that lives again (LoadPlan.Returns):
	// what it answers from then on counts as ever. Empty: no such news.
	Crashed string `json:"crashed"`
	Back    string `json:"back,omitempty"`
	// From and To enclose the moment at which it died: its link went down. (Where servers
	// come back From alone is said, before it does.) Or From is before it was started
	// again, and To when it answered.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Over ends what LoadPlan.Hold asked for.
	Over bool `json:"over"`
	// Ask makes every steady connection ask now.
	Ask bool `json:"ask,omitempty"`
	// Begins and Made tell that a change begins, and that it is made.
	Begins bool `json:"begins"`
	Made   bool `json:"made"`
}

// Timeouts of the client. A busy machine must not trip them: they bound how
// long a connection that is really gone holds up the end.
const (
	dialTimeout   = 20 * time.Second // SYNs at 0, 1, 3, 7 and 15 s
	answerTimeout = 20 * time.Second
	// crashGrace is how long connections of a crashed server may still
	// deliver what was on its way.
	crashGrace = 2 * time.Second
	// Planned lengths, seconds.
	minLong, maxLong = 6.0, 20.0
)

// load is a running load.
type load struct {
	plan  LoadPlan
	start time.Time

	mu       sync.Mutex
	tallies  map[string]*Tally
	failures []Failure
	outages  map[string][]outage // of servers
	open     map[*connection]struct{}
	flows    map[endpoints]*flow
	port     int // the last one's, where connections take ports before they open
	// begun and made count the changes.
	begun, made int
	// round counts the notices Ask; asked is closed by the next.
	round int
	asked chan struct{}
	// These are of plans with Paced.
	perSecond              map[string][]Second
	latestStart, latestEnd time.Duration

	capture *resetCapture // nil: RSTs are not counted
	waiting []reset       // for their connections' end
	over    chan struct{} // closed by the notice Over
	endHold sync.Once
}

// holdPause is the time between two connections to a target after the plan.
const holdPause = 100 * time.Millisecond

// RunLoad carries out the plan that it reads from in, takes notices from in and
// writes reports to out. It ends with the last connection, or when in ends
// (whoever wanted the load is gone).
func RunLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(bufio.NewReader(in))
	l := &load{tallies: map[string]*Tally{}, outages: map[string][]outage{}, open: map[*connection]struct{}{},
		flows: map[endpoints]*flow{}, perSecond: map[string][]Second{}, over: make(chan struct{}), asked: make(chan struct{})}
	if err := lines.Decode(&l.plan); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if l.plan.Device != "" {
		var err error
		if l.capture, err = captureResets(ctx, l.plan.Device, l.plan.Returns); err != nil {
			return err
		}
	}
	go func() {
		defer cancel()
		for {
			var notice LoadNotice
			if lines.Decode(&notice) != nil {
				return
			}
			if notice.Over {
				l.endHold.Do(func() { close(l.over) })
			}
			if notice.Ask {
				l.nextRound()
			}
			l.changing(notice)
			l.crashed(notice)
		}
	}()
	return l.run(ctx, json.NewEncoder(out))
}

func (l *load) run(ctx context.Context, out *json.Encoder) error {
	var work sync.WaitGroup
	l.start = time.Now()
	for _, t := range l.plan.Targets {
		l.tallies[t.Name] = new(Tally)
		// One generator for all targets' schedules: equal for each.
		for _, job := range l.plan.schedule() {
			work.Go(func() {
				if sleep(ctx, time.Until(l.start.Add(job.at))) != nil {
					return
				}
				l.do(ctx, t, job)
			})
		}
		if l.plan.Hold {
			work.Go(func() { l.hold(ctx, t) })
		}
	}
	if len(l.plan.Paced) > 0 {
		work.Go(func() {
			select {
			case <-ctx.Done():
			case <-l.over:
			}
		})
	}
	finished := make(chan struct{})
	go func() { work.Wait(); close(finished) }()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := out.Encode(l.report(false)); err != nil {
				return err
			}
		case <-finished:
			if l.capture != nil { // what is still on its way
				_ = sleep(ctx, resetSlack)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("load stopped: %w", context.Cause(ctx))
			}
			return out.Encode(l.report(true))
		}
	}
}

// hold makes one short connection after another, from the plan's end until
// the load is told that it is over.
func (l *load) hold(ctx context.Context, t Target) {
	next := time.After(time.Until(l.start.Add(seconds(l.plan.Seconds))))
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.over:
			return
		case <-next:
		}
		l.do(ctx, t, job{kind: "short", size: 200})
		next = time.After(holdPause)
	}
}

// job is one planned connection.
type job struct {
	kind   string
	at     time.Duration // its start
	chunks int           // paced ones
	length time.Duration // long ones
	pause  time.Duration // short ones: between two requests; 0: one request
	size   int           // short ones: bytes of the answer
	seed   uint64        // steady ones: of their pauses
}

// schedule draws every connection's start and length. Long connections start
// early enough to end within the plan.
func (p LoadPlan) schedule() []job {
	var jobs []job
	for _, kind := range []struct {
		name  string
		count int
	}{{"short", p.Short}, {"stream", p.Stream}, {"upload", p.Upload}, {"idle", p.Idle}} {
		random := sim.Stream(p.Seed, "load/"+kind.name)
		for range kind.count {
			j := job{kind: kind.name}
			end := p.Seconds
			if kind.name == "short" {
				if random.IntN(2) == 0 {
					j.pause = seconds(0.02 + 0.5*random.Float64())
				}
				j.size = []int{0, 200, 4000, 60000}[random.IntN(4)]
			} else {
				long := min(minLong+(maxLong-minLong)*random.Float64(), p.Seconds*0.8)
				j.length, end = seconds(long), p.Seconds-long
			}
			j.at = seconds(end * random.Float64())
			jobs = append(jobs, j)
		}
	}
	random := sim.Stream(p.Seed, "load/steady")
	for range p.Steady {
		jobs = append(jobs, job{kind: "steady", at: seconds(p.Settle * random.Float64()), seed: random.Uint64()})
	}
	return append(jobs, p.schedulePaced()...)
}

// nextRound makes all steady connections ask.
func (l *load) nextRound() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round++
	close(l.asked)
	l.asked = make(chan struct{})
}

// rounds is the last round that every steady connection which lives has
// answered. The caller holds mu.
func (l *load) rounds() int {
	least := l.round
	for c := range l.open {
		if c.steady {
			least = min(least, c.round)
		}
	}
	return least
}

// changing counts changes that begin and that are made.
func (l *load) changing(n LoadNotice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.Begins {
		l.begun++
	}
	if n.Made {
		l.made++
	}
}

func (l *load) report(done bool) LoadReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := LoadReport{Seconds: time.Since(l.start).Seconds(), Tallies: map[string]Tally{}, Failures: l.failures, Done: done, Round: l.rounds(),
		Start: l.start, LatestStart: l.latestStart.Seconds(), LatestEnd: l.latestEnd.Seconds()}
	if done && len(l.plan.Paced) > 0 {
		r.PerSecond = l.perSecond
	}
	l.countResets(done)
	if done && l.capture != nil {
		r.MissedResets = l.capture.lost()
	}
	for name, t := range l.tallies {
		r.Tallies[name] = *t
	}
	l.failures = nil
	return r
}

// ended counts a connection that is over, and decides whether one that
// failed was broken or lost with its server.
func (l *load) ended(t Target, j job, c *connection, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	tally := l.tallies[t.Name]
	tally.Alive--
	if len(l.plan.Paced) > 0 {
		l.endedIn(t.Name, j, err != nil)
	}
	if c.flow != nil {
		c.flow.ended, c.flow.whole, c.flow.lost = time.Now(), err == nil, err != nil && l.lost(c, err)
	}
	if err == nil {
		tally.Completed++
		if l.made > c.begun {
			tally.Survived++
		}
		return
	}
	f := Failure{Target: t.Name, At: time.Since(l.start).Seconds(), Age: time.Since(c.began).Seconds(),
		Kind: j.kind, Server: c.server, Error: err.Error(), Lost: l.lost(c, err)}
	if c.ends.client.IsValid() {
		f.Local = c.ends.client.String()
		f.By = l.capture.by(c.ends)
	}
	if f.Lost {
		tally.LostWithServer++
	} else {
		tally.Broken++
	}
	l.failures = append(l.failures, f)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// sleep waits, or returns ctx's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// add sums tallies (several targets of one run).
func (t Tally) add(o Tally) Tally {
	return Tally{t.Started + o.Started, t.Answered + o.Answered, t.Alive + o.Alive, t.Completed + o.Completed, t.Broken + o.Broken,
		t.LostWithServer + o.LostWithServer, t.Survived + o.Survived, t.Resets + o.Resets, t.LateResets + o.LateResets}
}

func sortFailures(f []Failure) {
	slices.SortFunc(f, func(a, b Failure) int { return int((a.At - b.At) * 1e6) })
}
