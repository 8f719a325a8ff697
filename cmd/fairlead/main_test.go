package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fairlead": main})
}

// The scripts in testdata/script run the program as a user does.
func TestScripts(t *testing.T) {
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
				var stdout, stderr bytes.Buffer
				if status := run(context.Background(), args, strings.NewReader(""), &stdout, &stderr); status != exitUsage {
					ts.Fatalf("%q: exit status %d, want %d: %s", args, status, exitUsage, &stderr)
				}
			},
		},
	})
}

// Every command, with no command left out, explains itself and refuses what
// it does not know with exit status 2.
func TestEveryCommandHelps(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		path := strings.Fields(c.CommandPath())[1:]
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		t.Run(strings.Join(append([]string{"fairlead"}, path...), " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if status := run(context.Background(), append(path, "--help"), nil, &stdout, &stderr); status != exitDone || stderr.Len() > 0 {
				t.Fatalf("--help: exit status %d, stderr %q", status, stderr.String())
			}
			for _, want := range []string{"Usage:", "Flags:"} {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("--help lacks %q:\n%s", want, stdout.String())
				}
			}
			if !c.Hidden && (c.Short == "" || strings.HasSuffix(c.Short, ".")) {
				t.Errorf("short help %q: must be one phrase without a full stop", c.Short)
			}
			stdout.Reset()
			if c.DisableFlagParsing {
				return
			}
			if status := run(context.Background(), append(path, "--no-such-flag"), nil, &stdout, &stderr); status != exitUsage {
				t.Errorf("--no-such-flag: exit status %d, want %d", status, exitUsage)
			}
			if stdout.Len() > 0 || !strings.Contains(stderr.String(), "no-such-flag") {
				t.Errorf("--no-such-flag: stdout %q, stderr %q", stdout.String(), stderr.String())
			}
		})
	}
	visit(newRootCommand())
}
