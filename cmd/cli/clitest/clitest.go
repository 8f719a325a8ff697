// Package clitest is what the tests of both programs' command lines have in
// common.
package clitest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
)

// Run carries out a command line in this process and returns its exit status
// and what it printed.
func Run(root *cobra.Command, args ...string) (status int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	status = cli.Run(context.Background(), root, args, strings.NewReader(""), &out, &complaints)
	return status, out.String(), complaints.String()
}

// Scripts runs those in testdata/script, which run the program as a user does.
func Scripts(t *testing.T, newRoot func() *cobra.Command) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// usage ARGUMENTS…: the program refuses them with exit status 2.
			"usage": func(ts *testscript.TestScript, _ bool, args []string) {
				for i := range args {
					if strings.HasSuffix(args[i], ".yaml") {
						args[i] = ts.MkAbs(args[i])
					}
				}
				if status, _, stderr := Run(newRoot(), args...); status != cli.ExitUsage {
					ts.Fatalf("%q: exit status %d, want %d: %s", args, status, cli.ExitUsage, stderr)
				}
			},
		},
	})
}

// Usage holds that each line is refused: in one line that says what it shall,
// and none of Go's own words.
func Usage(t *testing.T, newRoot func() *cobra.Command, lines map[string]string) {
	t.Helper()
	for line, want := range lines {
		status, _, said := Run(newRoot(), strings.Fields(line)...)
		if status != cli.ExitUsage || !strings.Contains(said, want) || strings.Count(said, "\n") != 2 || strings.Contains(said, "strconv") || strings.Contains(said, "parsing") {
			t.Errorf("%s: %d %s, want %d %s", line, status, said, cli.ExitUsage, want)
		}
	}
}

// EveryCommandHelps holds that every command, with none left out but those that
// another program explains, explains itself and refuses what it does not know.
func EveryCommandHelps(t *testing.T, newRoot func() *cobra.Command) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		path := strings.Fields(c.CommandPath())[1:]
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		t.Run(c.CommandPath(), func(t *testing.T) {
			if !c.Hidden && (c.Short == "" || strings.HasSuffix(c.Short, ".")) {
				t.Errorf("short help %q: must be one phrase without a full stop", c.Short)
			}
			if c.DisableFlagParsing {
				return
			}
			status, stdout, stderr := Run(newRoot(), append(path, "--help")...)
			if status != cli.ExitDone || stderr != "" {
				t.Fatalf("--help: exit status %d, stderr %q", status, stderr)
			}
			for _, want := range []string{"Usage:", "Flags:"} {
				if !strings.Contains(stdout, want) {
					t.Errorf("--help lacks %q:\n%s", want, stdout)
				}
			}
			status, stdout, stderr = Run(newRoot(), append(path, "--no-such-flag")...)
			if status != cli.ExitUsage {
				t.Errorf("--no-such-flag: exit status %d, want %d", status, cli.ExitUsage)
			}
			if stdout != "" || !strings.Contains(stderr, "no-such-flag") {
				t.Errorf("--no-such-flag: stdout %q, stderr %q", stdout, stderr)
			}
		})
	}
	visit(newRoot())
}
