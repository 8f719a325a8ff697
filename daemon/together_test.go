package daemon

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
)

// endingPlane is a balancer's plane that notes from when on counts end chains.
type endingPlane struct {
	fakePlane
	at    sync.Mutex
	after time.Time
}

func (p *endingPlane) endAfter(t time.Time) {
	p.at.Lock()
	defer p.at.Unlock()
	p.after = t
}

func (p *endingPlane) bound() time.Time {
	p.at.Lock()
	defer p.at.Unlock()
	return p.after
}

// Reports end chains once every balancer has the version in force, and not
// while one of them may go by another.
func TestTogether(t *testing.T) {
	d := newDeployment(t)
	p := &endingPlane{fakePlane: fakePlane{wake: make(chan struct{}, 1)}}
	began := time.Now()
	d.startWith(RoleBalancer, "lb1", func(self, *config.Config, Options, *slog.Logger) (plane, error) { return p, nil })
	d.eventually("lb2, which does not answer, holds chains", func() bool { return p.bound().Equal(never) })
	d.start(RoleBalancer, "lb2")
	d.eventually("both have it", func() bool { return p.bound().Before(never) })
	if at := p.bound(); at.Before(began.Add(inFlight)) || at.After(time.Now().Add(inFlight)) {
		t.Errorf("counts end chains from %v after the start on", at.Sub(began))
	}
	// A change puts both off, until lb2 has said that it has it.
	drain := &fairleadv1.DrainServerRequest{Vip: "web", Server: "s1", Without: []string{"s1", "s2"}}
	changed := time.Now()
	if _, err := d.client("lb2").DrainServer(t.Context(), connect.NewRequest(drain)); err != nil {
		t.Fatal(err)
	}
	d.eventually("both have the next", func() bool { at := p.bound(); return at.After(changed.Add(inFlight)) && at.Before(never) })
	d.stops["lb2"]()
	d.eventually("lb2 is away", func() bool { return p.bound().Equal(never) })
}

// One moment a version, however often it is heard again.
func TestTogetherMoment(t *testing.T) {
	var told []time.Time
	w := together{tell: func(t time.Time) { told = append(told, t) }}
	now := time.Unix(1000, 0)
	w.heard(true, now)
	w.heard(true, now.Add(time.Second))
	w.behind()
	w.heard(false, now.Add(2*time.Second))
	w.heard(true, now.Add(3*time.Second))
	want := []time.Time{now.Add(inFlight), never, never, now.Add(3*time.Second + inFlight)}
	if len(told) != len(want) {
		t.Fatalf("told %v, want %v", told, want)
	}
	for i := range want {
		if !told[i].Equal(want[i]) {
			t.Errorf("told %v, want %v", told, want)
		}
	}
	new(together).heard(true, now) // a host's: nobody to tell
}
