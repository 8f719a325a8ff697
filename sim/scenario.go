package sim

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Scenario is one experiment with its options at their defaults.
type Scenario interface {
	// Flags adds its own options. --seed, --seeds, --output and --plot are not
	// among them: every scenario has those.
	Flags(f *Flags)
	// Check says what is wrong with the options: the flag, its value and what
	// would be right.
	Check() error
	// Run carries it out for all of c's seeds. Call Check before.
	Run(ctx context.Context, c Common) (*Result, error)
}

// Flags are options as users give them, each at its default.
type Flags []*Flag

// Flag is an option's name on the command line, its help, and where its value
// goes: To points to an int, float64, bool, string, time.Duration, a list of
// these, or what has Set(string) error, String and Type.
type Flag struct {
	Name, Help string
	To         any
	// Instead are other flags whose say this one takes over, so that none of
	// them may be given with it.
	Instead []string
}

// Add adds a flag.
func (f *Flags) Add(name string, to any, help string) *Flag {
	flag := &Flag{Name: name, To: to, Help: help}
	*f = append(*f, flag)
	return flag
}

// Kind is a scenario's entry in the list of all.
type Kind struct {
	Name string
	// Short is one line, Long the help's text, Example command lines.
	Short, Long, Example string
	// Seeds is how many seeds are run by default.
	Seeds int
	New   func() Scenario
}

// Common is what every scenario is run with.
type Common struct {
	// Seed is the first of Seeds seeds, which are consecutive.
	Seed  uint64
	Seeds int
	// Workers is how many cores to use; 0: all. Results do not depend on it.
	Workers int
	// Progress is told what share of all is done, from any goroutine but never
	// from two at once. May be nil.
	Progress func(share float64)
}

// SeedList are the seeds.
func (c Common) SeedList() []uint64 {
	seeds := make([]uint64, c.Seeds)
	for i := range seeds {
		seeds[i] = c.Seed + uint64(i)
	}
	return seeds
}

// Each calls job for 0 to n-1 on as many cores as c has, and reports progress.
// Jobs write their results to places of their own, so that their order is of
// no consequence. The first error ends it, and is returned once all jobs that
// run have ended. A job that takes long may call Done with its context.
func (c Common) Each(ctx context.Context, n int, job func(ctx context.Context, i int) error) error {
	g, within := errgroup.WithContext(ctx)
	workers := c.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	g.SetLimit(workers)
	all := shares{of: make([]float64, n), tell: c.Progress}
	for i := range n {
		g.Go(func() error {
			if err := within.Err(); err != nil {
				return err
			}
			done := func(share float64) { all.set(i, share) }
			if err := job(context.WithValue(within, doneKey{}, done), i); err != nil {
				return err
			}
			done(1)
			return nil
		})
	}
	return g.Wait()
}

// Done says what share of a job of Each is done, from 0 to 1.
func Done(ctx context.Context, share float64) {
	if done, ok := ctx.Value(doneKey{}).(func(share float64)); ok {
		done(share)
	}
}

type doneKey struct{}

// shares of jobs that are done, and whom to tell.
type shares struct {
	mu   sync.Mutex
	of   []float64
	tell func(share float64)
}

func (s *shares) set(i int, share float64) {
	if s.tell == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[i] = share
	sum := 0.0
	for _, x := range s.of {
		sum += x
	}
	s.tell(sum / float64(len(s.of)))
}
