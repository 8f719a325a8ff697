package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are these and the repository's own, by path.
func pages(t *testing.T) map[string]string {
	all := map[string]string{}
	for _, in := range []string{"*.md", "../*.md"} {
		paths, err := filepath.Glob(in)
		if err != nil || len(paths) == 0 {
			t.Fatal("no pages", in, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = string(text)
		}
	}
	return all
}

// Every page that the pages link is there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links %s: %v", page, m[1], err)
			}
		}
	}
}

// Every test that the pages name is there, in the folder that they name.
func TestNamedTests(t *testing.T) {
	var tests strings.Builder // a line each: folder, name
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(code, -1) {
			tests.WriteString(filepath.ToSlash(filepath.Dir(path)) + " " + string(m[1]) + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("\\b((?:Test|Benchmark|Fuzz)[A-Z]\\w*)(?:` \\(([\\w/]+)\\))?")
	command := regexp.MustCompile("`go test\\s(?:[^`]*-(?:run|bench)\\s+'?([^`'\\s]+))?[^`]*?\\./([\\w/]+)`")
	for page, text := range pages(t) {
		there := func(what, folder, name string) {
			if !regexp.MustCompile(`(?m)^\.\./` + folder + ` ` + name).MatchString(tests.String()) {
				t.Errorf("%s: no test of %s", page, what)
			}
		}
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			there(m[0], m[2], `.*`+m[1])
		}
		for _, m := range named.FindAllStringSubmatch(command.ReplaceAllString(text, ""), -1) {
			folder := m[2]
			if folder == "" {
				folder = `.*`
			}
			there(m[0], folder, m[1]+`$`)
		}
	}
}
