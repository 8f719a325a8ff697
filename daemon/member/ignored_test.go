package member_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/rollout"
)

// TestIgnoredFile: a daemon whose file was edited, and not applied, says so when it reads it
// at its start; one whose file says what the store wants does not.
func TestIgnoredFile(t *testing.T) {
	t.Parallel()
	d := stored(t)
	if _, err := d.Coordinator().Apply(t.Context(), d.Text(), rollout.Options{}); err != nil {
		t.Fatal(err)
	}
	const says = "lb1.yaml differs from fairlead.yaml of version "
	own := filepath.Join(d.Dir, "lb1.yaml")
	for _, edited := range []bool{false, true} {
		text := string(d.Text())
		if edited {
			text = strings.Replace(text, "port: 80", "port: 8080", 1)
		}
		if err := os.WriteFile(own, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d.Stops["lb1"]()
		d.Start(config.RoleBalancer, "lb1")
		if d.Warned("lb1", says) != edited || d.Warned("lb1", "8080") != edited {
			t.Errorf("edited %v: %q", edited, d.Status("lb1").Warnings)
		}
	}
}
