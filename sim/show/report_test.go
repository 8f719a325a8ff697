package show

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

func sampleReport() *Report {
	return &Report{
		Command: "fairlead sim all --report DIR", Version: "v0", Machine: sim.Machine{Kernel: "6.6", CPU: "a processor", Go: "go1"},
		Entries: []Entry{
			{Name: "sample", Short: "A sample of <everything>", Long: "Long text.", Command: "fairlead sim sample", Result: sample()},
			{Name: "broken", Short: "What fails", Command: "fairlead sim broken", Error: "nothing could have shown a difference"},
		},
	}
}

// filesOf are all files below a directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func write(t *testing.T, dir string, r *Report) {
	t.Helper()
	p, err := NewPlace(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Write(r), p.Discard()); err != nil {
		t.Fatal(err)
	}
}

func TestReport(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "report")
	write(t, dir, sampleReport())
	files := filesOf(t, dir)
	names := slices.Sorted(maps.Keys(files))
	want := []string{"README.md", "figures/sample-broken.svg", "figures/sample-linear.svg", "figures/sample-log.svg", "figures/sample-variance.svg", "index.html", "results.json"}
	if !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
	page := files[pageFile]
	for _, want := range []string{
		"fairlead sim all --report DIR", "A sample of &lt;everything&gt;", `href="#sample"`, "1 of 2", "seeds 1 to 3",
		`<span class="failed">failed</span>: nothing could have shown`, "about 80 %", "it was made up", "servers</dt><dd>468", "1,234,567 connections",
		`aria-label="Broken &lt;connections&gt; &amp; more"`, "What does not agree", "hash, paper", "80.0000 ±16.0000",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page, "<svg "); n != 4 {
		t.Errorf("the page has %d plots, want 4", n)
	}
	for _, foreign := range []string{"src=", "<link", "url(", "<script", "<?xml"} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q: it is to need nothing else", foreign)
		}
	}
	markdown := files[markdownFile]
	for _, want := range []string{"](figures/sample-linear.svg)", "1 of 2", "**Failed**", `Where \| stands\_for`, "**differs**: cheetah: 0.1 (must be 0): it was made up"} {
		if !strings.Contains(markdown, want) {
			t.Errorf("the Markdown lacks %q", want)
		}
	}

	// Again, in the place of the older one: the same bytes, nothing left over.
	write(t, dir, sampleReport())
	if !maps.Equal(filesOf(t, dir), files) {
		t.Error("the same report has other bytes")
	}
	if left, _ := os.ReadDir(parent); len(left) != 1 {
		t.Errorf("left beside the report: %v", left)
	}
}

// Until a report is whole, the older one stands there as it was.
func TestReportUnfinished(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "report")
	write(t, dir, sampleReport())
	older := filesOf(t, dir)

	p, err := NewPlace(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(filesOf(t, dir), older) {
		t.Error("the older report changed before there was another")
	}
	twice := sampleReport()
	twice.Entries[0].Result.Figures[1].Name = twice.Entries[0].Result.Figures[0].Name
	if err := p.Write(twice); err == nil || !strings.Contains(err.Error(), `two figures "broken"`) {
		t.Errorf("two figures of one name: %v", err)
	}
	if err := p.Discard(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(filesOf(t, dir), older) {
		t.Error("the older report changed though the new one failed")
	}
	if left, _ := os.ReadDir(parent); len(left) != 1 {
		t.Errorf("left beside the report: %v", left)
	}
}

func TestPlace(t *testing.T) {
	parent := t.TempDir()
	file, mine, empty := filepath.Join(parent, "file"), filepath.Join(parent, "mine"), filepath.Join(parent, "empty")
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Mkdir(mine, 0o755), os.Mkdir(empty, 0o755), os.WriteFile(filepath.Join(mine, "thesis.tex"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(parent, "no", "report"): "there is no directory " + filepath.Join(parent, "no"),
		filepath.Join(file, "report"):         "there is no directory",
		file:                                  "no directory",
		mine:                                  "thesis.tex",
	} {
		_, err := NewPlace(dir)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", dir, err, want)
		}
	}
	write(t, empty, sampleReport())
	if files := filesOf(t, empty); files[pageFile] == "" {
		t.Error("no report in the empty directory")
	}
}

// Files of somebody's own are never taken for an older report, whatever their
// names, nor what is put there while scenarios run.
func TestOlder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "report")
	refused := func(why string) {
		t.Helper()
		if _, err := NewPlace(dir); err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, why)
		}
	}
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	put("README.md", "mine")
	refused("no results.json of an older report")
	put("results.json", `{"command": "make"}`)
	refused("no results.json of an older report")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}

	write(t, dir, sampleReport())
	put("figures/mine.svg", "mine")
	refused("figures/mine.svg, which is of no report")
	if err := os.Remove(filepath.Join(dir, "figures/mine.svg")); err != nil {
		t.Fatal(err)
	}

	p, err := NewPlace(dir)
	if err != nil {
		t.Fatal(err)
	}
	put("notes.txt", "mine")
	err = p.Write(sampleReport())
	if err == nil || !strings.Contains(err.Error(), "notes.txt") || !strings.Contains(err.Error(), "the report is in ") {
		t.Errorf("a file put there meanwhile: %v", err)
	}
	_, kept, _ := strings.Cut(err.Error(), "the report is in ")
	if err := p.Discard(); err != nil || filesOf(t, kept)[pageFile] == "" || filesOf(t, dir)["notes.txt"] != "mine" {
		t.Errorf("%v; the new report is lost, or the file is", err)
	}
}

// A link stays one, and what it leads to is replaced; "." is a directory.
func TestLinkedPlace(t *testing.T) {
	parent := t.TempDir()
	dir, link, nowhere := filepath.Join(parent, "report"), filepath.Join(parent, "link"), filepath.Join(parent, "nowhere")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink("report", link), os.Symlink("none", nowhere)); err != nil {
		t.Fatal(err)
	}
	write(t, link, sampleReport())
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 || filesOf(t, dir)[pageFile] == "" {
		t.Errorf("the link is replaced, not what it leads to: %v, %v", info, err)
	}
	if _, err := NewPlace(nowhere); err == nil || !strings.Contains(err.Error(), "leads nowhere") {
		t.Errorf("a link that leads nowhere: %v", err)
	}
	t.Chdir(dir)
	write(t, ".", sampleReport())
	if _, err := NewPlace("/proc"); err == nil || !strings.Contains(err.Error(), "a file system begins there") {
		t.Errorf("where a file system begins: %v", err)
	}
}
