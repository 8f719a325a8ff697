package swtch

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/kernel/swtch"
)

func newState(t *testing.T) *daemon.State {
	t.Helper()
	s, err := daemon.OpenState(t.TempDir(), "sw1", daemon.UnsavedForce, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A switch that locks itself on a full disk is locked, and it is written once there
// is room.
func TestLockOnFullDisk(t *testing.T) {
	base := filepath.Join(t.TempDir(), "state")
	daemontest.SmallDisk(t, base)
	if err := os.Mkdir(filepath.Join(base, "sw1"), 0o700); err != nil {
		t.Fatal(err)
	}
	empty := daemontest.Fill(t, base)
	state, err := daemon.OpenState(base, "sw1", daemon.UnsavedForce, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if err := keepLock(state, &swtch.Lock{Reason: "a test"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a lock on a full disk: %v", err)
	}
	empty()
	state.Retry()
	if waiting, _ := state.Counts(); waiting != 0 || len(state.Warnings()) != 0 {
		t.Errorf("%d files wait, %q", waiting, state.Warnings())
	}
	if l, err := readLock(state); err != nil || l == nil || l.Reason != "a test" {
		t.Errorf("the switch's: %v, %v", l, err)
	}
}

// A lock outlasts the daemon.
func TestLockIsKept(t *testing.T) {
	state := newState(t)
	sw := &config.Switch{}
	kept := func() swtch.Options {
		t.Helper()
		o, err := options(sw, state)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := kept()
	if o.Locked != nil {
		t.Fatalf("locked: %+v", o.Locked)
	}
	if err := o.KeepLock(nil); err != nil {
		t.Errorf("unlocked twice: %v", err)
	}
	want := swtch.Lock{Reason: "3 of 4 servers went down within 10s", Since: time.Unix(1_800_000_000, 0).UTC(), Plain: true, Out: []string{"s4"}}
	if err := o.KeepLock(&want); err != nil {
		t.Fatal(err)
	}
	if got := kept().Locked; !reflect.DeepEqual(got, &want) {
		t.Errorf("kept %+v", got)
	}
	if err := o.KeepLock(nil); err != nil || kept().Locked != nil {
		t.Errorf("unlocked: %v, kept %+v", err, kept().Locked)
	}
	path := state.Path(lockedName)
	if err := o.KeepLock(&want); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range [][]byte{[]byte("{"), bytes.Replace(whole, []byte("s4"), []byte("s3"), 1)} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := options(sw, state); err == nil || !strings.Contains(err.Error(), "remove "+path) {
			t.Errorf("a file that is damaged: %v", err)
		}
	}
}
