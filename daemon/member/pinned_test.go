package member

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
)

// Whoever is wrong may be at work: only one that most are against is not ready,
// so that never all are.
func TestSplit(t *testing.T) {
	force := &inForce{Assignment: &controller.Assignment{Version: 7}, digest: []byte("a")}
	peer := func(version uint64, digest string) *fairleadv1.Peer {
		return &fairleadv1.Peer{Name: digest, Reachable: true, AssignmentVersion: version, AssignmentDigest: []byte(digest)}
	}
	for what, c := range map[string]struct {
		peers  []*fairleadv1.Peer
		others int
		mine   bool
	}{
		"alone":                   {nil, 0, true},
		"all alike":               {[]*fairleadv1.Peer{peer(7, "a"), peer(7, "a")}, 0, true},
		"half and half":           {[]*fairleadv1.Peer{peer(7, "b")}, 1, true},
		"most have another":       {[]*fairleadv1.Peer{peer(7, "b"), peer(7, "b")}, 2, false},
		"each another":            {[]*fairleadv1.Peer{peer(7, "b"), peer(7, "c"), peer(7, "d")}, 3, true},
		"a version is on its way": {[]*fairleadv1.Peer{peer(8, "b"), peer(8, "b"), peer(6, "c"), peer(6, "c")}, 0, true},
		"a build that says none":  {[]*fairleadv1.Peer{peer(7, ""), peer(7, "")}, 0, true},
		"nobody answers":          {[]*fairleadv1.Peer{{Name: "b", AssignmentVersion: 7, AssignmentDigest: []byte("b")}, {Name: "c", AssignmentVersion: 7, AssignmentDigest: []byte("b")}}, 0, true},
	} {
		if others, mine := split(force, c.peers); len(others) != c.others || mine != c.mine {
			t.Errorf("%s: %q, %v", what, others, mine)
		}
	}
}

// What is pinned about the assignment is not believed when it is damaged.
func TestPinnedForce(t *testing.T) {
	pins := t.TempDir()
	d := &Member{Daemon: &daemon.Daemon{Log: slog.New(slog.DiscardHandler)}, opened: Opened{PinDir: pins}}
	d.clock.Store(&sharedClock{base: 77})
	if got := d.readPinned(); got.version != 0 {
		t.Errorf("nothing is pinned: %v", got)
	}
	want := bytes.Repeat([]byte{0xab}, 32)
	for version := range uint64(3) { // replaced in place
		d.writePinned(version+1, want)
	}
	if got := d.readPinned(); got.version != 3 || got.clock != 77 || !bytes.Equal(got.digest, want) {
		t.Errorf("%d %x", got.version, got.digest)
	}
	path := filepath.Join(pins, forceName)
	text, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{"", "x", strings.Replace(text, "3-", "4-", 1), strings.Replace(text, "ab", "aa", 1)} {
		if err := errors.Join(os.Remove(path), os.Symlink(damaged+" ", path)); err != nil {
			t.Fatal(err)
		}
		if got := d.readPinned(); got.version != 0 {
			t.Errorf("%q is believed", damaged)
		}
	}
}

// Who has the newest assignment is named right, also where the disk has none.
func TestRefusalNamesSource(t *testing.T) {
	d := &Member{Daemon: new(daemon.Daemon)}
	d.clock.Store(&sharedClock{source: clockPinned})
	err := d.mayReplace(pinnedForce{version: 3}, &controller.Assignment{Version: 2}, "lb2")
	if err == nil || !strings.Contains(err.Error(), "version 2 (from lb2)") || strings.Contains(err.Error(), "on disk") {
		t.Error(err)
	}
}
