package member_test

import (
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

var everybody = []string{"s1", "s2", "lb1", "lb2"}

// stored is a deployment whose first version has been made.
func stored(t *testing.T) *membertest.Deployment {
	t.Helper()
	d := membertest.NewStored(t)
	serve := d.BeginAll()
	d.Eventually("all wait for a first version", func() bool {
		for _, name := range everybody {
			if !strings.Contains(d.Phase(name), "waiting for a first version") {
				return false
			}
		}
		return true
	})
	if ch, err := d.Coordinator().Apply(t.Context(), d.Text(), rollout.Options{}); err != nil || ch.To != 1 {
		t.Fatal(ch, err)
	}
	serve()
	return d
}

func drain(t *testing.T, d *membertest.Deployment, at, server string) error {
	t.Helper()
	_, err := d.Client(at).DrainServer(t.Context(), connect.NewRequest(&fairleadv1.DrainServerRequest{Vip: "web", Server: server}))
	return err
}

func have(t *testing.T, d *membertest.Deployment, version uint64, names ...string) {
	t.Helper()
	for _, name := range names {
		if s := d.Status(name); s.AssignmentVersion != version {
			t.Errorf("%s has version %d, not %d", name, s.AssignmentVersion, version)
		}
	}
}

// TestStored: daemons that have nothing wait for the store's first version; a verb
// at any of them is agreed on and reaches all; nobody hands a version round; one
// that was away takes the newest when it is back.
func TestStored(t *testing.T) {
	t.Parallel()
	d := stored(t)
	have(t, d, 1, everybody...)
	if err := drain(t, d, "lb2", "s1"); err != nil {
		t.Fatal(err)
	}
	have(t, d, 2, everybody...)
	next := d.Held("lb1").Clone()
	next.Version++
	_, err := d.Client("lb1").SetAssignment(t.Context(), connect.NewRequest(&fairleadv1.SetAssignmentRequest{Assignment: next.Encode(), ExpectedVersion: 2}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a version that nobody agreed on: %v", err)
	}
	d.Stops["lb1"]()
	if err := drain(t, d, "s1", "s2"); err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	have(t, d, 3, everybody...)
}

// TestStoreGone: without the store all goes on, restarts included, changes are
// refused with the reason, and daemons say so; with it everything is as before.
func TestStoreGone(t *testing.T) {
	t.Parallel()
	d := stored(t)
	d.Cut(true, everybody...)
	err := drain(t, d, "lb1", "s1")
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a change without a store: %v", err)
	}
	have(t, d, 1, everybody...)
	d.Eventually("a daemon says that the store is gone", func() bool { return d.Warned("lb1", "changes wait: ") })
	d.Cut(false, everybody...)
	d.Eventually("the store is there again", func() bool { return !d.Warned("lb1", "changes wait: ") })
	if err := drain(t, d, "lb1", "s1"); err != nil {
		t.Error(err)
	}
	have(t, d, 2, everybody...)
}

// TestOldStore: a store that was put back from an older copy takes nobody back, and
// neither does one that has another version of the same number.
func TestOldStore(t *testing.T) {
	t.Parallel()
	d := stored(t)
	if err := drain(t, d, "lb2", "s1"); err != nil {
		t.Fatal(err)
	}
	d.Stops["lb1"]()
	d.Memory = store.NewMemory()
	l := d.Coordinator().Ledger
	a, err := controller.First(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	head, err := l.Append(t.Context(), mustHead(t, l), nil, a, ledger.Change{Who: "somebody"})
	if err == nil {
		head, err = l.Turn(t.Context(), head, 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	d.Eventually("lb1 says that the store is older", func() bool { return d.Warned("lb1", "the store has version 1, and this daemon goes by 2") })
	have(t, d, 2, "lb1")
	other := a.Clone()
	other.Version = 2
	if head, err = l.Append(t.Context(), head, a, other, ledger.Change{Who: "somebody"}); err == nil {
		_, err = l.Turn(t.Context(), head, 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Eventually("lb1 says that the store has another", func() bool { return d.Warned("lb1", "the store has another version 2") })
	if v, _ := d.Held("lb1").VIP("web"); v.Slots[0].State != controller.Draining {
		t.Errorf("lb1 took over %+v", v.Slots)
	}
}

func mustHead(t *testing.T, l *ledger.Ledger) ledger.Head {
	t.Helper()
	h, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestIntoStore: a deployment that handed versions round gets a store: daemons are
// restarted one by one, and what they have is the store's first version.
func TestIntoStore(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	d.StartAll()
	if err := drain(t, d, "lb2", "s1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(d.Config.File())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Config.File(), append(text, membertest.Controllers...), 0o600); err != nil {
		t.Fatal(err)
	}
	if d.Config, err = config.Load(d.Config.File()); err != nil {
		t.Fatal(err)
	}
	for name, is := range map[string]config.Role{"s1": config.RoleHost, "s2": config.RoleHost, "lb1": config.RoleBalancer, "lb2": config.RoleBalancer} {
		d.Stops[name]()
		d.Start(is, name)
	}
	have(t, d, 2, everybody...)
	if err := drain(t, d, "lb1", "s2"); err != nil {
		t.Fatal(err)
	}
	have(t, d, 3, everybody...)
	records, err := d.Coordinator().Ledger.History(t.Context(), 0)
	if err != nil || len(records) != 2 || records[0].Version != 2 || !strings.Contains(records[0].What[0], "taken over") {
		t.Errorf("%+v %v", records, err)
	}
}
