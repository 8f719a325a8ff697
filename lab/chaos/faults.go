package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/sim"
)

// Fault is something that failed.
type Fault struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
	// At is seconds since the run's begin, Seconds how long it lasted.
	At      float64 `json:"at"`
	Seconds float64 `json:"seconds"`
}

// fault is one that is drawn: begin makes it, and what that returns ends it.
type fault struct {
	kind, text    string
	delay, length time.Duration
	begin         func(context.Context) (end func() error, err error)
	// touches: something of a store member fails; forgets: what it knows is damaged;
	// dies: a server does.
	touches, forgets, dies bool
}

// lasts draws how long a fault lasts: most for less than a lease lives, some for longer,
// and a few for longer than a command waits for the store.
func (w *world) lasts() time.Duration {
	most := w.o.Longest
	switch w.random.IntN(16) {
	case 0:
		most *= 6
	case 1, 2, 3:
		most *= 2
	}
	return 200*time.Millisecond + time.Duration(w.random.Int64N(int64(most)))
}

// draw draws rounds of one to three faults that come together.
func (w *world) draw(n int) (rounds [][]fault) {
	for n > 0 {
		together := min(n, 1+w.random.IntN(3))
		n -= together
		rounds = append(rounds, w.together(together))
	}
	return rounds
}

// together draws faults of different processes. Where a store member's files are damaged
// nothing else happens to store members: of three one may have forgotten what it knew. One
// server dies at a time, and nothing lasts for so long meanwhile that who connects gives up
// before a balancer could know.
func (w *world) together(n int) (round []fault) {
	processes := w.processes()
	order := w.random.Perm(len(processes))
	touched, forgets, dead := false, false, false // a store member, a server
	for i := range n {
		p := processes[order[i]]
		f := w.fault(p)
		for f.forgets && touched || f.touches && forgets || f.dies && dead {
			f = w.fault(p)
		}
		touched, forgets, dead = touched || f.touches, forgets || f.forgets, dead || f.dies
		f.delay = time.Duration(w.random.Int64N(int64(w.o.Longest) * 3 / 8))
		f.length = w.lasts()
		round = append(round, f)
	}
	for i := range round {
		if dead {
			round[i].length = min(round[i].length, 2*w.o.Longest)
		}
		if round[i].dies { // a balancer that tells old answers from new ones needs a moment
			round[i].length = max(round[i].length, time.Second)
		}
	}
	return round
}

// fault draws one, of p where it is a process's.
func (w *world) fault(p lab.Process) (f fault) {
	isController := slices.Contains(w.lab.ControllerProcesses(), p)
	switch w.random.IntN(15) {
	case 0, 1:
		f = fault{kind: "kill", text: p.Name + " is killed", begin: func(context.Context) (func() error, error) { return w.kill(p) }}
	case 2, 3:
		f = fault{kind: "stop", text: p.Name + " stands still", begin: func(context.Context) (func() error, error) { return w.stop(p) }}
	case 4, 5:
		f = w.fullDisk(p)
	case 6, 7:
		f = w.damage(p)
		f.forgets = isController
	case 8:
		return w.leaderDies()
	case 9:
		return w.operatorDies()
	case 10:
		return w.clockSteps()
	case 11:
		return w.serviceDies()
	case 12:
		return w.losesPower()
	default:
		return w.parted()
	}
	f.touches = isController
	return f
}

// stop stops a process, as a machine that swaps would be.
func (w *world) stop(p lab.Process) (goOn func() error, err error) {
	w.touch(p, shaken)
	signal := func(s syscall.Signal) error {
		w.starting.Lock() // one that ended by itself is not started meanwhile
		defer w.starting.Unlock()
		return w.signal(p, s)
	}
	return func() error { return signal(syscall.SIGCONT) }, signal(syscall.SIGSTOP)
}

// clockSteps steps the wall clock of a store's machine, and back.
func (w *world) clockSteps() fault {
	all := w.lab.ControllerProcesses()
	p := all[w.random.IntN(len(all))]
	by := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour}[w.random.IntN(5)]
	if w.random.IntN(2) == 0 {
		by = -by
	}
	step := func(by time.Duration) error {
		w.starting.Lock()
		defer w.starting.Unlock()
		w.touch(p, shaken)
		if err := w.lab.StepClock(p, by); err != nil && w.lab.Runs(p) { // else it is started with the machine's
			return err
		}
		return nil
	}
	return fault{kind: "clock", text: fmt.Sprintf("%s's wall clock is stepped by %v", p.Name, by), touches: true,
		begin: func(context.Context) (func() error, error) { return func() error { return step(0) }, step(by) }}
}

// leaderDies kills the controller that leads, while a change is made.
func (w *world) leaderDies() fault {
	into := time.Duration(w.random.IntN(1000)) * time.Millisecond
	random := sim.Stream(w.random.Uint64(), "chaos/leader")
	return fault{kind: "leader", text: fmt.Sprintf("the controller that leads is killed, %v into a change", into), touches: true,
		begin: func(ctx context.Context) (func() error, error) {
			var change sync.WaitGroup
			change.Go(func() { w.change(ctx, w.machine(random), 0, w.verb(random)...) })
			if err := sleep(ctx, into); err != nil {
				return nil, err
			}
			start, err := w.kill(w.leader())
			return func() error { err := start(); change.Wait(); return err }, err
		}}
}

// operatorDies kills a command in the middle of a change.
func (w *world) operatorDies() fault {
	into := 50*time.Millisecond + time.Duration(w.random.IntN(1000))*time.Millisecond
	random := sim.Stream(w.random.Uint64(), "chaos/operator")
	return fault{kind: "operator", text: fmt.Sprintf("an operator's command is killed, %v into a change", into),
		begin: func(ctx context.Context) (func() error, error) {
			w.change(ctx, w.machine(random), into, w.verb(random)...)
			return func() error { return nil }, nil
		}}
}

// round has faults come together, and waits until all is well.
func (w *world) round(ctx context.Context, faults []fault, r *Result) error {
	var work sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, f := range faults {
		work.Go(func() {
			done, err := w.carryOut(ctx, f)
			mu.Lock()
			defer mu.Unlock()
			r.Faults = append(r.Faults, done)
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s: %w", f.text, err)
			}
		})
	}
	work.Wait()
	if failed != nil {
		return failed
	}
	if r.ByKind == nil {
		r.ByKind = map[string]int{}
	}
	text := ""
	for _, f := range faults {
		r.ByKind[f.kind]++
		text += f.text + "; "
	}
	took := w.settle(ctx, text[:len(text)-2], w.ill)
	r.Healed = max(r.Healed, took.Seconds())
	w.calm()
	w.o.Watch(fmt.Sprintf("%6.1f s: %swell after %.1f s", w.now().Seconds(), text, took.Seconds()))
	return ctx.Err()
}

func (w *world) carryOut(ctx context.Context, f fault) (Fault, error) {
	done := Fault{Kind: f.kind, Text: f.text}
	if err := sleep(ctx, f.delay); err != nil {
		return done, err
	}
	begin := w.now()
	end, err := f.begin(ctx)
	done.At = begin.Seconds()
	if err != nil {
		return done, err
	}
	err = sleep(ctx, f.length)
	if ended := end(); err == nil {
		err = ended
	}
	done.Seconds = (w.now() - begin).Seconds()
	return done, err
}
