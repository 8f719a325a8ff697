package lab

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/lab/netspace"
)

func testProgram(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("labs need root: run the tests with sudo")
	}
	return built.Fairlead(t)
}

// TestUpDown builds a lab without balancers, uses it and looks for remains.
func TestUpDown(t *testing.T) {
	t.Parallel()
	o := Options{Name: fmt.Sprint("up", os.Getpid()), Plain: true, Servers: 2, Program: testProgram(t)}
	l, err := Up(t.Context(), o, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Down(o.Name) })
	for _, endpoint := range []string{"10.77.7.1:80", "[fd77:7::1]:80"} {
		plan := LoadPlan{Seed: 1, Seconds: 2, Short: 100, Stream: 10, Upload: 10, Idle: 10, Targets: []Target{{"web", endpoint}}}
		load, err := l.startLoad(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		last, err := load.wait()
		if err != nil {
			t.Fatal(err)
		}
		if want := (Tally{Started: 130, Answered: 130, Completed: 130}); last.Tallies["web"] != want {
			t.Errorf("%s: %+v, want %+v; %+v", endpoint, last.Tallies["web"], want, last.Failures)
		}
	}
	if _, err := Up(t.Context(), o, false); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("second lab of the same name: %v", err)
	}
	if !slices.Contains(List(), o.Name) {
		t.Errorf("%v does not list the lab", List())
	}
	// A daemon that runs keeps its number when it is started again.
	if err := l.spawn("server1", "server1", "sleep", "1000"); err != nil {
		t.Fatal(err)
	}
	first := l.pid("server1", "server1")
	if err := l.StartDaemon(t.Context(), "server1"); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("second daemon of a machine: %v", err)
	}
	if pid := l.pid("server1", "server1"); pid == 0 || pid != first {
		t.Errorf("the daemon's number was %d and is now %d", first, pid)
	}
	if err := Down(o.Name); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, l)
	if err := Down(o.Name); err == nil {
		t.Error("a lab that is gone was taken down again without an error")
	}
}

func nothingLeft(t *testing.T, l *Lab) {
	t.Helper()
	if left := netspace.List(namespacePrefix(l.Name)); len(left) > 0 {
		t.Errorf("namespaces left: %v", left)
	}
	if _, err := os.Stat(l.Dir()); err == nil {
		t.Errorf("%s is left", l.Dir())
	}
	if pins, _ := filepath.Glob(filepath.Join(bpffsRoot, l.Name+"-*")); len(pins) > 0 {
		t.Errorf("pins left: %v", pins)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, p := range processes {
		if dir, _ := os.Readlink(p); strings.HasPrefix(dir, l.Dir()) {
			t.Errorf("process left: %s", p)
		}
	}
}

// TestStale takes down what a killed owner left.
func TestStale(t *testing.T) {
	o := Options{Name: fmt.Sprint("stale", os.Getpid()), Plain: true, Servers: 1, LBs: 1, Program: testProgram(t)}
	l, err := Up(t.Context(), o, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Down(o.Name) })
	RemoveStale()
	if !slices.Contains(List(), o.Name) {
		t.Fatal("a lab whose owner lives was taken down")
	}
	l.OwnerStart = "0" // another process with the number
	if err := l.save(); err != nil {
		t.Fatal(err)
	}
	RemoveStale()
	nothingLeft(t, l)
}

// TestServer holds the lab's server to what clients rely on.
func TestServer(t *testing.T) {
	server := &http.Server{Handler: handler("s1")}
	listener := listen(t)
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	base := "http://" + listener.Addr().String()
	ask := func(method, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Header.Get(serverHeader) != "s1" {
			t.Errorf("%s %s: header %q", method, path, answer.Header.Get(serverHeader))
		}
		return answer.StatusCode, string(text)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/", "", 200, "s1\n"},
		{"GET", "/bytes/40", "", 200, string(pattern[:40])},
		{"GET", "/bytes/0", "", 200, ""},
		{"GET", "/stream?seconds=0.03&interval=10ms", "", 200, StreamLine("s1", 0) + StreamLine("s1", 1) + StreamLine("s1", 2)},
		{"POST", "/upload", "123456789", 200, "s1 received 9 bytes crc32 cbf43926\n"},
	} {
		if status, got := ask(c.method, c.path, c.body); status != c.status || got != c.want {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, status, got, c.status, c.want)
		}
	}
	if _, got := ask("GET", "/bytes/200000", ""); len(got) != 200000 {
		t.Errorf("/bytes/200000: %d bytes", len(got))
	}
	for _, path := range []string{"/bytes/-1", "/bytes/x", "/stream?seconds=1&interval=0s", "/stream?seconds=100000", "/stream"} {
		if status, _ := ask("GET", path, ""); status != http.StatusBadRequest {
			t.Errorf("GET %s: status %d", path, status)
		}
	}
}

// TestChurn is a short churn: every kind of change but those that wait for
// connections to end.
func TestChurn(t *testing.T) {
	small(t, RunOptions{
		Scenario: "churn", Seed: 11, Schemes: []string{"cheetah", "cheetah-stateful", "jet", "stateless"}, Policies: []string{"rr"}, Hashes: []string{"table-hrw"},
		Scale: Scale{Connections: 300, Slot: 1500 * time.Millisecond,
			Steps: []string{"drain", "add", "reshuffle", "fail", "rotate", "kill lb", "kill host", "recover", "weight", "crash", "add two", "join lb", "lose lb"}},
	})
}
