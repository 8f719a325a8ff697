package scenarios

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/show"
)

// Every scenario is told apart, explains itself and may be run as it is.
func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range All() {
		if seen[k.Name] {
			t.Errorf("%s is there twice", k.Name)
		}
		seen[k.Name] = true
		if first, _ := utf8.DecodeRuneInString(k.Short); !unicode.IsUpper(first) {
			t.Errorf("%s: %q does not begin as a sentence", k.Name, k.Short)
		}
		if k.Name == "" || k.Short == "" || k.Long == "" || k.Seeds < 1 || !strings.Contains(k.Example, "fairlead sim "+k.Name) {
			t.Errorf("%q lacks a text or seeds", k.Name)
		}
		s := k.New()
		if err := s.Check(); err != nil {
			t.Errorf("%s: its defaults are wrong: %v", k.Name, err)
		}
		var flags sim.Flags
		s.Flags(&flags)
		for _, f := range flags {
			if slices.Contains([]string{"seed", "seeds", "workers", "output", "plot"}, f.Name) {
				t.Errorf("%s: --%s is every scenario's", k.Name, f.Name)
			}
			if f.Help == "" {
				t.Errorf("%s: --%s has no help", k.Name, f.Name)
			}
		}
	}
}

// fake is a scenario that does what a test wants.
type fake struct {
	check error
	run   func(ctx context.Context, c sim.Common) (*sim.Result, error)
}

func (f *fake) Flags(*sim.Flags) {}
func (f *fake) Check() error     { return f.check }
func (f *fake) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	return f.run(ctx, c)
}

func kind(name string, f *fake) sim.Kind {
	return sim.Kind{Name: name, Short: "Does " + name, Seeds: 4, New: func() sim.Scenario { return f }}
}

// What fails is an entry like any other, and the rest is run.
func TestRun(t *testing.T) {
	var seeds []int
	works := &fake{run: func(_ context.Context, c sim.Common) (*sim.Result, error) {
		seeds = append(seeds, c.Seeds)
		c.Progress(0.5)
		return &sim.Result{Seeds: c.SeedList()}, nil
	}}
	fails := &fake{run: func(context.Context, sim.Common) (*sim.Result, error) {
		return nil, sim.NothingToSee("fails", "no change", "more --seconds")
	}}
	undefined := &fake{run: func(_ context.Context, c sim.Common) (*sim.Result, error) {
		points := []sim.Point{{Y: sim.Value(math.NaN())}}
		return &sim.Result{Figures: []sim.Figure{{Series: []sim.Series{{Points: points}}}}}, nil
	}}
	wrong := &fake{check: errors.New("--servers 0: must be 1 or more")}
	var begun, ended []string
	o := Options{
		Seed: 3,
		Begin: func(i, n int, k sim.Kind) func(float64) {
			begun = append(begun, k.Name)
			return func(share float64) {
				if share != 0.5 || n != 5 {
					t.Errorf("progress %g of %d", share, n)
				}
			}
		},
		End: func(e show.Entry) { ended = append(ended, e.Name) },
	}
	kinds := []sim.Kind{kind("first", works), kind("fails", fails), kind("wrong", wrong), kind("undefined", undefined), kind("last", works)}
	entries, err := Run(t.Context(), kinds, o)
	if err != nil || len(entries) != 5 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	names := []string{"first", "fails", "wrong", "undefined", "last"}
	if !slices.Equal(begun, names) || !slices.Equal(ended, names) {
		t.Errorf("begun %v, ended %v", begun, ended)
	}
	for i, want := range []string{"", "nothing could have shown a difference", "--servers 0", "cannot be written", ""} {
		e := entries[i]
		if !strings.Contains(e.Error, want) || (want == "") != (e.Result != nil) {
			t.Errorf("%s: result %v, error %q", e.Name, e.Result, e.Error)
		}
	}
	if got := entries[4].Result.Seeds; !slices.Equal(got, []uint64{3, 4, 5, 6}) || entries[4].Command != "fairlead sim last --seed 3 --seeds 4" {
		t.Errorf("seeds %v by %q", got, entries[4].Command)
	}
	o.Seeds, o.Begin = 2, nil
	works.run = func(_ context.Context, c sim.Common) (*sim.Result, error) {
		return &sim.Result{Seeds: c.SeedList()}, nil
	}
	entries, err = Run(t.Context(), kinds[:1], o)
	if err != nil || len(entries[0].Result.Seeds) != 2 {
		t.Errorf("two seeds asked for: %+v, %v", entries, err)
	}
}

// An interruption ends all, and there are no entries that could be written.
func TestRunInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ok := &fake{run: func(context.Context, sim.Common) (*sim.Result, error) { return &sim.Result{}, nil }}
	interrupted := &fake{run: func(ctx context.Context, _ sim.Common) (*sim.Result, error) {
		stop()
		return nil, ctx.Err()
	}}
	entries, err := Run(ctx, []sim.Kind{kind("a", ok), kind("b", interrupted), kind("c", ok)}, Options{})
	if !errors.Is(err, context.Canceled) || entries != nil {
		t.Errorf("%v, %v", entries, err)
	}
}
