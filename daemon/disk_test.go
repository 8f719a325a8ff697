package daemon_test

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

// A disk that fails when the new file has its name already: the change is refused,
// and what is in force is on disk again as soon as that takes it.
func TestRefusedNotOnDisk(t *testing.T) {
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
	next := d.Held("lb1")
	next.Version++
	broken.Store(true)
	_, err := d.Client("lb1").SetAssignment(t.Context(), connect.NewRequest(&fairleadv1.SetAssignmentRequest{Assignment: next.Encode(), ExpectedVersion: 1}))
	if err == nil || !strings.Contains(err.Error(), "save assignment.json") || d.Status("lb1").AssignmentVersion != 1 {
		t.Errorf("a change that the disk may have lost: %v, version %d", err, d.Status("lb1").AssignmentVersion)
	}
	broken.Store(false)
	d.Eventually("version 1 is on disk, and nobody warns", func() bool {
		a, err := member.ReadAssignment(d.State(), "lb1")
		return err == nil && a.Version == 1 && !d.Warned("lb1", "is not on disk")
	})
}
