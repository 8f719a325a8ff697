package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Many servers and many slips take no longer to be told than to be read.
func TestManySlips(t *testing.T) {
	long := strings.Repeat("n", 190)
	var b strings.Builder
	b.WriteString("servers:\n")
	for i := range 8000 {
		fmt.Fprintf(&b, "  - {name: %s%d}\n", long, i)
	}
	b.WriteString("vips:\n  - name: web\n    servers:\n")
	for i := range 150 {
		fmt.Fprintf(&b, "      - %sx%d\n", long, i)
	}
	path := filepath.Join(t.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	began := processorTime(t)
	if _, err := Load(path); err == nil {
		t.Error("no problem was found")
	}
	if took := processorTime(t) - began; took > 10*time.Second {
		t.Errorf("took %v of processor time", took)
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
