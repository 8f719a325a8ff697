package daemon

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/sealed"
)

func (p *fakePlane) pinDir() string { return p.pins }

func (p *fakePlane) restoreClock(base uint32) error { return p.fixClock(base) }

// drainAtAll makes version 2 everywhere: s1 drains.
func (d *deployment) drainAtAll(through string) {
	d.t.Helper()
	drain := &fairleadv1.DrainServerRequest{Vip: "web", Server: "s1"}
	if _, err := d.client(through).DrainServer(d.t.Context(), connect.NewRequest(drain)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *deployment) file(name, file string) string {
	return filepath.Join(d.dir, "state", name, file)
}

// changeKey changes one character of a key in a daemon's assignment on disk;
// whoever reseals wants to deceive.
func (d *deployment) changeKey(name string, reseal bool) (before *controller.Assignment) {
	d.t.Helper()
	before, err := ReadAssignment(filepath.Join(d.dir, "state"), name)
	if err != nil {
		d.t.Fatal(err)
	}
	file, err := os.ReadFile(d.file(name, assignmentName))
	if err != nil {
		d.t.Fatal(err)
	}
	secret := []byte(`"secret": "`)
	at := bytes.Index(file, secret) + len(secret)
	if file[at] == 'A' {
		file[at] = 'B'
	} else {
		file[at] = 'A'
	}
	if reseal {
		file = sealed.Seal(file[:bytes.LastIndex(file, []byte("} sha256"))])
	}
	if err := os.WriteFile(d.file(name, assignmentName), file, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return before
}

// end runs a daemon that is not to come to serve, and returns why.
func (d *deployment) end(role Role, name string) error {
	p := d.planes[name]
	return run(d.t.Context(), role, Options{File: d.cfg.File(), Name: name, StateDir: filepath.Join(d.dir, "state"),
		Log:  slog.New(slog.DiscardHandler),
		open: func(self, *config.Config, Options, *slog.Logger) (plane, error) { return p, nil }})
}

func (d *deployment) warned(name, text string) bool {
	return slices.ContainsFunc(d.status(name).Warnings, func(w string) bool { return strings.Contains(w, text) })
}

// One changed character of a key on disk: it is never used. The daemon goes on
// from a peer and says so; with nobody there, and programs at work, it does not
// start.
func TestDamagedAssignment(t *testing.T) {
	d := newDeployment(t)
	d.planes["lb1"] = &fakePlane{wake: make(chan struct{}, 1), pins: t.TempDir()}
	d.start(RoleHost, "s1")
	d.start(RoleBalancer, "lb1")
	d.drainAtAll("lb1")

	d.stops["lb1"]()
	before := d.changeKey("lb1", false)
	d.start(RoleBalancer, "lb1")
	held := d.planes["lb1"].applied
	if held.Version != 2 || !bytes.Equal(held.Keys[0].Secret, before.Keys[0].Secret) {
		t.Errorf("version %d is in force, with the key on disk: %v", held.Version, !bytes.Equal(held.Keys[0].Secret, before.Keys[0].Secret))
	}
	if !d.warned("lb1", "its checksum is wrong") {
		t.Errorf("no warning: %q", d.status("lb1").Warnings)
	}
	if _, err := os.Stat(d.file("lb1", assignmentName+asideSuffix)); err != nil {
		t.Error(err)
	}

	// Sealed anew: what is pinned knows better.
	d.stops["lb1"]()
	d.changeKey("lb1", true)
	d.start(RoleBalancer, "lb1")
	if held = d.planes["lb1"].applied; !bytes.Equal(held.Keys[0].Secret, before.Keys[0].Secret) || !d.warned("lb1", "the programs go by another one") {
		t.Errorf("sealed anew, it is used; warnings %q", d.status("lb1").Warnings)
	}

	// The clock in the maps.
	d.stops["lb1"]()
	base := *d.planes["lb1"].base
	*d.planes["lb1"].base ^= 1 << 20
	d.start(RoleBalancer, "lb1")
	if *d.planes["lb1"].base != base || d.status("lb1").Clock.BaseMs != base || !d.warned("lb1", "the clock in the pinned maps was damaged") {
		t.Errorf("the clock is %d, was %d: %q", *d.planes["lb1"].base, base, d.status("lb1").Warnings)
	}

	// Nobody has it any more.
	d.stopAll()
	d.changeKey("lb1", false)
	applies := d.planes["lb1"].count()
	for range 2 { // the second finds it set aside
		if err := d.end(RoleBalancer, "lb1"); err == nil || !strings.Contains(err.Error(), "it goes on forwarding") {
			t.Errorf("without peers: %v", err)
		}
	}
	if d.planes["lb1"].count() != applies {
		t.Error("what is pinned was replaced")
	}
	// Of a build before, nothing is pinned that says what is in force.
	if err := os.Remove(filepath.Join(d.planes["lb1"].pins, forceName)); err != nil {
		t.Fatal(err)
	}
	if err := d.end(RoleBalancer, "lb1"); err == nil || d.planes["lb1"].count() != applies {
		t.Errorf("without peers, pinned by a build before: %v", err)
	}
	// The machine was started again: nothing forwards, so nothing can break.
	d.planes["lb1"].base, d.planes["lb1"].pins = nil, t.TempDir()
	d.start(RoleBalancer, "lb1")
	if d.planes["lb1"].applied.Version != 1 || !d.warned("lb1", "started from the file alone") {
		t.Errorf("after a reboot: version %d, warnings %q", d.planes["lb1"].applied.Version, d.status("lb1").Warnings)
	}
}

// A state folder that is older than what is in force is not gone back to.
func TestOldStateFolder(t *testing.T) {
	d := newDeployment(t)
	d.planes["lb1"] = &fakePlane{wake: make(chan struct{}, 1), pins: t.TempDir()}
	d.start(RoleBalancer, "lb1")
	old, err := os.ReadFile(d.file("lb1", assignmentName))
	if err != nil {
		t.Fatal(err)
	}
	held, err := d.client("lb1").GetAssignment(t.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	next, err := controller.Decode(held.Msg.Assignment)
	if err != nil {
		t.Fatal(err)
	}
	next.Version++
	if _, err := d.client("lb1").SetAssignment(t.Context(), connect.NewRequest(&fairleadv1.SetAssignmentRequest{Assignment: next.Encode(), ExpectedVersion: 1})); err != nil {
		t.Fatal(err)
	}
	// What says so is put back while the daemon runs, as all pins are.
	pins := d.planes["lb1"].pins
	pin := func() string { text, _ := os.Readlink(filepath.Join(pins, forceName)); return text }
	for what, take := range map[string]func() error{
		"all pins are removed": func() error { return errors.Join(os.RemoveAll(pins), os.Mkdir(pins, 0o700)) },
		"it is another's": func() error {
			return makeForce(filepath.Join(pins, forceName), forceText(9, strings.Repeat("0", 64), 1))
		},
	} {
		said := pin()
		if err := take(); err != nil {
			t.Fatal(err)
		}
		d.eventually(what+", and it is put back", func() bool { return said != "" && pin() == said })
	}
	d.stops["lb1"]()
	if err := os.WriteFile(d.file("lb1", assignmentName), old, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.end(RoleBalancer, "lb1"); err == nil || !strings.Contains(err.Error(), "goes by version 2, the newest that was found is version 1 (from disk)") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(d.file("lb1", assignmentName)); err != nil {
		t.Fatal(err)
	}
	if err := d.end(RoleBalancer, "lb1"); err == nil || !strings.Contains(err.Error(), "there is none on disk") {
		t.Errorf("%v", err)
	}
}

// Two assignments under one version: everybody says so, the one that differs from
// most is not ready although it was, and fairlead apply mends it.
func TestDigestsDiffer(t *testing.T) {
	defer func(interval time.Duration) { peerInterval = interval }(peerInterval)
	peerInterval = 200 * time.Millisecond
	d := newDeployment(t)
	defer d.stopAll()
	for name, role := range map[string]Role{"s1": RoleHost, "s2": RoleHost, "lb1": RoleBalancer, "lb2": RoleBalancer} {
		d.start(role, name)
	}
	d.drainAtAll("lb2")
	b, _ := d.cfg.Balancer("lb1")
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + *b.Metrics + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	metric := func(line string) bool { _, body := get("/metrics"); return strings.Contains(body, line) }
	d.eventually("all hear of each other", func() bool {
		return !slices.ContainsFunc(d.status("lb1").Peers, func(p *fairleadv1.Peer) bool { return !p.Reachable || p.AssignmentVersion != 2 })
	})
	if !metric("fairlead_peers_differ 0") || d.warned("lb1", "another one") {
		t.Error("a difference where there is none")
	}
	// What no checksum shows: a build before wrote it.
	d.stops["lb1"]()
	d.changeKey("lb1", true)
	d.start(RoleBalancer, "lb1")
	d.eventually("lb1 sees that it differs", func() bool { return d.warned("lb1", "assignment version 2 is another one at lb2, s1, s2") })
	d.eventually("lb2 sees it", func() bool { return d.warned("lb2", "assignment version 2 is another one at lb1 ") })
	if !metric("fairlead_peers_differ 3") {
		t.Error("no metric says so")
	}
	if code, body := get("/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "most daemons have another assignment version 2") {
		t.Errorf("/ready: %d %s", code, body)
	}
	if s := d.status("lb2"); slices.ContainsFunc(s.NotReady, func(why string) bool { return strings.Contains(why, "another assignment") }) {
		t.Errorf("lb2, which is right, is not ready: %q", s.NotReady)
	}

	file, err := config.Parse("fairlead.yaml", bytes.Replace(must(os.ReadFile(d.cfg.File())), []byte("servers: [s1, s2]"), []byte("servers: [{name: s1, state: drain}, s2]"), 1))
	if err != nil {
		file = d.cfg // it says that s1 works: the series is longer
	}
	ch, err := (&rollout.Coordinator{Config: func() *config.Config { return file }}).Apply(t.Context(), rollout.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(ch.Notes, func(n string) bool { return strings.Contains(n, "version 2 differs at lb1") }) || ch.From == ch.To {
		t.Errorf("apply: versions %d to %d, notes %q", ch.From, ch.To, ch.Notes)
	}
	want := d.status("lb2").AssignmentDigest
	for _, name := range []string{"s1", "s2", "lb1"} {
		if !bytes.Equal(d.status(name).AssignmentDigest, want) {
			t.Errorf("%s differs still", name)
		}
	}
	d.eventually("nobody warns, and lb1 is ready", func() bool {
		code, _ := get("/ready")
		return code == http.StatusOK && !d.warned("lb1", "another one") && metric("fairlead_peers_differ 0")
	})
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

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
	p := &fakePlane{pins: t.TempDir()}
	d := &daemon{plane: p, log: slog.New(slog.DiscardHandler)}
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
	path := filepath.Join(p.pins, forceName)
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
	d := &daemon{}
	d.clock.Store(&sharedClock{source: clockPinned})
	err := d.mayReplace(pinnedForce{version: 3}, &controller.Assignment{Version: 2}, "lb2", false)
	if err == nil || !strings.Contains(err.Error(), "version 2 (from lb2)") || strings.Contains(err.Error(), "on disk") {
		t.Error(err)
	}
}
