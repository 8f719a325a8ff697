package show_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/scenarios"
	"github.com/fairlead/fairlead/sim/show"
)

// A report that is read and written again is the same bytes: what is kept while
// other scenarios are renewed does not change.
func TestReadReport(t *testing.T) {
	kinds := slices.DeleteFunc(scenarios.All(), func(k sim.Kind) bool { return k.Name != "proof" && k.Name != "path-diversity" })
	entries, err := scenarios.Run(t.Context(), kinds, scenarios.Options{Seed: 1, Seeds: 1})
	if err != nil {
		t.Fatal(err)
	}
	first, again := filepath.Join(t.TempDir(), "report"), filepath.Join(t.TempDir(), "report")
	write := func(dir string, r *show.Report) {
		place, err := show.NewPlace(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(place.Write(r), place.Discard()); err != nil {
			t.Fatal(err)
		}
	}
	write(first, &show.Report{Command: "fairlead sim all", Version: "1", Machine: sim.ThisMachine(), Entries: entries})
	r, err := show.ReadReport(first)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Entries { // as those that keep entries do
		r.Entries[i].Long = entries[i].Long
	}
	write(again, r)
	of, err := filepath.Glob(first + "/*/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(of) < 4 { // figures, and beside them:
		t.Errorf("figures %v", of)
	}
	for _, path := range append(of, first+"/README.md", first+"/index.html", first+"/results.json") {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(path, first)
		if got, err := os.ReadFile(filepath.Join(again, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes, %v", name, err)
		}
	}
}

// The page of the documentation is small, as every clone carries all its
// versions: figures that it shows, and no data.
func TestResultsAreSmall(t *testing.T) {
	const results, most = "../../docs/results", 1_000_000
	page, err := os.ReadFile(results + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	err = filepath.WalkDir(results, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		size += len(data)
		name := strings.TrimPrefix(path, results+"/")
		if name != "README.md" && !bytes.Contains(page, []byte("("+name+")")) {
			t.Errorf("%s: the page does not show it; `make results` copies what belongs here", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > most {
		t.Errorf("docs/results has %d bytes, want at most %d", size, most)
	}
}

func TestReadNoReport(t *testing.T) {
	dir := t.TempDir()
	if _, err := show.ReadReport(dir); err == nil || !strings.Contains(err.Error(), "holds no results.json") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := show.ReadReport(dir); err == nil || !strings.Contains(err.Error(), "is not of a report") {
		t.Errorf("%v", err)
	}
}
