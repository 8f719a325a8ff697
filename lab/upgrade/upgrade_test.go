package upgrade

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/built"
)

// The program gives way to itself. FAIRLEAD_FROM names another one that it shall follow,
// as docs/lab.md has it.
func TestUpgrade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	r, err := Run(t.Context(), Options{Seed: 1, From: os.Getenv("FAIRLEAD_FROM"), Program: built.Fairlead(t), Watch: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Verdict) > 0 {
		t.Error(strings.Join(r.Verdict, "\n"))
	}
}

// What is no program is refused before a lab is built.
func TestRefused(t *testing.T) {
	if _, err := Run(t.Context(), Options{From: "/nowhere/fairlead"}); err == nil || !strings.Contains(err.Error(), "--from /nowhere/fairlead: it does not say its version") {
		t.Error(err)
	}
}
