package daemon

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
)

// A second daemon of the same name must not take the first one's API away.
func TestListenLeavesALiveSocketAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	first, err := listen("unix:"+path, config.TLS{}, slog.Default(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := listen("unix:"+path, config.TLS{}, slog.Default(), false)
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
