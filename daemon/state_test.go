package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/daemon/daemontest"
)

// A disk that is full from the first moment on: what is kept last is what is
// written once there is room.
func TestKeepOnFullDisk(t *testing.T) {
	base := filepath.Join(t.TempDir(), "state")
	daemontest.SmallDisk(t, base)
	if err := os.Mkdir(filepath.Join(base, "h1"), 0o700); err != nil {
		t.Fatal(err)
	}
	empty := daemontest.Fill(t, base)
	s, err := OpenState(base, "h1", UnsavedForce, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 3 {
		if err := s.Keep("assignment.json", fmt.Append(nil, i+1)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("kept on a full disk: %v", err)
		}
	}
	if s.Retry(); len(s.Warnings()) != 1 {
		t.Errorf("warnings %q", s.Warnings())
	}
	empty()
	s.Retry()
	if waiting, _ := s.Counts(); waiting != 0 || len(s.Warnings()) != 0 {
		t.Errorf("%d files wait, %q", waiting, s.Warnings())
	}
	if text, err := s.Read("assignment.json"); err != nil || strings.TrimSpace(string(text)) != "3" {
		t.Errorf("written: %q, %v", text, err)
	}
}
