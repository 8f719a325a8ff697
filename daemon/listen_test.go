package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second daemon of the same name must not take the first one's API away.
func TestListenLeavesALiveSocketAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	first, err := new(Daemon).listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := new(Daemon).listen("unix:" + path)
	if err == nil {
		second.Close()
		t.Fatal("two daemons listen on one path")
	}
	if want := "another daemon listens on " + path; !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not say %q", err, want)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first daemon's API is gone: %v", err)
	}
	conn.Close()
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "lb1.sock")
	for range 2 { // the second finds what the first left, as after a SIGKILL
		l, err := new(Daemon).listen("unix:" + path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v, %v: only root may change things", info.Mode(), err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := new(Daemon).listen("unix:" + file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Fatalf("a file in the socket's place: %v", err)
	}
}
