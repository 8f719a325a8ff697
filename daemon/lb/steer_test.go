package lb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/vip"
)

// steeredPlane keeps what it is told.
type steeredPlane struct {
	rows map[lb.SteerKey]steer.Row
	fail error
}

func (p *steeredPlane) SetSteers(rows map[lb.SteerKey]steer.Row) error {
	if p.fail != nil {
		return p.fail
	}
	p.rows = maps.Clone(rows)
	return nil
}

func (p *steeredPlane) SteerRowsInForce() (map[lb.SteerKey]steer.Row, error) {
	return p.rows, p.fail
}

func (p *steeredPlane) TunnelSource(netip.Addr) netip.Addr { return netip.MustParseAddr("127.0.0.1") }

// toldProber says what it was told to say.
type toldProber struct {
	config probe.Config
	closed bool
	ended  chan error // Run's, before its context ends

	mu      sync.Mutex
	states  []probe.State
	changes chan struct{}
}

func (p *toldProber) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-p.ended:
		return err
	}
}

func (p *toldProber) Changes() <-chan struct{} { return p.changes }
func (p *toldProber) Close()                   { p.closed = true }

func (p *toldProber) States() []probe.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.states)
}

// say sets the verdicts on a server's paths.
func (p *toldProber) say(verdicts ...probe.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = nil
	for i, v := range verdicts {
		state := probe.State{Path: i, Verdict: v}
		if v != probe.Good && v != probe.Unknown {
			state.Reason = string(v)
		}
		p.states = append(p.states, state)
	}
}

// steering is a balancer on one leaf, two spines and servers on another leaf.
type steering struct {
	*steerWatch
	t       *testing.T
	plane   *steeredPlane
	probers map[netip.Addr]*toldProber
	ctx     context.Context
	running sync.WaitGroup
	// openFails is why no prober can be opened.
	openFails error
}

// leafSpine is the fabric, with so many spines.
func leafSpine(spines int) *topology.Fabric {
	f := &topology.Fabric{Selector: pathsel.Config{Key: [16]byte{1}, Permutation: pathsel.Feistel, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports}}
	for _, n := range []topology.Node{{Name: "leaf1"}, {Name: "leaf2"},
		{Name: "lb1", Host: true, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{Name: "a", Host: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.1")}},
		{Name: "b", Host: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.2")}}} {
		n.TTL = 64
		f.Nodes = append(f.Nodes, n)
	}
	link := func(a, portA, b, portB int) {
		f.Links = append(f.Links, topology.Link{Ends: [2]topology.End{{Node: a, Port: portA}, {Node: b, Port: portB}}, Cost: 1})
	}
	link(2, -1, 0, 10)
	link(3, -1, 1, 10)
	link(4, -1, 1, 11)
	for i := range spines {
		f.Nodes = append(f.Nodes, topology.Node{Name: fmt.Sprintf("spine%d", i+1), TTL: 64})
		link(0, i, 5+i, 0)
		link(1, i, 5+i, 1)
	}
	return f
}

func newSteering(t *testing.T) *steering {
	from, err := steer.New(leafSpine(2), "lb1")
	if err != nil {
		t.Fatal(err)
	}
	s := &steering{t: t, plane: &steeredPlane{}, probers: map[netip.Addr]*toldProber{}}
	s.steerWatch = &steerWatch{log: slog.New(slog.DiscardHandler), name: "lb1", fabric: from, plane: s.plane,
		servers: map[netip.Addr]*steeredServer{}, told: map[netip.Addr]string{}, again: make(chan struct{}, 1), news: make(chan struct{}, 1),
		open: func(c probe.Config) (prober, error) {
			if s.openFails != nil {
				return nil, s.openFails
			}
			p := &toldProber{config: c, changes: make(chan struct{}, 1), ended: make(chan error, 1)}
			p.say(slices.Repeat([]probe.Verdict{probe.Unknown}, len(c.Targets[0].Paths))...)
			s.probers[c.Targets[0].Address] = p
			return p, nil
		}}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); s.running.Wait() })
	return s
}

// steers has the servers of one VIP steered to.
func (s *steering) steers(by string, servers ...string) {
	v := controller.VIP{Settings: vip.Settings{Name: "web", Steer: by}}
	for i, a := range servers {
		v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: a, Address: netip.MustParseAddr(a)})
	}
	s.follow(&controller.Assignment{VIPs: []controller.VIP{v}})
	s.reconcile(s.ctx, &s.running)
}

// shares is how the row of a server is spread over its paths.
func (s *steering) shares(server, by string) []int {
	row, ok := s.plane.rows[lb.SteerKey{Server: netip.MustParseAddr(server), By: by}]
	if !ok {
		return nil
	}
	shares := make([]int, len(s.servers[netip.MustParseAddr(server)].Paths))
	for _, e := range row {
		shares[s.servers[netip.MustParseAddr(server)].Of(steer.Entry{Port: e.Port, Label: e.Label})]++
	}
	return shares
}

func (s *steering) want(server, by string, want ...int) {
	s.t.Helper()
	if got := s.shares(server, by); !slices.Equal(got, want) {
		s.t.Errorf("server %s by %s: %v, want %v", server, by, got, want)
	}
}

