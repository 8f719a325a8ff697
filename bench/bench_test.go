package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// TestEveryCase runs each case once over a few packets. A case checks by
// itself that its packets went the way it is named after.
func TestEveryCase(t *testing.T) {
	suites, err := openSuites(nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range suites {
		t.Cleanup(s.close)
		if err := s.refresh(); err != nil {
			t.Fatal(err)
		}
		for _, c := range slices.Concat(s.harnesses, s.cases) {
			names = append(names, c.name)
			for part := range 2 {
				if ns, err := c.run(part, 64*packetsPerRun); err != nil || ns <= 0 {
					t.Errorf("%s: %.1f ns, %v", c.name, ns, err)
				}
			}
		}
	}
	// Names that scripts rely on.
	for _, want := range strings.Fields(`floor floor-novip novip cheetah-known-1 cheetah-known-1m
		cheetah-known-v6 tier1-known cheetah-known-gue cheetah-known-gue-steered cheetah-new-rr cheetah-new-wrr cheetah-new-p2c
		cheetah-new-least-conn cheetah-new-hash cheetah-bad-cookie stateless-known-1m
		jet-known-1m jet-anchor-known-1m jet-tracked jet-new full-ct-known-1 full-ct-known-1m full-ct-new
		stateful-known-1 stateful-known-1m stateful-known-2cpu stateful-new stateful-close floor-lru-new
		beamer-known beamer-known-v6 beamer-known-gue beamer-known-moved beamer-new beamer-known-6m beamer-known-6m-moved
		host-in host-out host-in-ts1 host-out-ts1 host-in-settled host-in-owned host-forward host-forward-first
		router-hash router-cflb router-cflb-steered router-rc5 router-skip32 router-hash-v6 router-cflb-v6`) {
		if !slices.Contains(names, want) {
			t.Errorf("no case %q", want)
		}
	}
}

// Bounds are of cases that there are.
func TestBounds(t *testing.T) {
	names := Names()
	for name := range bounds {
		if !slices.Contains(names, name) {
			t.Errorf("a bound for %s, which is no case", name)
		}
	}
}

func TestRunReports(t *testing.T) {
	r, err := Run(context.Background(), Options{Rounds: MinRounds, Packets: parts * packetsPerRun * 64, Only: []string{"novip"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 2 || r.Cases[0].Name != "floor" || r.Cases[1].Name != "novip" {
		t.Fatalf("cases %+v", r.Cases)
	}
	if c := r.Cases[0]; c.Ratio != 1 || c.Min > c.NS || c.NS > c.Max {
		t.Errorf("the floor is %+v", c)
	}
	if r.Kernel == "" || r.CPU == "" || r.Rounds != MinRounds || len(r.HarnessNS) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestRefused(t *testing.T) {
	for _, o := range []Options{{Rounds: 9}, {Rounds: MinRounds, Only: []string{"cheetah-knwon-1"}}} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%+v was not refused", o)
		} else if len(o.Only) > 0 && !strings.Contains(err.Error(), "there are floor, floor-1m, ") {
			t.Errorf("does not say which cases there are: %v", err)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{5, 1, 100}, 5}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.of, got, c.want)
		}
	}
}
