package chaos

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/sim"
)

// world is the deployment and what happens to it.
type world struct {
	o       *Options
	lab     *lab.Lab
	began   time.Time
	traffic *lab.Traffic
	random  *rand.Rand // of what is drawn before it begins

	starting sync.Mutex // one at a time looks whether a process runs, and starts it

	mu       sync.Mutex
	history  History
	held     map[string]int // processes that faults keep down
	cuts     map[cut]int    // by how many faults
	touched  map[string]touch
	scars    map[string]bool // controllers whose disks failed
	restarts []string
	wrong    []string
	serial   int // of changes
}

// options are the lab's.
func (o *Options) options() lab.Options {
	return lab.Options{Name: o.Name, Servers: servers, ActiveServers: activeServers, LBs: balancers, VIPs: vips, Exposed: true, Controllers: 3,
		Remote: true, Disks: true, Clocks: true, Program: o.Program}
}

func newWorld(o *Options, l *lab.Lab) *world {
	return &world{o: o, lab: l, began: time.Now(), random: sim.Stream(o.Seed, "chaos"), held: map[string]int{}, cuts: map[cut]int{}, touched: map[string]touch{}, scars: map[string]bool{}}
}

func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) processes() []lab.Process {
	return append(w.lab.Daemons(), w.lab.ControllerProcesses()...)
}

// say notes what must not be.
func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// hold keeps a process down, or no longer.
func (w *world) hold(p lab.Process, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[p.Name] += by
}

// keepAlive starts what ended, as units with Restart=always do.
func (w *world) keepAlive(ctx context.Context) {
	for sleep(ctx, 500*time.Millisecond) == nil {
		for _, p := range w.processes() {
			w.keep(p)
		}
	}
}

// keep starts a process that nobody keeps down, if it does not run.
func (w *world) keep(p lab.Process) {
	w.starting.Lock()
	defer w.starting.Unlock()
	if w.isHeld(p) || w.lab.Runs(p) {
		return
	}
	text, said := fmt.Sprintf("%s at %.1f s", p.Name, w.now().Seconds()), ""
	if log, err := w.lab.Log(p); err == nil {
		said = lastWords(log)
		lines := strings.Split(said, "\n")
		text += ": " + lines[len(lines)-1]
	}
	if err := w.lab.Start(p); err != nil {
		text += ": " + err.Error()
	}
	w.ended(p, text, said)
}

func (w *world) isHeld(p lab.Process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[p.Name] > 0
}

// kill ends a process and keeps it down; what it returns starts it.
func (w *world) kill(p lab.Process) (start func() error, err error) {
	w.starting.Lock()
	defer w.starting.Unlock()
	w.hold(p, 1)
	w.touch(p, shaken)
	err = w.signal(p, syscall.SIGKILL)
	return func() error { return w.release(p) }, err
}

// release starts a process, unless another fault keeps it down.
func (w *world) release(p lab.Process) error {
	w.starting.Lock()
	defer w.starting.Unlock()
	w.hold(p, -1)
	if w.isHeld(p) || w.lab.Runs(p) {
		return nil
	}
	return w.lab.Start(p)
}

// signal sends a signal to a process, which may have ended by itself.
func (w *world) signal(p lab.Process, s syscall.Signal) error {
	if err := w.lab.Signal(p, s); err != nil && w.lab.Runs(p) {
		return err
	}
	return nil
}

// leader is the controller that said last that it leads.
func (w *world) leader() lab.Process {
	all := w.lab.ControllerProcesses()
	is, newest := all[0], ""
	for _, p := range all {
		said, _ := w.lab.Log(p) // nobody leads who has said nothing
		for line := range strings.Lines(string(said)) {
			if at := strings.Fields(line); strings.Contains(line, "this controller leads") && at[0] > newest {
				is, newest = p, at[0]
			}
		}
	}
	return is
}

