package member

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

// lateClient answers what time it is when it may.
type lateClient struct {
	fairleadv1connect.FairleadClient
	asked, gate chan struct{}
}

func (c *lateClient) GetTime(context.Context, *connect.Request[fairleadv1.GetTimeRequest]) (*connect.Response[fairleadv1.GetTimeResponse], error) {
	select {
	case c.asked <- struct{}{}:
	case <-c.gate:
	}
	<-c.gate
	return connect.NewResponse(&fairleadv1.GetTimeResponse{AssignmentVersion: 7}), nil
}

// watched is who was followed last.
type watched struct{ names []string }

func (w *watched) Heard(string, error) {}
func (w *watched) Follow(peers []*Peer) {
	w.names = nil
	for _, p := range peers {
		w.names = append(w.names, p.Name)
	}
}

// TestForgotten: of daemons that left the file nothing stays: no status, no skew, no
// fault of theirs; nor does an answer that comes when they have left bring them back.
func TestForgotten(t *testing.T) {
	dir := t.TempDir()
	const file = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb1, interfaces: [eth0]}, {name: lb2, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.0.2}, {name: s2, address: 10.0.0.3}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1, s2]}]
controllers: [{name: c1}]
`
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "fairlead.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file)
	m := newMember(Options{File: filepath.Join(dir, "fairlead.yaml"), Name: "lb1", Log: slog.New(slog.DiscardHandler)}, Role{
		Is: config.RoleBalancer, Fixed: func(config.Self) []Setting { return nil },
		Service: func(m *Member) fairleadv1connect.FairleadHandler { return Service{m} },
	})
	if err := m.read(); err != nil {
		t.Fatal(err)
	}
	first, err := controller.First(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	m.force.Store(&inForce{Assignment: first})
	follows := new(watched)
	m.opened.Peers = follows
	l := &learner{m: m, errors: map[string]string{}}
	gate, asked := make(chan struct{}), make(chan struct{})
	for _, p := range m.peers.list() {
		p.Client = &lateClient{asked: asked, gate: gate}
		l.errors[p.Name] = "it is slow"
	}
	round := func() { m.askPeers(t.Context()) }
	answered := make(chan struct{}) // a first round, which all answer
	close(gate)
	round()
	if peers, _ := m.peers.report(); len(peers) != 3 || peers[0].AssignmentVersion != 7 {
		t.Fatalf("before: %v", peers)
	}
	gate = make(chan struct{})
	for _, p := range m.peers.list() {
		p.Client = &lateClient{asked: asked, gate: gate}
	}
	go func() { round(); close(answered) }()
	for range m.peers.list() {
		<-asked
	}
	for _, left := range []string{", {name: lb2, interfaces: [eth0]}", ", {name: s2, address: 10.0.0.3}", ", s2"} {
		if !bytes.Contains([]byte(file), []byte(left)) {
			t.Fatal(left)
		}
	}
	write(strings.NewReplacer(", {name: lb2, interfaces: [eth0]}", "", ", {name: s2, address: 10.0.0.3}", "", ", s2", "").Replace(file))
	m.reload()
	close(gate)
	<-answered
	l.free()
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	for what, names := range map[string][]string{"heard": slices.Sorted(maps.Keys(m.peers.heard)), "faults": slices.Sorted(maps.Keys(l.errors)), "followed": follows.names} {
		if !slices.Equal(names, []string{"s1"}) {
			t.Errorf("%s: %q", what, names)
		}
	}
	if len(m.peers.when) > 0 || len(m.peers.skew) > 0 {
		t.Errorf("%v %v", m.peers.when, m.peers.skew)
	}
}
