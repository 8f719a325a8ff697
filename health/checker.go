package health

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Key names a target within one balancer.
type Key struct {
	VIP  uint32
	Slot uint16
}

// Report is what is known about a target.
type Report struct {
	State  State
	Since  time.Time // of the state; zero while unknown
	Detail string    // the last failure's cause; empty after a good answer
	Checks uint64
	Failed uint64
	// Local is why the last check could not be made; empty if it was.
	Local string
	// Ended: no check said that it is down, but its agent, that what served it has ended.
	Ended bool
	// Remembered: State is what was known before this Checker's first check.
	Remembered bool
}

// Checker runs the checks of a changing set of targets.
type Checker struct {
	prober   Prober
	onChange func(Target, Report)

	mu      sync.Mutex
	workers map[Key]*worker
	// recalled is what is known of those that are no targets yet.
	recalled map[Key]Known
	wg       sync.WaitGroup
	closed   bool
	notAsked uint64 // checks that could not be made
}

type worker struct {
	cancel context.CancelFunc
	wake   chan struct{} // the target changed
	ask    chan struct{} // a check is to be made now

	// Guarded by Checker.mu.
	target  Target
	machine *Machine
	report  Report
	falls   int // calls of Ended that concerned it
}

// NewChecker has no targets yet. onChange is called, without locks held, after a
// target's state changed.
func NewChecker(p Prober, onChange func(Target, Report)) *Checker {
	return &Checker{prober: p, onChange: onChange, workers: map[Key]*worker{}}
}

// SetTargets makes targets the set that is checked. A target that was there
// before keeps its state, unless its slot now names another server.
func (c *Checker) SetTargets(targets []Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	keep := map[Key]bool{}
	for _, t := range targets {
		k := Key{t.VIP, t.Slot}
		keep[k] = true
		w := c.workers[k]
		if w != nil && w.target.Server == t.Server && w.target.Address.Addr() == t.Address.Addr() {
			if w.target != t {
				w.target = t
				w.machine.SetThresholds(t.Rise, t.Fall)
				select {
				case w.wake <- struct{}{}:
				default: // one wake-up is pending already
				}
			}
			continue
		}
		if w != nil {
			w.cancel()
		}
		ctx, cancel := context.WithCancel(context.Background())
		w = &worker{cancel: cancel, wake: make(chan struct{}, 1), ask: make(chan struct{}, 1), target: t, machine: NewMachine(t.Rise, t.Fall)}
		w.report = c.begin(t, w.machine)
		c.workers[k] = w
		c.wg.Go(func() { c.run(ctx, w) })
	}
	for k, w := range c.workers {
		if !keep[k] {
			w.cancel()
			delete(c.workers, k)
		}
	}
	c.recalled = nil
}

// Report is what is known about a target; ok is false if it is not checked.
func (c *Checker) Report(vip uint32, slot uint16) (r Report, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workers[Key{vip, slot}]
	if w == nil {
		return Report{}, false
	}
	return w.report, true
}

// Down says whether a target is known to be down. Unknown counts as up.
func (c *Checker) Down(vip uint32, slot uint16) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := Key{vip, slot}
	if w := c.workers[k]; w != nil {
		return w.report.State == Down
	}
	r, ok := c.recalled[k]
	return ok && !r.Up
}

// Close ends all checks and waits for those that are under way.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	for k, w := range c.workers {
		w.cancel()
		delete(c.workers, k)
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// run checks one target until its context ends. The first check comes at a
// random moment of the first interval and later ones an interval apart, a
// tenth more or less, so that many targets (and many balancers) never ask
// together.
func (c *Checker) run(ctx context.Context, w *worker) {
	c.mu.Lock()
	interval := w.target.Interval
	c.mu.Unlock()
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(max(interval, 1)))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			// Perhaps a shorter interval: ask soon, with the new settings.
			c.mu.Lock()
			interval = w.target.Interval
			c.mu.Unlock()
			timer.Reset(time.Duration(rand.Int64N(int64(max(interval, 1)))))
			continue
		case <-w.ask:
		case <-timer.C:
		}
		c.mu.Lock()
		t, falls := w.target, w.falls
		c.mu.Unlock()
		started := time.Now()
		probe, cancel := context.WithTimeout(ctx, t.Timeout)
		err := c.prober.Probe(probe, t)
		cancel()
		if ctx.Err() != nil {
			return
		}
		c.answer(w, t, err, falls)
		timer.Reset(max(jitter(t.Interval)-time.Since(started), 0))
	}
}

// answer counts one outcome and tells of a change. falls is what there were when the
// check began: one that began before the server fell says nothing of it now.
func (c *Checker) answer(w *worker, t Target, err error, falls int) {
	if err != nil && isLocal(err) {
		c.unasked(w, err)
		return
	}
	c.mu.Lock()
	if falls != w.falls {
		c.mu.Unlock()
		return
	}
	changed := w.machine.Answer(err == nil)
	w.report.Checks++
	w.report.Detail, w.report.Local = "", ""
	if err != nil {
		w.report.Failed++
		w.report.Detail = err.Error()
	}
	w.report.Remembered = w.machine.Remembered()
	if changed {
		w.report.State, w.report.Ended = w.machine.State(), false
		w.report.Since = time.Now()
	}
	report := w.report
	c.mu.Unlock()
	if changed && c.onChange != nil {
		c.onChange(t, report)
	}
}

// jitter is d, a tenth more or less.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(max(d/5, 1))))
}
