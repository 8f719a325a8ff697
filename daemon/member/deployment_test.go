package member_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

// Four daemons over mutual TLS: one clock, one assignment, changes reach all,
// one that was away catches up, and state survives.
func TestDeployment(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	all := []string{"s1", "s2", "lb1", "lb2"}
	d.StartAll()
	if s := d.Status("s1"); s.Clock.Source != "wall" {
		t.Errorf("the first daemon's clock comes from %s", s.Clock.Source)
	}
	base := d.Status("s1").Clock.BaseMs
	for _, name := range all[1:] {
		s := d.Status(name)
		if diff := int32(s.Clock.BaseMs - base); s.Clock.Source != "peers" || diff < -500 || diff > 500 {
			t.Errorf("%s: clock from %s, %d ms from s1's", name, s.Clock.Source, diff)
		}
	}
	if err := d.Drain("s1"); err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if v := d.Status(name).AssignmentVersion; v != 2 {
			t.Errorf("%s has version %d", name, v)
		}
	}
	// lb1 is away while s1 comes back.
	d.Stops["lb1"]()
	if err := d.Undrain("s1"); err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	if s := d.Status("lb1"); s.AssignmentVersion != 3 || s.Clock.Source != "pinned" {
		t.Errorf("lb1 came back with version %d, clock %s", s.AssignmentVersion, s.Clock.Source)
	}
	// What the plane refuses is neither in force nor on disk.
	d.Planes["lb1"].Lock()
	d.Planes["lb1"].Refuse = os.ErrInvalid
	d.Planes["lb1"].Unlock()
	held := d.Held("lb1")
	next := held.Clone()
	next.Version++
	d.Agree(held, next)
	d.Eventually("lb1 says that it cannot go by version 4", func() bool { return d.Warned("lb1", "what the store has is not in force here: ") })
	if s := d.Status("lb1"); s.AssignmentVersion != 3 {
		t.Errorf("version %d in force after a refusal", s.AssignmentVersion)
	}
	onDisk, err := member.ReadAssignment(d.State(), "lb1")
	if err != nil || string(onDisk.Encode()) != string(held.Encode()) {
		t.Errorf("on disk after a refusal: %v", err)
	}
	d.Planes["lb1"].Lock()
	d.Planes["lb1"].Refuse = nil
	d.Planes["lb1"].Unlock()
	d.Eventually("it goes by it", func() bool { return d.Status("lb1").AssignmentVersion == 4 })
	// A change of health applies the assignment again.
	before := d.Planes["lb1"].Applies()
	d.Planes["lb1"].Wake <- struct{}{}
	d.Eventually("the plane is applied again", func() bool { return d.Planes["lb1"].Applies() > before })
}

// Without a certificate of the deployment's CA nobody is answered.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	d.Start(config.RoleBalancer, "lb1")
	stranger := membertest.New(t) // other keys
	c, err := api.Dial(d.Endpoint("lb1"), config.TLS{CA: d.Config.TLS.CA, Cert: stranger.Config.TLS.Cert, Key: stranger.Config.TLS.Key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetAssignment(t.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{})); err == nil {
		t.Fatal("a stranger was given the keys")
	}
}

// An assignment on disk that this build does not read is refused before anything in
// the kernel is replaced.
func TestRefusesAssignmentFirst(t *testing.T) {
	d := membertest.New(t)
	s, err := daemon.OpenState(d.State(), "lb1", daemon.UnsavedForce, slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.Write("assignment.json", []byte(`{"future": 1}`))
		s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = member.Run(t.Context(), d.Options("lb1"), membertest.Role(config.RoleBalancer, func(*member.Member) (member.Opened, error) {
		t.Error("the kernel was touched")
		return member.Opened{}, errors.New("touched")
	}))
	if err == nil || !strings.Contains(err.Error(), "start a build that knows it") {
		t.Errorf("%v", err)
	}
}

// Daemons that start together agree on one clock: one of them reads the wall
// clock, the others wait for it.
func TestColdStart(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	all := map[string]config.Role{"s1": config.RoleHost, "s2": config.RoleHost, "lb1": config.RoleBalancer, "lb2": config.RoleBalancer}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var delay time.Duration
	for name, role := range all {
		p := membertest.NewPlane("")
		delay += 60 * time.Millisecond
		opening := delay // loading programs takes one longer than another
		wg.Go(func() {
			err := member.Run(ctx, d.Options(name), membertest.Role(role, func(*member.Member) (member.Opened, error) {
				time.Sleep(opening)
				return p.Opened(), nil
			}))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	sources := map[string]int{}
	for name := range all {
		d.Eventually(name+" serves", func() bool { _, err := d.Try(name); return err == nil })
		s := d.Status(name)
		sources[s.Clock.Source]++
	}
	if sources["wall"] != 1 || sources["peers"] != len(all)-1 {
		t.Errorf("clocks come from %v, want one from the wall clock", sources)
	}
}
