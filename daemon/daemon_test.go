package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/vip"
)

func testConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse("fairlead.yaml", []byte(`
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
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

func TestFindSelf(t *testing.T) {
	cfg := testConfig(t)
	me, err := findSelf(cfg, RoleBalancer, "lb1")
	if err != nil || me.name != "lb1" || me.metrics != "127.0.0.1:9000" || me.api != "unix:/run/fairlead/lb1.sock" {
		t.Fatalf("lb1: %+v, %v", me, err)
	}
	if me, err = findSelf(cfg, RoleHost, "s2"); err != nil || me.server.Address.String() != "10.0.0.22" {
		t.Fatalf("s2: %+v, %v", me, err)
	}
	// The machine that runs the tests is called none of these.
	for name, want := range map[string]string{"": "--name", "lb3": "lb1, lb2"} {
		if _, err := findSelf(cfg, RoleBalancer, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("name %q: error %v lacks %q", name, err, want)
		}
	}
	cfg.Balancers = cfg.Balancers[:1]
	if me, err := findSelf(cfg, RoleBalancer, ""); err != nil || me.name != "lb1" {
		t.Fatalf("the only balancer: %+v, %v", me, err)
	}
}

func TestStateKeepsAssignment(t *testing.T) {
	dir := t.TempDir()
	s, err := openState(dir, "lb1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := s.load(); a != nil || err != nil {
		t.Fatalf("empty folder: %v, %v", a, err)
	}
	a, err := controller.First(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.save(a.Encode(), true); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.assignmentFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v: the file holds keys", info.Mode(), err)
	}
	if _, err := openState(dir, "lb1", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Fatalf("a second daemon of the same name: %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s, err = openState(dir, "lb1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	b, err := s.load()
	if err != nil || string(b.Encode()) != string(a.Encode()) {
		t.Fatalf("read back: %v", err)
	}
	// A build before checksums wrote it.
	if err := os.WriteFile(s.assignmentFile(), a.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err = s.load(); err != nil || string(b.Encode()) != string(a.Encode()) {
		t.Fatalf("read back of an older build: %v", err)
	}
	if err := s.save(a.Encode(), false); err != nil {
		t.Fatal(err)
	}
	if _, isSealed, err := s.open(assignmentName); err != nil || !isSealed {
		t.Fatalf("not sealed: %v", err)
	}
	// What is not whole is not used, and is set aside.
	file, err := os.ReadFile(s.assignmentFile())
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
		if err := os.WriteFile(s.assignmentFile(), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := s.load(); b != nil || err != nil {
			t.Errorf("%s: %v, %v", what, b, err)
		}
		copies++
		name := s.assignmentFile() + asideSuffix
		if copies > 1 { // beside those from before
			name += fmt.Sprintf("-%d", copies)
		}
		aside, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(aside, damaged) || !s.lost(assignmentName) || !strings.Contains(s.damaged[len(s.damaged)-1], "is set aside") {
			t.Errorf("%s: set aside %v, warnings %q", what, err, s.warnings())
		}
	}
	if err := s.save(a.Encode(), true); err != nil || s.lost(assignmentName) {
		t.Errorf("written anew, and lost still: %v", err)
	}
}

// The median is one of the offsets and has as many on one side as on the
// other, also where the circle of 2^32 closes.
func TestMedianOffset(t *testing.T) {
	if _, ok := medianOffset(nil); ok {
		t.Fatal("a median of nothing")
	}
	rapid.Check(t, func(t *rapid.T) {
		middle := rapid.Uint32().Draw(t, "middle")
		below := rapid.SliceOfN(rapid.Uint32Range(1, 5000), 0, 4).Draw(t, "below")
		offsets := map[string]uint32{"m": middle}
		for i, d := range below {
			above := rapid.Uint32Range(1, 5000).Draw(t, "above")
			offsets[string(rune('a'+i))] = middle - d
			offsets[string(rune('A'+i))] = middle + above
		}
		if got, ok := medianOffset(offsets); !ok || got != middle {
			t.Fatalf("median of %v: %d, want %d", offsets, got, middle)
		}
	})
}

// Servers that are down leave the tables, but for a VIP all of whose active
// servers are.
func TestOverlay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := controller.VIP{ID: 7, Health: &vip.Health{}, Address: netip.MustParseAddr("192.0.2.1")}
		isDown := map[uint16]bool{}
		var activeUp, active int
		for i := range rapid.IntRange(0, 6).Draw(t, "slots") {
			n := uint16(i)
			state := rapid.SampledFrom([]controller.State{controller.Joining, controller.Active, controller.Draining, controller.Resting}).Draw(t, "state")
			isDown[n] = rapid.Bool().Draw(t, "down")
			v.Slots = append(v.Slots, controller.Slot{Number: n, State: state})
			if state == controller.Active {
				active++
				if !isDown[n] {
					activeUp++
				}
			}
		}
		down, open := overlay(&controller.Assignment{VIPs: []controller.VIP{v}}, func(_ uint32, s uint16) bool { return isDown[s] })
		if open[7] != (active > 0 && activeUp == 0) {
			t.Fatalf("fail-open %v with %d of %d active up", open[7], activeUp, active)
		}
		for _, s := range v.Slots {
			want := isDown[s.Number] && s.State == controller.Active && !open[7]
			if down[health.Key{VIP: 7, Slot: s.Number}] != want {
				t.Fatalf("slot %d: down %v, want %v", s.Number, !want, want)
			}
		}
	})
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "lb1.sock")
	for range 2 { // the second finds what the first left, as after a SIGKILL
		l, err := listen("unix:"+path, config.TLS{}, slog.Default(), false)
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
	if _, err := listen("unix:"+file, config.TLS{}, slog.Default(), false); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Fatalf("a file in the socket's place: %v", err)
	}
}
