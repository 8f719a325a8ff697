package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is where a report will be written. Nothing is at its path before
// Write, or the older report still is.
type Place struct {
	dir  string // the report's
	temp string // beside it
}

// NewPlace makes sure, before anything is run, that a report can be written to
// a directory: that what holds it is there and may be written to, and that
// nothing in it would be lost but an older report. A link is followed. Call
// Discard in any case.
func NewPlace(dir string) (*Place, error) {
	real, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	if err := checkOlder(real); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	parent := filepath.Dir(real)
	temp, err := os.MkdirTemp(parent, "."+filepath.Base(real)+".unfinished-")
	if err != nil {
		return nil, fmt.Errorf("%s: cannot write to %s: %w", dir, parent, errors.Unwrap(err))
	}
	return &Place{real, temp}, nil
}

// resolve is the path of the directory itself, which links and "." are not.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	parent := filepath.Dir(abs)
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s: there is no directory %s; make it first", dir, filepath.Dir(filepath.Clean(dir)))
	}
	if _, err := os.Lstat(abs); errors.Is(err, fs.ErrNotExist) {
		return abs, nil
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", fmt.Errorf("%s: a link that leads nowhere; remove it, or make the directory that it names", dir)
	}
	var own, above unix.Stat_t
	if err := errors.Join(unix.Stat(real, &own), unix.Stat(filepath.Dir(real), &above)); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	if own.Dev != above.Dev || own.Ino == above.Ino {
		return "", fmt.Errorf("%s: a file system begins there, which nothing can take the place of; name a directory in it", dir)
	}
	return real, nil
}

// checkOlder refuses a directory with anything in it that no report has, by
// name or by content.
func checkOlder(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("no directory that a report could take the place of: %w", errors.Unwrap(err))
	}
	figures, err := os.ReadDir(filepath.Join(dir, figuresDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("holds %s, which is no directory of a report's and would be lost; name another directory", figuresDir)
	}
	var foreign []string
	for _, e := range entries {
		if !slices.Contains([]string{pageFile, markdownFile, resultsFile, figuresDir}, e.Name()) {
			foreign = append(foreign, e.Name())
		}
	}
	older, err := readOlder(dir)
	for _, e := range figures {
		if err == nil && !older.has(e.Name()) {
			foreign = append(foreign, filepath.Join(figuresDir, e.Name()))
		}
	}
	if len(foreign) > 0 {
		return fmt.Errorf("holds %s, which is of no report and would be lost; name another directory", foreign[0])
	}
	if err != nil {
		return fmt.Errorf("holds files that would be lost, but no %s of an older report's; name another directory", resultsFile)
	}
	return nil
}

// older is what a report's data say of its files.
type older struct {
	Command   string
	Scenarios []struct {
		Name   string
		Result *struct{ Figures []struct{ Name string } }
	}
}

func readOlder(dir string) (o older, err error) {
	data, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err == nil && !strings.HasPrefix(o.Command, "fairlead sim all ") {
		err = errors.New("not of a report")
	}
	return o, err
}

// ReadReport reads the report in a directory. Its entries lack what readers are
// told of the scenarios (Entry.Long), which is no part of its data.
func ReadReport(dir string) (*Report, error) {
	data, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil {
		return nil, fmt.Errorf("%s: holds no %s of a report: %w", dir, resultsFile, errors.Unwrap(err))
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: its %s is not of a report: %w", dir, resultsFile, err)
	}
	return r, nil
}

// has is whether a figure's file is the report's.
func (o older) has(file string) bool {
	for _, s := range o.Scenarios {
		if s.Result == nil {
			continue
		}
		for _, f := range s.Result.Figures {
			if figureFile(s.Name, f.Name) == figuresDir+"/"+file {
				return true
			}
		}
	}
	return false
}

// Discard removes what is unfinished.
func (p *Place) Discard() error {
	if p.temp == "" {
		return nil
	}
	return os.RemoveAll(p.temp)
}

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
// in two. What was put there while scenarios ran is not lost: the new report
// stays beside it then.
func (p *Place) swap() error {
	if err := checkOlder(p.dir); err != nil {
		kept := p.temp
		p.temp = "" // Discard leaves it
		return fmt.Errorf("write report: %s: now %w; the report is in %s", p.dir, err, kept)
	}
	err := os.Rename(p.temp, p.dir) // there is none, or an empty one
	if err == nil {
		return nil
	}
	if _, gone := os.Stat(p.dir); gone != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if unix.Renameat2(unix.AT_FDCWD, p.temp, unix.AT_FDCWD, p.dir, unix.RENAME_EXCHANGE) == nil {
		err := p.Discard() // which is the older one now
		older := p.temp
		p.temp = ""
		if err != nil {
			return fmt.Errorf("the report is written; the older one could not be removed and is in %s: %w", older, err)
		}
		return nil
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
