package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/sim"
)

// Report is what the page shows: scenarios with what came of them.
type Report struct {
	// Command made it, by the program of this Version.
	Command string `json:"command"`
	Version string `json:"version"`
	sim.Machine
	Entries []Entry `json:"scenarios"`
}

// Entry is one scenario's: a result or an error.
type Entry struct {
	Name string `json:"name"`
	// Short, Long and Command are for readers: see sim.Kind.
	Short   string `json:"short"`
	Long    string `json:"-"`
	Command string `json:"command"`
	// Error says why it failed; empty: it did not.
	Error  string      `json:"error,omitempty"`
	Result *sim.Result `json:"result,omitempty"`
}

// Agree is how many of an entry's statements agree.
func (e Entry) Agree() (n int) {
	for _, c := range e.Checks() {
		if c.Holds {
			n++
		}
	}
	return n
}

// Checks are an entry's statements; none where it failed.
func (e Entry) Checks() []sim.Check {
	if e.Result == nil {
		return nil
	}
	return e.Result.Checks
}

// Differing are an entry's statements that do not hold.
func (e Entry) Differing() []sim.Check {
	return slices.DeleteFunc(slices.Clone(e.Checks()), func(c sim.Check) bool { return c.Holds })
}

// Differs is whether any statement of any scenario does not hold.
func (r *Report) Differs() bool {
	return slices.ContainsFunc(r.Entries, func(e Entry) bool { return len(e.Differing()) > 0 })
}

// The files of a report. figuresDir holds SCENARIO-FIGURE.svg.
const (
	pageFile     = "index.html"
	markdownFile = "README.md"
	resultsFile  = "results.json"
	figuresDir   = "figures"
)

// Place is where a report will be written. Nothing is at its path before
// Write, or the older report still is.
type Place struct {
	dir  string // the report's
	temp string // beside it
}

// NewPlace makes sure, before anything is run, that a report can be written to
// a directory: that what holds it is there and may be written to, and that
// nothing in it would be lost but an older report. Call Discard in any case.
func NewPlace(dir string) (*Place, error) {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s: there is no directory %s; make it first", dir, parent)
	}
	if err := checkOlder(dir); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".unfinished-")
	if err != nil {
		return nil, fmt.Errorf("%s: cannot write to %s: %w", dir, parent, errors.Unwrap(err))
	}
	return &Place{dir, temp}, nil
}

// checkOlder refuses a directory with anything in it that no report has.
func checkOlder(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: no directory that a report could take the place of: %w", dir, errors.Unwrap(err))
	}
	known := []string{pageFile, markdownFile, resultsFile, figuresDir}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			return fmt.Errorf("%s: holds %s, which is of no report and would be lost; name another directory", dir, e.Name())
		}
	}
	return nil
}

// Discard removes what is unfinished.
func (p *Place) Discard() error { return os.RemoveAll(p.temp) }

// Write writes a report beside its place, then puts it there at once; an older
// one is whole until then.
func (p *Place) Write(r *Report) error {
	files, err := r.files()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(p.temp, figuresDir), 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(p.temp, name), data, 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	if err := os.Chmod(p.temp, 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return p.swap()
}

// swap makes the finished directory the report. It takes the older one's place
// in one step, so that there is one at any time; where the file system cannot,
// in two.
func (p *Place) swap() error {
	err := os.Rename(p.temp, p.dir) // there is none, or an empty one
	if err == nil {
		return nil
	}
	if _, gone := os.Stat(p.dir); gone != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if unix.Renameat2(unix.AT_FDCWD, p.temp, unix.AT_FDCWD, p.dir, unix.RENAME_EXCHANGE) == nil {
		return p.Discard() // which is the older one now
	}
	older := p.temp + ".older"
	if err := os.Rename(p.dir, older); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.Rename(p.temp, p.dir); err != nil {
		return errors.Join(fmt.Errorf("write report: %w", err), os.Rename(older, p.dir))
	}
	return os.RemoveAll(older)
}

// files are all of a report's by name.
func (r *Report) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write report: %w", err)
	}
	files[resultsFile] = append(data, '\n')
	for _, e := range r.Entries {
		if e.Result == nil {
			continue
		}
		for i, f := range e.Result.Figures {
			var b bytes.Buffer
			if err := PlotFigure(&b, e.Result, i); err != nil {
				return nil, err
			}
			name := figureFile(e.Name, f)
			if files[name] != nil {
				return nil, fmt.Errorf("write report: scenario %s has two figures %q", e.Name, f.Name)
			}
			files[name] = b.Bytes()
		}
	}
	if files[markdownFile], err = r.markdown(); err != nil {
		return nil, err
	}
	files[pageFile], err = r.page(files)
	return files, err
}

func figureFile(scenario string, f sim.Figure) string {
	return figuresDir + "/" + scenario + "-" + strings.ReplaceAll(f.Name, "/", "-") + ".svg"
}
