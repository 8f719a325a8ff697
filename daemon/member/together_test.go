package member

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

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

// What a peer had when it last answered stays over a reload.
func TestPeerVersionStaysOverReload(t *testing.T) {
	cfg := testConfig(t)
	var table peerTable
	if err := table.set(cfg, "lb1"); err != nil {
		t.Fatal(err)
	}
	table.heard["lb2"] = &fairleadv1.Peer{Name: "lb2", AssignmentVersion: 7}
	if err := table.set(cfg, "lb1"); err != nil {
		t.Fatal(err)
	}
	if peers, _ := table.report(); len(peers) != 1 || peers[0].AssignmentVersion != 7 {
		t.Errorf("after a reload: %v", peers)
	}
}
