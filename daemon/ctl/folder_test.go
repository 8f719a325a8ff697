package ctl

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/daemon/daemontest"
)

// TestFolderDeleted: a controller whose state folder is deleted while it runs ends, and
// says why; started again, it answers.
func TestFolderDeleted(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "fl-ctl-") // t.TempDir() may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := newDeployment(t, fmt.Sprintf("controllers: [{name: c1, store: \"unix:%[1]s/s\", api: \"unix:%[1]s/a\"}]\n", dir))
	state := filepath.Join(d.dir, "state")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Run(ctx, Options{File: d.config.File(), StateDir: state, Log: d.log}) }()
	d.open(0)
	if err := os.RemoveAll(filepath.Join(state, "c1")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "was deleted while it was in use") {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(daemontest.Patience):
		t.Fatal("it goes on")
	}
	d.start("c1")
	d.open(0)
}
