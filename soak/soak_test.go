package soak

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recorder is a test that keeps what it was told.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Logf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func TestSeed(t *testing.T) {
	draw := func() (uint64, string) {
		r := &recorder{TB: t}
		one, said := Seed(r), r.said
		if Seed(r) == one || r.said != said {
			t.Error("a test draws the same seed again, or says two")
		}
		return one, said
	}
	t.Setenv(onName, "")
	t.Setenv(seedName, "")
	one, said := draw()
	if two, _ := draw(); one != two {
		t.Errorf("seeds %d and %d of one test, without a soak", one, two)
	}
	if want := fmt.Sprintf("repeat with FAIRLEAD_SEED=%d go test -run '^TestSeed$'", one); !strings.Contains(said, want) {
		t.Errorf("it says %q, not %q", said, want)
	}
	t.Setenv(onName, "1")
	new1, said := draw()
	if new2, _ := draw(); new1 == one || new1 == new2 {
		t.Errorf("a soak draws %d and %d after %d", new1, new2, one)
	}
	if want := fmt.Sprintf("repeat with FAIRLEAD_SOAK=1 FAIRLEAD_SEED=%d go test", new1); !strings.Contains(said, want) {
		t.Errorf("it says %q, not %q", said, want)
	}
	t.Setenv(seedName, "18446744073709551615")
	if got, _ := draw(); got != 1<<64-1 {
		t.Errorf("asked for 18446744073709551615: %d", got)
	}
}

func TestSeeds(t *testing.T) {
	t.Setenv(onName, "")
	t.Setenv(seedName, "")
	if got := slices.Collect(Seeds(t, 3)); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("without a soak: %v", got)
	}
	t.Setenv(onName, "1")
	one, two := slices.Collect(Seeds(&recorder{TB: t}, 3)), slices.Collect(Seeds(&recorder{TB: t}, 3))
	if len(one) != 30 || one[29] != one[0]+29 || one[0] == two[0] {
		t.Errorf("in a soak: %v, %v", one, two)
	}
	t.Setenv(seedName, "77")
	if got := slices.Collect(Seeds(&recorder{TB: t}, 3)); got[0] != 77 {
		t.Errorf("again: %v", got)
	}
}

// ownSeed is a test that draws a seed by itself, which nobody can repeat.
var ownSeed = regexp.MustCompile(`(?i)seed\w*\s*:?=\s*(rand\.|uint64\(time)|NewPCG\((rand\.|uint64\(time)`)

func TestSeedsComeFromHere(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			if ownSeed.MatchString(line) {
				t.Errorf("%s:%d: %s: take soak.Seed(t)", path, i+1, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
