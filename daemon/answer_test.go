package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
)

// A server serves without the fabric: what is wrong with its file is a
// warning, and nothing else.
func TestAnswersWarn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(file, []byte("selector: {radix: 1}"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for name, want := range map[string]int{"": 0, file: 1, file + "-not-there": 1} {
		a := openAnswers(&config.Config{Fabric: name}, log)
		warnings := a.warnings()
		if len(warnings) != want {
			t.Errorf("fabric %q: warnings %q, want %d", name, warnings, want)
		}
		for _, w := range warnings {
			if strings.Contains(w, "\n") || !strings.Contains(w, "probes of the fabric are not answered") {
				t.Errorf("fabric %q: warning %q", name, w)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.run(ctx); err != nil {
			t.Error(err)
		}
		a.close()
	}
}
