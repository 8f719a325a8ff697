package sim

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// Whatever the number of cores, every job runs once and progress grows to 1.
func TestEach(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 7} {
		var told []float64
		c := Common{Seed: 5, Seeds: 3, Workers: workers, Progress: func(s float64) { told = append(told, s) }}
		squares := make([]int, 50)
		err := c.Each(t.Context(), len(squares), func(ctx context.Context, i int) error {
			Done(ctx, 0.5)
			squares[i] += i * i
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range squares {
			if s != i*i {
				t.Errorf("%d workers: job %d made %d", workers, i, s)
			}
		}
		if len(told) != 100 || !slices.IsSorted(told) || told[99] != 1 {
			t.Errorf("%d workers: told %v", workers, told)
		}
	}
	if got := (Common{Seed: 5, Seeds: 3}).SeedList(); !slices.Equal(got, []uint64{5, 6, 7}) {
		t.Errorf("seeds %v", got)
	}
}

func TestEachEndsWithTheFirstError(t *testing.T) {
	broken, ran := errors.New("broken"), 0
	c := Common{Workers: 1}
	err := c.Each(t.Context(), 100, func(_ context.Context, i int) error {
		ran++
		if i == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || ran != 4 {
		t.Errorf("error %v after %d jobs", err, ran)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Each(ctx, 3, func(context.Context, int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
