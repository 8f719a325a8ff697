package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestUsage: what is typed wrongly is told with the word that is wrong and what
// would be right, in one line and none of Go's own words.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
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
		"check fairlead.yaml":                             "\"fairlead.yaml\": no argument is taken; write `fairlead check -f fairlead.yaml` if it is the file",
		"check -f fairlead.yaml more":                     "\"more\": no argument is taken; write `fairlead check`",
		"version now":                                     "\"now\": no argument is taken; write `fairlead version`",
		"mptcp lst":                                       `there is no command "lst"; did you mean list?`,
		"path probe a b --interval 0s":                    "--interval 0s: must be more than 0",
		"path probe a b --timeout -1s":                    "--timeout -1s: must be more than 0",
		"path probe a b --no-such-flag --timeout -1s":     "unknown flag: --no-such-flag",
	} {
		var out, complaints bytes.Buffer
		status := run(t.Context(), strings.Fields(line), strings.NewReader(""), &out, &complaints)
		said := complaints.String()
		if status != exitUsage || !strings.Contains(said, want) || strings.Count(said, "\n") != 2 || strings.Contains(said, "strconv") || strings.Contains(said, "parsing") {
			t.Errorf("%s: %d %s, want %d %s", line, status, said, exitUsage, want)
		}
	}
}
