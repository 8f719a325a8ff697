package show_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sim/scenarios"
	"github.com/fairlead/fairlead/sim/show"
)

// The report of the documentation, read and written again, is the same bytes:
// what is kept while other scenarios are renewed does not change.
func TestReadReport(t *testing.T) {
	const results = "../../docs/results"
	r, err := show.ReadReport(results)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Entries {
		for _, k := range scenarios.All() {
			if k.Name == r.Entries[i].Name {
				r.Entries[i].Long = k.Long
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "report")
	place, err := show.NewPlace(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Discard()
	if err := place.Write(r); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(results, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, results)
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes, %v", name, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
