package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
	"github.com/fairlead/fairlead/lab"
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
		"lab run seven-paths --runs x":                    `--runs "x": must be a whole number`,
		"lab run seven-paths --runs 99999999999999999999": `--runs "99999999999999999999": is too large or too small for a number`,
		"lab run fabric --phase 90":                       `--phase "90": must be a time such as 500ms, 5s or 2m`,
		"lab run fabric --rate fast":                      `--rate "fast": not a rate; write bit/s such as 400kbit or 1Mbit`,
		"lab run fabric --limit 0":                        `--limit "0": not a rate; write bit/s such as 400kbit or 1Mbit`,
		"lab run seven-paths --rate 20":                   `--rate 20bit: must be 1Mbit to 200Mbit, such as 20Mbit`,
		"lab run seven-paths --rate 400Mbit":              `--rate 400Mbit: must be 1Mbit to 200Mbit, such as 20Mbit`,
		"lab run seven-path":                              `there is no scenario "seven-path"; did you mean seven-paths?`,
		"lab run churm":                                   `there is no scenario "churm"; did you mean churn?`,
		"lab run nothing":                                 `there is no scenario "nothing"; there are `,
		"lab run synflood --drained 5,x":                  `--drained "5,x": must be whole numbers, comma-separated`,
		"lab run churn --ipv6=maybe":                      `--ipv6 "maybe": must be true or false`,
		"lab run churn --seed -1":                         `--seed "-1": must be a whole number from 0 on`,
		"lab run scaling --rate-factor half":              `--rate-factor "half": must be a number such as 0.5`,
	})
}

// A user finds each scenario in the help of lab run.
func TestHelpHasEveryScenario(t *testing.T) {
	help := newLabRun()
	names := lab.ScenarioNames()
	for _, c := range help.Commands() {
		names = append(names, c.Name())
	}
	for _, name := range names {
		if !strings.Contains(help.Long, "\n  "+name+" ") {
			t.Errorf("%q is not in the help of lab run", name)
		}
	}
}

// What fairlead hands over is what this program has.
func TestExperiments(t *testing.T) {
	commands := newRootCommand().Commands()
	for _, c := range commands {
		if _, known := cli.Experiments[c.Name()]; !known {
			t.Errorf("fairlead does not know %s", c.Name())
		}
	}
	if len(commands) != len(cli.Experiments) {
		t.Errorf("%d commands, want those of %v", len(commands), cli.Experiments)
	}
}

// Flags are made here: what is simulated knows of no flag library.
func TestNoFlagLibrary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../sim/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"github.com/spf13/pflag", "github.com/spf13/cobra"} {
		if strings.Contains(string(out), library) {
			t.Errorf("sim imports %s", library)
		}
	}
}
