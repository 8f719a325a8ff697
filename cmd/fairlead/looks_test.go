package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/cli/clitest"
)

// TestLooksWithoutSecret: who looks needs no secret, nor a file where a controller says
// what there is; a change of the file needs both.
func TestLooksWithoutSecret(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	text, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n") // less the secret
	dir := filepath.Dir(d.file)
	d.file = filepath.Join(dir, "looks.yaml")
	if err := os.WriteFile(d.file, []byte("secret_file: nowhere\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	d.run(0, "status", "lb1", "s2", "in force at every daemon that lives")
	d.run(0, "history", "VERSION")
	d.run(1, "apply", "secret_file", "nowhere")
	if _, err := os.Stat("/etc/fairlead/fairlead.yaml"); err == nil {
		t.Skip("this machine has a deployment's file")
	}
	status, out, errs := clitest.Run(newRootCommand(), "status", "--api", "unix:"+dir+"/api")
	if status != 0 || !strings.Contains(out, "lb1") || !strings.Contains(out, "s2") {
		t.Errorf("without a file: %d %s%s", status, out, errs)
	}
}
