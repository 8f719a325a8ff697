package member_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/sealed"
	"github.com/fairlead/fairlead/store"
)

// drainAtAll makes version 2 everywhere: s1 drains.
func drainAtAll(d *membertest.Deployment, without ...string) {
	d.T.Helper()
	if err := d.Drain("s1", without...); err != nil {
		d.T.Fatal(err)
	}
}

// changeKey changes one character of a key in a daemon's assignment on disk;
// whoever reseals wants to deceive.
func changeKey(d *membertest.Deployment, name string, reseal bool) (before *controller.Assignment) {
	d.T.Helper()
	before, err := member.ReadAssignment(d.State(), name)
	if err != nil {
		d.T.Fatal(err)
	}
	file, err := os.ReadFile(d.File(name, "assignment.json"))
	if err != nil {
		d.T.Fatal(err)
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
	if err := os.WriteFile(d.File(name, "assignment.json"), file, 0o600); err != nil {
		d.T.Fatal(err)
	}
	return before
}

// One changed character of a key on disk: it is never used. The daemon goes on
// from the store and says so; without the store it waits, and programs go on.
func TestDamagedAssignment(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	d.Planes["lb1"] = membertest.NewPlane(t.TempDir())
	d.Start(config.RoleHost, "s1")
	d.Start(config.RoleBalancer, "lb1")
	drainAtAll(d, "s2", "lb2")

	d.Stops["lb1"]()
	before := changeKey(d, "lb1", false)
	d.Start(config.RoleBalancer, "lb1")
	held := d.Planes["lb1"].Applied
	if held.Version != 2 || !bytes.Equal(held.Keys[0].Secret, before.Keys[0].Secret) {
		t.Errorf("version %d is in force, with the key on disk: %v", held.Version, !bytes.Equal(held.Keys[0].Secret, before.Keys[0].Secret))
	}
	if !d.Warned("lb1", "its checksum is wrong") {
		t.Errorf("no warning: %q", d.Status("lb1").Warnings)
	}
	if _, err := os.Stat(d.File("lb1", "assignment.json.damaged")); err != nil {
		t.Error(err)
	}

	// Sealed anew: what is pinned knows better.
	d.Stops["lb1"]()
	changeKey(d, "lb1", true)
	d.Start(config.RoleBalancer, "lb1")
	if held = d.Planes["lb1"].Applied; !bytes.Equal(held.Keys[0].Secret, before.Keys[0].Secret) || !d.Warned("lb1", "the programs go by another one") {
		t.Errorf("sealed anew, it is used; warnings %q", d.Status("lb1").Warnings)
	}

	// The clock in the maps.
	d.Stops["lb1"]()
	base := *d.Planes["lb1"].Base
	*d.Planes["lb1"].Base ^= 1 << 20
	d.Start(config.RoleBalancer, "lb1")
	if *d.Planes["lb1"].Base != base || d.Status("lb1").Clock.BaseMs != base || !d.Warned("lb1", "the clock in the pinned maps was damaged") {
		t.Errorf("the clock is %d, was %d: %q", *d.Planes["lb1"].Base, base, d.Status("lb1").Warnings)
	}

	// The store does not answer.
	d.Stops["lb1"]()
	changeKey(d, "lb1", false)
	applies := d.Planes["lb1"].Applies()
	d.StopAll()
	d.Away = true
	serves := d.Begin(d.Role(config.RoleBalancer, "lb1"), "lb1")
	d.Eventually("lb1 waits", func() bool { return strings.Contains(d.Phase("lb1"), rollout.Waiting) })
	d.Eventually("it says for whom", func() bool {
		return strings.Contains(d.Phase("lb1"), "does not answer (") && strings.Contains(d.Phase("lb1"), "start `fairlead controller` on c1, or put right in ")
	})
	if d.Planes["lb1"].Applies() != applies {
		t.Error("what is pinned was replaced")
	}
	d.Cut(false, "lb1")
	serves()
	if held = d.Planes["lb1"].Applied; held.Version != 2 || !bytes.Equal(held.Keys[0].Secret, before.Keys[0].Secret) {
		t.Errorf("with the store again: version %d", held.Version)
	}
}

// A state folder that is older than what is in force is not gone back to.
func TestOldStateFolder(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	d.Planes["lb1"] = membertest.NewPlane(t.TempDir())
	d.Start(config.RoleBalancer, "lb1")
	old, err := os.ReadFile(d.File("lb1", "assignment.json"))
	if err != nil {
		t.Fatal(err)
	}
	drainAtAll(d, "s1", "s2", "lb2")
	// What says so is put back while the daemon runs, as all pins are.
	pins := d.Planes["lb1"].Pins
	pin := func() string { text, _ := os.Readlink(filepath.Join(pins, "force")); return text }
	for what, take := range map[string]func() error{
		"all pins are removed": func() error { return errors.Join(os.RemoveAll(pins), os.Mkdir(pins, 0o700)) },
		"it is another's": func() error {
			return member.MakeForce(filepath.Join(pins, "force"), member.ForceText(9, strings.Repeat("0", 64), 1))
		},
	} {
		said := pin()
		if err := take(); err != nil {
			t.Fatal(err)
		}
		d.Eventually(what+", and it is put back", func() bool { return said != "" && pin() == said })
	}
	d.Stops["lb1"]()
	if err := os.WriteFile(d.File("lb1", "assignment.json"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Memory = store.NewMemory() // its disk is as old
	if err := d.End("lb1"); err == nil || !strings.Contains(err.Error(), "goes by version 2, the newest that was found is version 1 (from disk)") {
		t.Errorf("%v", err)
	}
}

// Two assignments under one version: everybody says so, the one that differs from
// most is not ready although it was, and fairlead apply mends it.
func TestDigestsDiffer(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	defer d.StopAll()
	for name, role := range map[string]config.Role{"s1": config.RoleHost, "s2": config.RoleHost, "lb1": config.RoleBalancer, "lb2": config.RoleBalancer} {
		d.Start(role, name)
	}
	drainAtAll(d)
	get := func(path string) (int, string) { return d.Get("lb1", path) }
	metric := func(line string) bool { _, body := get("/metrics"); return strings.Contains(body, line) }
	d.Eventually("all hear of each other", func() bool {
		return !slices.ContainsFunc(d.Status("lb1").Peers, func(p *fairleadv1.Peer) bool { return !p.Reachable || p.AssignmentVersion != 2 })
	})
	if !metric("fairlead_peers_differ 0") || d.Warned("lb1", "another one") {
		t.Error("a difference where there is none")
	}
	// What no checksum shows: a build before wrote it.
	d.Stops["lb1"]()
	changeKey(d, "lb1", true)
	d.Start(config.RoleBalancer, "lb1")
	d.Eventually("lb1 sees that it differs", func() bool { return d.Warned("lb1", "assignment version 2 is another one at lb2, s1, s2") })
	d.Eventually("lb2 sees it", func() bool { return d.Warned("lb2", "assignment version 2 is another one at lb1 ") })
	if !metric("fairlead_peers_differ 3") {
		t.Error("no metric says so")
	}
	if code, body := get("/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "most daemons have another assignment version 2") {
		t.Errorf("/ready: %d %s", code, body)
	}
	if s := d.Status("lb2"); slices.ContainsFunc(s.NotReady, func(why string) bool { return strings.Contains(why, "another assignment") }) {
		t.Errorf("lb2, which is right, is not ready: %q", s.NotReady)
	}

	// The next change mends it.
	if _, err := d.Coordinator().Do(t.Context(), rollout.Options{}, controller.Op{Kind: controller.Undrain, VIP: "web", Server: "s1"}); err != nil {
		t.Fatal(err)
	}
	want := d.Status("lb2").AssignmentDigest
	for _, name := range []string{"s1", "s2", "lb1"} {
		if !bytes.Equal(d.Status(name).AssignmentDigest, want) {
			t.Errorf("%s differs still", name)
		}
	}
	d.Eventually("nobody warns, and lb1 is ready", func() bool {
		code, _ := get("/ready")
		return code == http.StatusOK && !d.Warned("lb1", "another one") && metric("fairlead_peers_differ 0")
	})
}
