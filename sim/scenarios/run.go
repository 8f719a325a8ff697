package scenarios

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/show"
)

// Options of a run of several scenarios.
type Options struct {
	Seed uint64
	// Seeds of each scenario; 0: as many as each has by default.
	Seeds   int
	Workers int
	// Begin is told of each scenario before it is run, and returns what its
	// progress goes to. May be nil.
	Begin func(i, n int, k sim.Kind) (progress func(share float64))
	// End is told what came of it. May be nil.
	End func(show.Entry)
}

// Run carries scenarios out one after the other, with their default options.
// One that fails is an entry with its error; only an interruption ends the run.
func Run(ctx context.Context, kinds []sim.Kind, o Options) ([]show.Entry, error) {
	var entries []show.Entry
	for i, k := range kinds {
		c := sim.Common{Seed: o.Seed, Seeds: k.Seeds, Workers: o.Workers}
		if o.Seeds > 0 {
			c.Seeds = o.Seeds
		}
		if o.Begin != nil {
			c.Progress = o.Begin(i, len(kinds), k)
		}
		e := show.Entry{
			Name: k.Name, Short: k.Short, Long: k.Long,
			Command: fmt.Sprintf("fairlead sim %s --seed %d --seeds %d", k.Name, c.Seed, c.Seeds),
		}
		r, err := run(ctx, k.New(), c)
		if stopped := ctx.Err(); stopped != nil {
			return nil, stopped
		}
		if err != nil {
			e.Error = err.Error()
		} else {
			e.Result = r
		}
		entries = append(entries, e)
		if o.End != nil {
			o.End(e)
		}
	}
	return entries, nil
}

func run(ctx context.Context, s sim.Scenario, c sim.Common) (*sim.Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	r, err := s.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	// A figure that is no number must not cost the report of all the others.
	if _, err := json.Marshal(r); err != nil {
		return nil, fmt.Errorf("its result cannot be written: %w", err)
	}
	return r, nil
}
