// Package soak is where tests get their seeds. Usually each test has one of its
// own, always the same, so that what passed once passes everywhere. In a soak
// (make soak) every run draws new ones, and tests may do more.
package soak

import (
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// The environment of a soak. A failure says how to repeat it with them.
const (
	onName   = "FAIRLEAD_SOAK" // 1: new seeds, long sweeps
	seedName = "FAIRLEAD_SEED" // this seed for all tests
)

// On says whether this is a soak. A test too long for every run does less
// otherwise:
//
//	keys := 100
//	if soak.On() {
//		keys = 10_000
//	}
func On() bool { return os.Getenv(onName) == "1" }

// tests are the seeds of the tests that run now, and how often each drew.
var (
	mu    sync.Mutex
	tests = map[testing.TB]*drawn{}
)

type drawn struct{ first, times uint64 }

// Seed is what a test draws everything from: other seeds at each call, which
// follow from the first. A failing test prints that.
func Seed(t testing.TB) uint64 {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	d := tests[t]
	if d == nil {
		d = &drawn{first: first(t)}
		tests[t] = d
		t.Cleanup(func() {
			mu.Lock()
			defer mu.Unlock()
			delete(tests, t)
		})
		t.Logf("seed %d: repeat with %s", d.first, again(d.first, t.Name()))
	}
	seed := d.first + d.times*0x9e3779b97f4a7c15
	d.times++
	return seed
}

func first(t testing.TB) uint64 {
	t.Helper()
	if said := os.Getenv(seedName); said != "" {
		seed, err := strconv.ParseUint(said, 10, 64)
		if err != nil {
			t.Fatalf("%s=%s is not a seed: give a whole number of 64 bits", seedName, said)
		}
		return seed
	}
	if On() {
		return rand.Uint64()
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return h.Sum64()
}

// Rand is a source of one of the test's seeds.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Seeds are for tests that go through so many random worlds: from 1 on, or in a
// soak ten times as many from a new one on. A test that fails says which.
func Seeds(t testing.TB, worlds int) iter.Seq[uint64] {
	t.Helper()
	from := uint64(1)
	if On() || os.Getenv(seedName) != "" {
		from = Seed(t)
	}
	if On() {
		worlds *= 10
	}
	return func(yield func(uint64) bool) {
		for i := range uint64(worlds) {
			if !yield(from + i) {
				return
			}
		}
	}
}

// again is the command that repeats a test.
func again(seed uint64, name string) string {
	on := ""
	if On() {
		on = onName + "=1 "
	}
	return fmt.Sprintf("%s%s=%d go test -run '^%s$'", on, seedName, seed, name)
}