func TestSteering(t *testing.T) {
	const a, b, by = "10.0.1.1", "10.0.1.2", vip.SteerConnection
	s, now := newSteering(t), time.Unix(5000, 0)
	s.steers(by, a, b)
	pa, pb := s.probers[netip.MustParseAddr(a)], s.probers[netip.MustParseAddr(b)]
	s.look(now)
	s.want(a, by) // nothing before all of its paths are judged
	pa.say(probe.Good, probe.Unknown)
	pb.say(probe.Good, probe.Good)
	s.look(now)
	s.want(a, by)
	s.want(b, by, 32, 32)
	pa.say(probe.Good, probe.Good)
	s.look(now)
	s.want(a, by, 32, 32)

	pa.say(probe.Slow, probe.Good)
	s.look(now)
	s.want(a, by, 0, 64)
	s.want(b, by, 32, 32)
	if got := s.servers[netip.MustParseAddr(a)].moved[by].parts; got != 32 {
		t.Errorf("%d parts moved, want 32", got)
	}
	// The best that there is; where all are bad, all stays as it is.
	pa.say(probe.Slow, probe.Lost)
	s.look(now)
	s.want(a, by, 64, 0)
	pa.say(probe.Lost, probe.Lost)
	s.look(now)
	s.want(a, by, 64, 0)

	pa.say(probe.Good, probe.Good)
	s.look(now)
	s.want(a, by, 32, 32)
	// Bad again at once: it waits, and the watch looks when that is over.
	pa.say(probe.Lost, probe.Good)
	s.look(now)
	pa.say(probe.Good, probe.Good)
	next := s.look(now)
	s.want(a, by, 0, 64)
	if next <= 0 || next > time.Minute {
		t.Errorf("looks again after %v", next)
	}
	s.look(now.Add(next))
	s.want(a, by, 32, 32)
}

// What is put before packets is tried again until it is.
func TestSteeringFails(t *testing.T) {
	const a = "10.0.1.1"
	s, now := newSteering(t), time.Unix(5000, 0)
	s.steers(vip.SteerServer, a)
	s.probers[netip.MustParseAddr(a)].say(probe.Good, probe.Good)
	s.plane.fail = errors.New("no memory")
	s.look(now)
	if s.plane.fail = nil; s.plane.rows != nil {
		t.Fatal("rows in spite of an error")
	}
	s.look(now)
	s.want(a, vip.SteerServer, 64, 0)
	// What was not put before packets has not moved them.
	s.plane.fail = errors.New("no memory")
	s.probers[netip.MustParseAddr(a)].say(probe.Lost, probe.Good)
	s.look(now)
	s.plane.fail = nil
	s.look(now)
	s.want(a, vip.SteerServer, 0, 64)
	if got := s.servers[netip.MustParseAddr(a)].moved[vip.SteerServer].parts; got != 64 {
		t.Errorf("%d parts moved, want 64", got)
	}
}

// Servers that go are not probed any more; those that cannot be steered to are told.
func TestSteeringServers(t *testing.T) {
	s := newSteering(t)
	s.steers(vip.SteerConnection, "10.0.1.1", "10.9.9.9")
	var r fairleadv1.GetStatusResponse
	s.describe(&controller.Assignment{}, &r)
	if len(r.Steered) != 2 || len(r.Steered[0].Paths) != 2 || !strings.Contains(r.Steered[1].Error, "10.9.9.9") || len(r.Warnings) != 1 {
		t.Errorf("%v", &r)
	}
	if got := strings.Join(r.Steered[0].Paths[1].Nodes, " "); got != "lb1 leaf1 spine2 leaf2 a" {
		t.Errorf("second path over %s", got)
	}
	gone := s.servers[netip.MustParseAddr("10.0.1.1")]
	s.steers(vip.SteerConnection, "10.0.1.2")
	if len(s.servers) != 1 || gone.prober != nil {
		t.Errorf("%d servers are steered to, and the one that went is probed: %v", len(s.servers), gone.prober != nil)
	}
}

// A server that cannot be probed, or whose probes end, is tried again.
func TestSteeringAgain(t *testing.T) {
	const a = "10.0.1.1"
	s, address := newSteering(t), netip.MustParseAddr(a)
	s.openFails = errors.New("no port is free")
	s.steers(vip.SteerConnection, a)
	if !s.unprobed() || !strings.Contains(s.servers[address].err.Error(), "no port is free") {
		t.Fatalf("%v", s.servers[address].err)
	}
	s.openFails = nil
	s.reconcile(s.ctx, &s.running)
	if s.unprobed() {
		t.Fatal(s.servers[address].err)
	}
	s.probers[address].ended <- errors.New("the network is gone")
	for end := time.Now().Add(10 * time.Second); !s.unprobed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("probes that ended are taken for running")
		}
	}
	if s.reconcile(s.ctx, &s.running); s.unprobed() || s.servers[address].err != nil {
		t.Error("probes that ended do not begin again")
	}
	// A server that the fabric's file does not reach is no work until that changes.
	s.steers(vip.SteerConnection, a, "10.9.9.9")
	lost := s.servers[netip.MustParseAddr("10.9.9.9")]
	if s.unprobed() {
		t.Error("a server that no path leads to is looked for again and again")
	}
	if s.reconcile(s.ctx, &s.running); s.servers[netip.MustParseAddr("10.9.9.9")] != lost {
		t.Error("a server that no path leads to was looked for again")
	}
}

// The more paths, the longer between two probes of one.
func TestProbeInterval(t *testing.T) {
	for paths, want := range map[int]time.Duration{0: steerInterval, 2000: steerInterval, 2001: 2 * steerInterval, 16000: 8 * steerInterval} {
		if got := interval(paths); got != want {
			t.Errorf("%d paths: %v, want %v", paths, got, want)
		}
	}
}
