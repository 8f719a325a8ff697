package member_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/store"
)

var everybody = []string{"s1", "s2", "lb1", "lb2"}

// stored is a deployment whose first version has been made.
func stored(t *testing.T) *membertest.Deployment {
	t.Helper()
	return storedOn(t, func(*membertest.Deployment) {})
}

// storedOn is stored, of which prepare has made planes first.
func storedOn(t *testing.T, prepare func(*membertest.Deployment)) *membertest.Deployment {
	t.Helper()
	d := membertest.NewEmpty(t)
	prepare(d)
	serve := d.BeginAll()
	d.Eventually("all wait for a first version", func() bool {
		for _, name := range everybody {
			if !strings.Contains(d.Phase(name), "waiting for a first version") {
				return false
			}
		}
		return true
	})
	d.Eventually("the store has none, they say", func() bool { return strings.Contains(d.Phase("lb1"), "answers, and has none yet") })
	if ch, err := d.Coordinator().Apply(t.Context(), d.Text(), rollout.Options{}); err != nil || ch.To != 1 {
		t.Fatal(ch, err)
	}
	serve()
	return d
}

func have(t *testing.T, d *membertest.Deployment, version uint64, names ...string) {
	t.Helper()
	for _, name := range names {
		if s := d.Status(name); s.AssignmentVersion != version {
			t.Errorf("%s has version %d, not %d", name, s.AssignmentVersion, version)
		}
	}
}

// TestStored: daemons that have nothing wait for the store's first version; a change
// reaches all; one that was away takes the newest when it is back.
func TestStored(t *testing.T) {
	t.Parallel()
	d := stored(t)
	have(t, d, 1, everybody...)
	if err := d.Drain("s1"); err != nil {
		t.Fatal(err)
	}
	have(t, d, 2, everybody...)
	d.Stops["lb1"]()
	if err := d.Undrain("s1"); err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	have(t, d, 3, everybody...)
}

// TestStoreGone: without the store all goes on, restarts included, and daemons say so;
// with it everything is as before.
func TestStoreGone(t *testing.T) {
	t.Parallel()
	d := stored(t)
	d.Cut(true, everybody...)
	d.Eventually("a daemon says that the store is gone", func() bool { return d.Warned("lb1", "changes wait: ") })
	d.Stops["lb1"]()
	d.Away = true
	d.Start(config.RoleBalancer, "lb1")
	d.Away = false
	have(t, d, 1, everybody...)
	d.Cut(false, everybody...)
	d.Eventually("the store is there again", func() bool { return !d.Warned("lb1", "changes wait: ") })
	if err := d.Drain("s1"); err != nil {
		t.Error(err)
	}
	have(t, d, 2, everybody...)
}

// TestOldStore: a store that was put back from an older copy takes nobody back, and
// neither does one that has another version of the same number.
func TestOldStore(t *testing.T) {
	t.Parallel()
	d := stored(t)
	if err := d.Drain("s1"); err != nil {
		t.Fatal(err)
	}
	d.Stops["lb1"]()
	d.Memory = store.NewMemory()
	a, err := controller.First(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	d.Agree(nil, a)
	d.Start(config.RoleBalancer, "lb1")
	d.Eventually("lb1 says that the store is older", func() bool { return d.Warned("lb1", "the store has version 1, and this daemon goes by 2") })
	have(t, d, 2, "lb1")
	other := a.Clone()
	other.Version = 2
	d.Agree(a, other)
	d.Eventually("lb1 says that the store has another", func() bool { return d.Warned("lb1", "the store has another version 2") })
	if v, _ := d.Held("lb1").VIP("web"); v.Slots[0].State != controller.Draining {
		t.Errorf("lb1 took over %+v", v.Slots)
	}
}

// TestIntoStore: a deployment whose daemons handed versions round, and keep them on
// disk, comes into a store: what they have is its first version, though a file of
// today would give another.
func TestIntoStore(t *testing.T) {
	t.Parallel()
	d := membertest.NewEmpty(t)
	a, err := controller.First(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	a.Version, a.VIPs[0].Slots[0].State, a.VIPs[0].Slots[0].DrainSince = 2, controller.Draining, time.Now()
	for _, name := range everybody {
		s, err := daemon.OpenState(d.State(), name, daemon.UnsavedForce, slog.New(slog.DiscardHandler))
		if err == nil {
			err = errors.Join(s.Write("assignment.json", a.Encode()), s.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d.BeginAll()()
	have(t, d, 2, everybody...)
	if err := d.Undrain("s1"); err != nil {
		t.Fatal(err)
	}
	have(t, d, 3, everybody...)
	records, err := d.Coordinator().Ledger.History(t.Context(), 0, 999)
	if err != nil || len(records) != 2 || records[0].Version != 2 || !strings.Contains(records[0].What[0], "taken over") {
		t.Errorf("%+v %v", records, err)
	}
}