// ill says what of the deployment is not well.
func (w *world) ill(ctx context.Context) string {
	for _, p := range w.processes() {
		if !w.lab.Runs(p) {
			return p.Name + " does not run"
		}
	}
	for _, k := range w.lab.ControllerProcesses() {
		if err := w.lab.StoreAnswers(ctx, k); err != nil {
			return k.Name + ": " + err.Error()
		}
	}
	for i, d := range w.lab.Daemons() {
		s, err := w.lab.StatusOf(ctx, d.Machine)
		if err != nil {
			return d.Name + ": " + err.Error()
		}
		if len(s.NotReady) > 0 {
			return d.Name + " is not ready: " + strings.Join(s.NotReady, "; ")
		}
		for _, warning := range s.Warnings {
			if strings.Contains(warning, "changes wait") || strings.Contains(warning, "is not in force here") {
				return d.Name + ": " + warning
			}
		}
		if without := lab.TakesNoNew(s); i < balancers && without != "" {
			return d.Name + " gives no new connections to " + without
		}
	}
	return ""
}

// notable is what is worth a word.
const notable = 10 * time.Second

// settle waits until all is well, and says for how long.
func (w *world) settle(ctx context.Context, after string, ill func(context.Context) string) time.Duration {
	began, why, last := time.Now(), "", ""
	well := netspace.WaitFor(Within, func() bool {
		if why = ill(ctx); why != "" {
			last = why
		}
		return why == "" || ctx.Err() != nil
	})
	if !well {
		w.say("%v after %s: %s", Within, after, why)
	}
	if took := time.Since(began); took > notable {
		w.o.Watch(fmt.Sprintf("%6.1f s: after %s it took %.1f s; the last that was not well: %s", w.now().Seconds(), after, took.Seconds(), last))
	}
	return time.Since(began)
}

// recover waits until all have what the store has, and a change from each controller's
// machine is made as ever.
func (w *world) recover(ctx context.Context, r *Result) error {
	w.o.Watch("all faults are over")
	took := w.settle(ctx, "the last fault", w.ill)
	for i, p := range w.lab.ControllerProcesses() {
		took += w.settle(ctx, "the last fault, a change from "+p.Machine, func(ctx context.Context) string {
			// No weight is the same as before.
			c := w.change(ctx, p.Machine, 0, "weight", vips[0].Name, w.lab.DaemonName("server1"), fmt.Sprint(200+i))
			if c.Outcome != Done {
				return c.said
			}
			return ""
		})
	}
	var entries []Entry
	took += w.settle(ctx, "the last change", func(ctx context.Context) (why string) {
		var err error
		if entries, err = w.lookFrom(ctx, "server2"); err != nil {
			return err.Error()
		}
		return w.differs(ctx, entries[len(entries)-1])
	})
	took += w.settle(ctx, "the last change", w.undone)
	r.Recovered, r.Versions = took.Seconds(), len(entries)
	return ctx.Err()
}

// differs says which daemon does not go by e.
func (w *world) differs(ctx context.Context, e Entry) string {
	digests := map[string]bool{}
	for _, d := range w.lab.Daemons() {
		s, err := w.sight(ctx, d.Machine)
		switch {
		case err != nil:
			return d.Name + ": " + err.Error()
		case s.Version != e.Version || s.Digest != e.Digest:
			return fmt.Sprintf("%s goes by version %d, digest %s, and the store has %d, %s", d.Name, s.Version, s.Digest, e.Version, e.Digest)
		}
		digests[s.Digest] = true
	}
	if len(digests) != 1 {
		return fmt.Sprint("there are several digests: ", maps.Keys(digests))
	}
	return ""
}

// sight asks a daemon what it goes by, and notes it.
func (w *world) sight(ctx context.Context, machine string) (s Sight, err error) {
	s = Sight{Daemon: machine, Call: w.now()}
	status, err := w.lab.StatusOf(ctx, machine)
	if err != nil {
		return s, err
	}
	s.Return, s.Version, s.Digest = w.now(), status.AssignmentVersion, hex.EncodeToString(status.AssignmentDigest)
	if s.Version == 0 { // it waits
		return s, fmt.Errorf("%s goes by nothing", machine)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.Sights = append(w.history.Sights, s)
	return s, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
