package member_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

// A balancer whose daemon was away while a server began to drain, drains it
// from when it heard of that: until then its maps gave it connections and
// tracked none. A restart keeps the time; with programs loaded anew there are
// no such connections, and the assignment's time counts.
func TestOwnTimes(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	for _, name := range []string{"s1", "s2"} {
		d.Start(config.RoleHost, name)
	}
	for _, name := range []string{"lb1", "lb2"} {
		d.Start(config.RoleBalancer, name)
	}
	applied := func() controller.Slot {
		p := d.Planes["lb1"]
		p.Lock()
		defer p.Unlock()
		s, _ := p.Applied.VIPs[0].Slot(0)
		return *s
	}
	d.Stops["lb1"]()
	if err := d.Drain("s1"); err != nil {
		t.Fatal(err)
	}
	held, err := d.Client("lb2").GetAssignment(t.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	a, err := controller.Decode(held.Msg.Assignment)
	if err != nil {
		t.Fatal(err)
	}
	shared, _ := a.VIPs[0].Slot(0)
	d.Eventually("a millisecond, as times in assignments are of", func() bool { return time.Since(shared.DrainSince) > 2*time.Millisecond })
	back := time.Now()
	d.Start(config.RoleBalancer, "lb1")
	own := applied()
	if own.State != controller.Draining || own.DrainSince.Before(back) {
		t.Errorf("lb1 drains s1, %s, since %s; it is back since %s and others drain since %s", own.State, own.DrainSince, back, shared.DrainSince)
	}
	onDisk, err := member.ReadAssignment(d.State(), "lb1")
	if err != nil || string(onDisk.Encode()) != string(held.Msg.Assignment) {
		t.Errorf("the assignment on disk is not the one that all share: %v", err)
	}

	d.Stops["lb1"]()
	d.Start(config.RoleBalancer, "lb1")
	if again := applied(); !again.DrainSince.Equal(own.DrainSince) {
		t.Errorf("after a restart it drains since %s, before since %s", again.DrainSince, own.DrainSince)
	}

	// What it kept cannot be read: the assignment's own time is next best.
	d.Stops["lb1"]()
	if err := os.WriteFile(filepath.Join(d.Dir, "state", "lb1", "own.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	if got := applied(); !got.DrainSince.Equal(shared.DrainSince) {
		t.Errorf("without its own times it drains since %s, the assignment says %s", got.DrainSince, shared.DrainSince)
	}

	// The machine was rebooted.
	d.Stops["lb1"]()
	d.Planes["lb1"].Base = nil
	d.Start(config.RoleBalancer, "lb1")
	if got := applied(); !got.DrainSince.Equal(shared.DrainSince) {
		t.Errorf("with empty maps it drains since %s, the assignment says %s", got.DrainSince, shared.DrainSince)
	}
}

// What a peer had when it last answered is remembered while it is away, also
// over a reload: a change is judged by it.
func TestPeerVersionStays(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	d.Start(config.RoleBalancer, "lb1")
	d.Start(config.RoleBalancer, "lb2")
	peer := func() *fairleadv1.Peer {
		for _, p := range d.Status("lb1").Peers {
			if p.Name == "lb2" {
				return p
			}
		}
		return &fairleadv1.Peer{}
	}
	d.Eventually("lb1 hears of lb2's version", func() bool { return peer().Reachable && peer().AssignmentVersion == 1 })
	d.Stops["lb2"]()
	d.Eventually("lb1 misses lb2", func() bool { return !peer().Reachable })
	if p := peer(); p.AssignmentVersion != 1 {
		t.Errorf("lb2 is remembered with version %d", p.AssignmentVersion)
	}
}
