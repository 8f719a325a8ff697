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

// TestCtl: the commands that fairleadctl has are fairlead's, it is small, and links nothing
// that makes a command start late.
func TestCtl(t *testing.T) {
	ctl := filepath.Join(filepath.Dir(built.Fairlead(t)), cli.Ctl)
	whole := newRootCommand()
	has := map[string]bool{"help": true, "completion": true}
	_, help, _ := start(t, ctl, "--help")
	for line := range strings.Lines(help) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "  fairleadctl") || strings.HasPrefix(fields[0], "-") || fields[0] == "help" {
			continue
		}
		has[fields[0]] = true
		if c, _, err := whole.Find(fields[:1]); err != nil || c == whole {
			t.Errorf("%s: %v", fields[0], err)
		}
	}
	if len(has) < 20 {
		t.Errorf("%d commands: %s", len(has), help)
	}
	for _, c := range whole.Commands() {
		if has[c.Name()] {
			continue
		}
		if status, _, said := start(t, ctl, c.Name(), "-f", "x"); status != cli.ExitUsage || !strings.Contains(said, "use `fairlead "+c.Name()+"`") {
			t.Errorf("%s: %d %q", c.Name(), status, said)
		}
	}
	file := filepath.Join(t.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(file, []byte("vips: [{name: web, address: 192.0.2.10, port: 80, scheme: jett}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, said := start(t, ctl, "check", "-f", file)
	if wholeStatus, wholeOut, wholeSaid := start(t, built.Fairlead(t), "check", "-f", file); status != cli.ExitFailed || status != wholeStatus || out != wholeOut || said != wholeSaid {
		t.Errorf("check: %d %q %q, and fairlead's %d %q %q", status, out, said, wholeStatus, wholeOut, wholeSaid)
	}
	info, err := os.Stat(ctl)
	if err != nil {
		t.Fatal(err)
	}
	// 2 MB of them programs in BPF, whose types the choices of a VIP are.
	if most := int64(16e6); info.Size() > most {
		t.Errorf("%d bytes, want at most %d", info.Size(), most)
	}
	deps, err := exec.Command("go", "list", "-tags", "ctl", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.FieldsSeq(string(deps)) {
		for _, no := range []string{"go.etcd.io/", "github.com/osrg/gobgp/", "github.com/prometheus/", "google.golang.org/grpc", "github.com/fairlead/fairlead/kernel"} {
			if strings.HasPrefix(p, no) {
				t.Errorf("links %s", p)
			}
		}
	}
}
