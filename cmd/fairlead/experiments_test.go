package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/cmd/cli"
)

// start runs a program as a process.
func start(t *testing.T, program string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
}

// TestHandOver: what is fairlead-lab's is run, explained and completed by it, and
// its exit status is fairlead's.
func TestHandOver(t *testing.T) {
	program := built.Fairlead(t)
	for line, want := range map[string]struct {
		status         int
		stdout, stderr string
	}{
		"lab run --help":               {cli.ExitDone, "fairlead lab run SCENARIO [flags]", ""},
		"help lab run":                 {cli.ExitDone, "fairlead lab run SCENARIO [flags]", ""},
		"sim proof --help":             {cli.ExitDone, "fairlead sim proof [flags]", ""},
		"help demo":                    {cli.ExitDone, "fairlead demo [flags]", ""},
		"bench --list":                 {cli.ExitDone, "cheetah-known-1m\n", ""},
		"lab run nothing":              {cli.ExitUsage, "", `there is no scenario "nothing"`},
		"lab nothing":                  {cli.ExitUsage, "", "See 'fairlead lab --help'."},
		"sim jet-trace --pcap none":    {cli.ExitUsage, "", "--pcap none: no such file"},
		"lab down nowhere":             {cli.ExitFailed, "", "nowhere"},
		"__complete lab ru":            {cli.ExitDone, "run\t", ""},
		"__complete lab run --rate-f":  {cli.ExitDone, "--rate-factor\t", ""},
		"__complete lab run seven-":    {cli.ExitDone, "seven-paths\t", ""},
		"__complete ben":               {cli.ExitDone, "bench\t", ""},
		"__complete help sim dip-upda": {cli.ExitDone, "", ""},
	} {
		status, stdout, stderr := start(t, program, strings.Fields(line)...)
		if status != want.status || !strings.Contains(stdout, want.stdout) || !strings.Contains(stderr, want.stderr) {
			t.Errorf("%s: %d %q %q, want %+v", line, status, stdout, stderr, want)
		}
	}
}

// Without fairlead-lab, it says what is missing and where to put it.
func TestHandOverToNobody(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "fairlead")
	if err := os.Link(built.Fairlead(t), alone); err != nil {
		data, err := os.ReadFile(built.Fairlead(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(alone, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"demo", "lab up --servers 4", "help sim", "bench --help"} {
		status, stdout, stderr := start(t, alone, strings.Fields(line)...)
		want := "fairlead: fairlead-lab is neither in " + filepath.Dir(alone) + ", beside this program, nor in PATH: copy it there"
		if status != cli.ExitFailed || stdout != "" || !strings.HasPrefix(stderr, want) {
			t.Errorf("%s: %d %q %q, want %q", line, status, stdout, stderr, want)
		}
	}
}

// TestProduct: what runs on machines that balance is small, and has nothing of
// the laboratory in it.
func TestProduct(t *testing.T) {
	info, err := os.Stat(built.Fairlead(t))
	if err != nil {
		t.Fatal(err)
	}
	// 32 MB of ours, 15 of the store (etcd, its client, gRPC), 8 of GoBGP.
	if most := int64(57e6); info.Size() > most {
		t.Errorf("%d bytes, want at most %d: see `go list -deps ./cmd/fairlead` and `go tool nm -size -sort size`", info.Size(), most)
	}
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range strings.Fields(string(out)) {
		room := strings.TrimPrefix(p, "github.com/fairlead/fairlead/") + "/"
		for _, no := range []string{"lab/", "sim/", "bench/", "soak/", "testing/", "gonum.org/", "codeberg.org/", "git.sr.ht/", "golang.org/x/image/"} {
			if strings.HasPrefix(room, no) {
				t.Errorf("links %s", p)
			}
		}
	}
}

// A copy of fairlead that is called fairlead-lab is told from it.
func TestHandOverToItself(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{cli.Product, cli.Lab} {
		if err := os.Link(built.Fairlead(t), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	status, _, stderr := start(t, filepath.Join(folder, cli.Product), "lab", "status")
	if status != cli.ExitFailed || !strings.Contains(stderr, "is not fairlead-lab but a copy") {
		t.Errorf("%d %q", status, stderr)
	}
}
