package upgrade

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/soak"
)

// The program gives way to itself. FAIRLEAD_FROM names another one that it shall follow,
// as docs/lab.md has it.
func TestUpgrade(t *testing.T) {
	if r := upgraded(t, os.Getenv("FAIRLEAD_FROM")); os.Getenv("FAIRLEAD_FROM") == "" && r.Migrated {
		t.Error("this program knows no store")
	}
}

// storeless is the last commit whose program knew no store, as docs/lab.md has it.
const storeless = "79a5014"

// A deployment of before there was a store comes into one. A soak builds its program,
// where git has it.
func TestMigration(t *testing.T) {
	if !soak.On() {
		t.Skip("a soak builds the program of before there was a store; FAIRLEAD_FROM of TestUpgrade takes one that is there (docs/lab.md)")
	}
	git := func(args ...string) ([]byte, error) {
		// Who soaks may be another user than who cloned.
		return exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...).CombinedOutput()
	}
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil {
		t.Fatalf("git: %v: %s", err, shallow)
	} else if out, err := git("cat-file", "-e", storeless+"^{commit}"); err != nil && strings.TrimSpace(string(shallow)) == "true" {
		t.Skipf("git's history does not go back to %s: git fetch --unshallow", storeless)
	} else if err != nil {
		t.Fatalf("commit %s: %v: %s", storeless, err, out)
	}
	tree := filepath.Join(t.TempDir(), "before")
	if out, err := git("worktree", "add", "--quiet", "--detach", tree, storeless); err != nil {
		t.Fatalf("git worktree add: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := git("worktree", "remove", "--force", tree); err != nil {
			t.Errorf("git worktree remove: %v: %s", err, out)
		}
	})
	from := filepath.Join(t.TempDir(), "fairlead")
	build := exec.Command("go", "build", "-o", from, "./cmd/fairlead")
	build.Dir = tree
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	if r := upgraded(t, from); !r.Migrated {
		t.Errorf("%s knows a store", r.From)
	}
}

// upgraded has the program follow from.
func upgraded(t *testing.T, from string) *Result {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	r, err := Run(t.Context(), Options{Seed: 1, From: from, Program: built.Fairlead(t), Watch: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Verdict) > 0 {
		t.Error(strings.Join(r.Verdict, "\n"))
	}
	return r
}

// What is no program is refused before a lab is built.
func TestRefused(t *testing.T) {
	if _, err := Run(t.Context(), Options{From: "/nowhere/fairlead"}); err == nil || !strings.Contains(err.Error(), "--from /nowhere/fairlead: it does not say its version") {
		t.Error(err)
	}
}
