package daemon_test

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

// A disk that fails when the new file has its name already: the change is in force, and
// on disk as soon as that takes it.
func TestNotOnDisk(t *testing.T) {
	works := *daemon.SyncDir
	var broken atomic.Bool
	*daemon.SyncDir = func(path string) error {
		if broken.Load() {
			return syscall.EIO
		}
		return works(path)
	}
	defer func() { *daemon.SyncDir = works }()
	d := membertest.New(t)
	defer d.StopAll()
	d.Start(config.RoleBalancer, "lb1")
	broken.Store(true)
	if err := d.Drain("s1", "s1", "s2", "lb2"); err != nil || d.Status("lb1").AssignmentVersion != 2 || !d.Warned("lb1", "is not on disk") {
		t.Errorf("a change that the disk may have lost: %v, version %d, warnings %q", err, d.Status("lb1").AssignmentVersion, d.Status("lb1").Warnings)
	}
	broken.Store(false)
	d.Eventually("version 2 is on disk, and nobody warns", func() bool {
		a, err := member.ReadAssignment(d.State(), "lb1")
		return err == nil && a.Version == 2 && !d.Warned("lb1", "is not on disk")
	})
}
