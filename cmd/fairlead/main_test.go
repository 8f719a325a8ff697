package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cmd/cli/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fairlead": main})
}

func TestScripts(t *testing.T)           { clitest.Scripts(t, newRootCommand) }
func TestEveryCommandHelps(t *testing.T) { clitest.EveryCommandHelps(t, newRootCommand) }

// What is typed wrongly is told with the word that is wrong and what would be
// right.
func TestUsage(t *testing.T) {
	clitest.Usage(t, newRootCommand, map[string]string{
		"check fairlead.yaml":                         "\"fairlead.yaml\": no argument is taken; write `fairlead check -f fairlead.yaml` if it is the file",
		"check -f fairlead.yaml more":                 "\"more\": no argument is taken; write `fairlead check`",
		"version now":                                 "\"now\": no argument is taken; write `fairlead version`",
		"mptcp lst":                                   `there is no command "lst"; did you mean list?`,
		"path probe a b --interval 0s":                "--interval 0s: must be more than 0",
		"path probe a b --timeout -1s":                "--timeout -1s: must be more than 0",
		"path probe a b --no-such-flag --timeout -1s": "unknown flag: --no-such-flag",
	})
}
