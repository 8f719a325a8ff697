package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// seeded is a random source for tests.
func seeded(seed uint64) func(int) int { return rand.New(rand.NewPCG(seed, 0)).IntN }

// NSDI'24, §4: among servers that are not hot the one with the least latency;
// if all are hot, the one with the fewest requests in flight.
func TestProbeRule(t *testing.T) {
	p := NewProbes(64, seeded(1))
	for i := range 10 { // servers 0 to 9; the last is hot, and fastest
		p.Answer(0, i, map[bool]int{true: 50, false: 1}[i == 9], int64(1000-10*i))
	}
	if got := p.Choose(0); got != 8 {
		t.Errorf("server %d, want 8: the fastest of those that are not hot", got)
	}
	a, b := answer{inFlight: 5, latency: 100}, answer{inFlight: 6, latency: 1}
	if !better(a, b, 4) || better(a, b, 6) || !better(a, b, 5) {
		t.Error("rule hot/cold lexicographic")
	}
}

// With fewer than two answers, or with answers that are too old, it is any
// server.
func TestProbeWithoutAnswers(t *testing.T) {
	p := NewProbes(8, seeded(1))
	seen := map[int]bool{}
	for i := range 4 {
		p.Answer(0, i, 0, 1)
	}
	for range 200 {
		seen[p.Choose(ProbeMaxAge+1)] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d of 8 servers chosen", len(seen))
	}
}

// Few servers have answers enough, too: the better one is chosen.
func TestProbeFewServers(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		p := NewProbes(n, seeded(1))
		for now := range int64(50) {
			for _, s := range p.Targets(nil) {
				p.Answer(now, s, 1, int64(1000-s)) // the highest number is the fastest
			}
			if p.Choose(now) == 0 {
				t.Fatalf("%d servers: request %d goes to the slowest", n, now)
			}
		}
	}
}

// The pool is bounded, has one answer a server, and names servers that exist;
// probes go to servers that differ.
func TestProbePool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "servers")
		random := seeded(rapid.Uint64().Draw(t, "seed"))
		p := NewProbes(n, random)
		for now := range int64(200) {
			targets := p.Targets(nil)
			slices.Sort(targets)
			if len(slices.Compact(slices.Clone(targets))) != min(ProbeRate, n) {
				t.Fatalf("probes to %v", targets)
			}
			for _, s := range targets {
				p.Answer(now, s, random(2000), int64(random(100)))
			}
			if s := p.Choose(now); s < 0 || s >= n {
				t.Fatalf("server %d of %d", s, n)
			}
			var held []int
			for _, a := range p.pool {
				held = append(held, a.server)
			}
			slices.Sort(held)
			if len(held) > p.size || len(slices.Compact(slices.Clone(held))) != len(held) {
				t.Fatalf("pool of %v, at most %d", held, p.size)
			}
		}
	})
}

// Equation 1 for 64 servers: 2 / ((1 − 16/64)·3 − 1) = 1.6 uses an answer.
func TestProbeUses(t *testing.T) {
	p := NewProbes(64, seeded(1))
	sum := 0
	const n = 10000
	for range n {
		sum += p.drawUses()
	}
	if got := float64(sum) / n; got < 1.58 || got > 1.62 {
		t.Errorf("%.3f uses, want 1.6", got)
	}
}

func TestLatencies(t *testing.T) {
	var l Latencies
	if l.Estimate(0, 3) != 0 {
		t.Error("knows without having seen any")
	}
	for _, took := range []int64{30, 10, 20} {
		l.Finished(100, 2, took)
	}
	l.Finished(100, 5, 70)
	for inFlight, want := range map[int]int64{0: 20, 2: 20, 3: 20, 4: 70, 5: 70, 900: 70} {
		if got := l.Estimate(100, inFlight); got != want {
			t.Errorf("%d in flight: %d ns, want %d", inFlight, got, want)
		}
	}
	if got := l.Estimate(101+latencyAge, 2); got != 0 {
		t.Errorf("%d from latencies that are too old", got)
	}
}
