package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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
			name := figureFile(e.Name, f.Name)
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

func figureFile(scenario, figure string) string {
	return figuresDir + "/" + scenario + "-" + strings.ReplaceAll(figure, "/", "-") + ".svg"
}
