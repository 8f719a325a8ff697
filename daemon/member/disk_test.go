package member_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

// A disk that is full, or read-only, stops no daemon: each starts from what is
// there; what the store has goes into force and is said not to be on disk, until it is.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	defer d.StopAll()
	disk := filepath.Join(d.Dir, "state", "lb1")
	daemontest.SmallDisk(t, disk)
	d.Planes["lb1"] = membertest.NewPlane(t.TempDir())
	for name, role := range map[string]config.Role{"s1": config.RoleHost, "s2": config.RoleHost, "lb1": config.RoleBalancer, "lb2": config.RoleBalancer} {
		d.Start(role, name)
	}
	// Nothing new to write.
	d.Stops["lb1"]()
	empty := daemontest.Fill(t, disk)
	d.Start(config.RoleBalancer, "lb1")
	if d.Warned("lb1", "not on disk") {
		t.Errorf("all is on disk: %q", d.Status("lb1").Warnings)
	}
	// It was away meanwhile, and catches up.
	d.Stops["lb1"]()
	if err := d.Drain("s1"); err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	version := d.Status("lb2").AssignmentVersion
	unsaved := func() bool {
		_, body := d.Get("lb1", "/metrics")
		return !strings.Contains(body, "fairlead_state_unsaved_files 0")
	}
	if s := d.Status("lb1"); s.AssignmentVersion != version || version < 2 || !d.Warned("lb1", "is not on disk") || !unsaved() {
		t.Errorf("caught up: version %d of %d, warnings %q", s.AssignmentVersion, version, s.Warnings)
	}
	onDisk := func() uint64 {
		a, err := member.ReadAssignment(d.State(), "lb1")
		if err != nil || a == nil {
			return 0
		}
		return a.Version
	}
	if v := onDisk(); v != 1 {
		t.Errorf("on a full disk is version %d", v)
	}
	// Killed now, with nobody to ask: not back to version 1.
	d.StopAll()
	d.Away = true
	if err := d.End("lb1"); err == nil || !strings.Contains(err.Error(), "version 1 (from disk)") {
		t.Errorf("older than what is in force: %v", err)
	}
	d.Away = false
	d.Start(config.RoleBalancer, "lb1")
	empty()
	d.Eventually("it is on disk, and nobody warns", func() bool { return onDisk() == version && !d.Warned("lb1", "is not on disk") && !unsaved() })
	// The kernel has made the disk read-only.
	d.Stops["lb1"]()
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	if s := d.Status("lb1"); s.AssignmentVersion != version || d.Warned("lb1", "is not on disk") {
		t.Errorf("from a read-only disk: version %d, warnings %q", s.AssignmentVersion, s.Warnings)
	}
	if _, err := daemon.OpenState(d.State(), "lb1", "", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second daemon on a read-only disk: %v", err)
	}
}
