package member

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
)

func testConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse("fairlead.yaml", []byte(`
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
controllers: [{name: c1}]
balancers:
  - {name: lb1, interfaces: [eth0], metrics: "127.0.0.1:9000"}
  - {name: lb2, interfaces: [eth0]}
servers:
  - {name: s1, address: 10.0.0.21, interfaces: [eth0]}
  - {name: s2, address: 10.0.0.22, interfaces: [eth0]}
vips:
  - {name: web, address: 192.0.2.10, port: 80, servers: [s1, s2], health: {type: tcp}}
`))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestStateKeepsAssignment(t *testing.T) {
	dir := t.TempDir()
	s, err := daemon.OpenState(dir, "lb1", daemon.UnsavedForce, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := loadAssignment(s); a != nil || err != nil {
		t.Fatalf("empty folder: %v, %v", a, err)
	}
	a, err := controller.First(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(assignmentName, a.Encode()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Path(assignmentName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v: the file holds keys", info.Mode(), err)
	}
	if _, err := daemon.OpenState(dir, "lb1", daemon.UnsavedForce, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Fatalf("a second daemon of the same name: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = daemon.OpenState(dir, "lb1", daemon.UnsavedForce, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := loadAssignment(s)
	if err != nil || string(b.Encode()) != string(a.Encode()) {
		t.Fatalf("read back: %v", err)
	}
	// A build before checksums wrote it.
	if err := os.WriteFile(s.Path(assignmentName), a.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err = loadAssignment(s); err != nil || string(b.Encode()) != string(a.Encode()) {
		t.Fatalf("read back of an older build: %v", err)
	}
	if err := s.Keep(assignmentName, a.Encode()); err != nil {
		t.Fatal(err)
	}
	if file, err := os.ReadFile(s.Path(assignmentName)); err != nil || !strings.Contains(string(file), " sha256") {
		t.Fatalf("not sealed: %v", err)
	}
	// What is not whole is not used, and is set aside.
	file, err := os.ReadFile(s.Path(assignmentName))
	if err != nil {
		t.Fatal(err)
	}
	copies := 0
	for what, damaged := range map[string][]byte{
		"cut off": file[:100], "empty": {}, "a character of a key": bytes.Replace(file, []byte(`"secret": "`), []byte(`"secret": "A`), 1),
		"an older build's, cut off": a.Encode()[:100],
	} {
		if bytes.Equal(damaged, file) {
			t.Fatalf("%s: nothing is damaged", what)
		}
		if err := os.WriteFile(s.Path(assignmentName), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := loadAssignment(s); b != nil || err != nil {
			t.Errorf("%s: %v, %v", what, b, err)
		}
		copies++
		name := s.Path(assignmentName) + ".damaged"
		if copies > 1 { // beside those from before
			name += fmt.Sprintf("-%d", copies)
		}
		aside, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(aside, damaged) || !s.Lost(assignmentName) || !strings.Contains(s.Warnings()[len(s.Warnings())-1], "is set aside") {
			t.Errorf("%s: set aside %v, warnings %q", what, err, s.Warnings())
		}
	}
	if err := s.Write(assignmentName, a.Encode()); err != nil || s.Lost(assignmentName) {
		t.Errorf("written anew, and lost still: %v", err)
	}
}

// A file that cannot be read is not taken for damaged: it stays where it is, and
// the daemon does not go on without it.
func TestUnreadableState(t *testing.T) {
	s, err := daemon.OpenState(t.TempDir(), "lb1", daemon.UnsavedForce, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, err := controller.First(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(assignmentName, a.Encode()); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err = loadAssignment(s)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EMFILE) || strings.Contains(err.Error(), "move the file away") {
		t.Errorf("without descriptors: %v", err)
	}
	if b, err := loadAssignment(s); err != nil || b == nil || len(s.Warnings()) != 0 {
		t.Errorf("with them again: %v, %v, warnings %q", b, err, s.Warnings())
	}
}
