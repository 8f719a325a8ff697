package datacentre

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
)

// small is a site in which everything happens within a second.
func small() *Datacentre {
	d := New()
	d.Servers, d.VIPs, d.Balancers, d.Active, d.Hours = 100, 5, 20, 20_000, 2
	d.Changes, d.Failures, d.BalancerChanges = 50, 2, 40
	return d
}

func run(t *testing.T, d *Datacentre, c sim.Common) *sim.Result {
	t.Helper()
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := d.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The same options and seeds give the same bytes, on one core as on two.
func TestSameBytes(t *testing.T) {
	var before []byte
	for _, workers := range []int{1, 2, 2} {
		b, err := json.Marshal(run(t, small(), sim.Common{Seed: 1, Seeds: 1, Workers: workers}))
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !bytes.Equal(before, b) {
			t.Errorf("%d workers: other bytes than before", workers)
		}
		before = b
	}
}

// The order of the schemes, at a small scale: what remembers nothing breaks
// most, one hash less than the other; daisy chains break hardly any; cheetah
// and one balancer with all connections none.
func TestOrder(t *testing.T) {
	d := small()
	r := run(t, d, sim.Common{Seed: 1, Seeds: 2})
	for _, c := range r.Checks {
		if !c.Holds {
			t.Errorf("%s: %v %s, want %v to %v", c.What, c.Ours, c.Unit, c.Low, c.High)
		}
	}
	share := func(figure, series, scheme string) float64 {
		for _, f := range r.Figures {
			for _, s := range f.Series {
				for _, p := range s.Points {
					if f.Name == figure && s.Name == series && p.Label == scheme {
						return p.Y.Mean
					}
				}
			}
		}
		t.Fatalf("no figure %s with %s, %s", figure, series, scheme)
		return 0
	}
	for _, order := range [][]string{
		{pcc.Hash, "maglev", pcc.Beamer1, pcc.Beamer3, pcc.Cheetah},
		{pcc.Hash, "table-hrw", pcc.FullCTECMP, pcc.FullCT},
		{pcc.Hash, pcc.AnchorTable, pcc.JET, pcc.FullCT},
	} {
		if !slices.IsSortedFunc(order, func(a, b string) int {
			return cmp.Compare(share("broken", "broken", b), share("broken", "broken", a))
		}) {
			t.Errorf("broken: %v should be in falling order", order)
		}
	}
	if full, jet := share("memory", "flow table", pcc.FullCTECMP), share("memory", "flow table", pcc.JET); jet == 0 || jet > full/2 {
		t.Errorf("flow table of jet: %v bytes, of full-ct %v", jet, full)
	}
}

// What is drawn for one purpose does not depend on another's options: when
// servers change not on balancers, connections or staleness, when balancers
// come and go not on servers.
func TestStreams(t *testing.T) {
	times := func(change func(d *Datacentre)) (servers, balancers []sim.Time) {
		d := small()
		change(d)
		s, err := newSite(d, 3)
		if err != nil {
			t.Fatal(err)
		}
		for vip := range d.VIPs {
			for _, c := range s.changes(vip) {
				servers = append(servers, c.at)
			}
		}
		for _, e := range s.eras {
			balancers = append(balancers, e.at)
		}
		return servers, balancers
	}
	servers, balancers := times(func(*Datacentre) {})
	if len(servers) < 80 || len(balancers) < 40 {
		t.Fatalf("%d changes of servers, %d of balancers", len(servers), len(balancers))
	}
	s, _ := times(func(d *Datacentre) {
		d.Balancers, d.BalancerChanges, d.Active, d.Stale, d.ECMP = 3, 9, 77, 0, pcc.Resilient
	})
	if !slices.Equal(s, servers) {
		t.Error("times at which servers change depend on balancers or connections")
	}
	_, b := times(func(d *Datacentre) { d.Servers, d.Changes, d.Failures, d.Wave = 999, 5, 50, 20 })
	if !slices.Equal(b, balancers) {
		t.Error("times at which balancers change depend on servers")
	}
}

// No VIP is ever without a server, no server is taken out that is out, and all
// that is taken out comes back.
func TestChanges(t *testing.T) {
	d := small()
	d.Changes, d.Failures, d.Wave = 2000, 300, 50
	s, err := newSite(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	for vip, n := range s.size {
		working := make([]bool, n)
		for i := range working {
			working[i] = true
		}
		set := func(c *change, list []uint16, to bool) {
			for _, server := range list {
				if working[server] == to {
					t.Fatalf("VIP %d at %d: server %d is that already", vip, c.at, server)
				}
				working[server] = to
			}
		}
		last := sim.Time(-1)
		for _, c := range s.changes(vip) {
			set(c, c.in, true)
			set(c, c.out, false)
			set(c, c.failed, false)
			if !slices.Contains(working, true) {
				t.Fatalf("VIP %d at %d: nobody works", vip, c.at)
			}
			if c.at <= last || c.at >= s.end {
				t.Fatalf("VIP %d: a change at %d after one at %d", vip, c.at, last)
			}
			last = c.at
		}
	}
}

// Sizes sum up, fall, and follow Zipf's law.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		servers, vips int
		skew          float64
		largest       int
	}{{64_000, 2000, 1, 7338}, {10, 5, 1, 2}, {100, 3, 0, 34}, {7, 2, 4, 5}} {
		size, sum := sizes(c.servers, c.vips, c.skew), 0
		for _, n := range size {
			sum += n
		}
		if sum != c.servers || size[0] != c.largest || size[len(size)-1] < 2 || !slices.IsSortedFunc(size, func(a, b int) int { return b - a }) {
			t.Errorf("%+v: largest %d, sum %d", c, size[0], sum)
		}
	}
}

// The data plane's structures are as large as is said here.
func TestBytesOfTheDataPlane(t *testing.T) {
	header, err := os.ReadFile("../../bpf/include/balancer.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"sizeof(struct fl_line) == 64", "sizeof(struct fl_vip) == 128", "sizeof(struct fl_flow_set) == 64",
		"#define FL_BUCKET_WORDS(b, n) ((((n) + 7) >> 3) * 2 + 2 * (b))",
	} {
		if !strings.Contains(string(header), want) {
			t.Errorf("bpf/include/balancer.h no longer says %q: bring memory.go up to date", want)
		}
	}
}

// A balancer that came back knows nothing of before; of two that know a
// connection, both do.
func TestKnown(t *testing.T) {
	note := known(known(0, 4), 9)
	if !knows(note, 4) || !knows(note, 9) || knows(note, 5) || knows(0, 0) {
		t.Errorf("note %x", note)
	}
	notes := []uint32{note}
	(&tracking{}).leave(notes, []uint16{4})
	if knows(notes[0], 4) || !knows(notes[0], 9) {
		t.Errorf("after 4 left: note %x", notes[0])
	}
}

// tracking is what package pcc makes of real flow tables, while nobody
// forgets: held to them by TestLazyAgreesWithEventByEvent. Here: a connection
// whose server drains goes on under jet though another balancer gets it.
func TestTrackingHolds(t *testing.T) {
	table := func(states ...chash.BucketState) *chash.AnchorTable {
		a, err := chash.NewAnchorTable(8, states)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	jet, full := &tracking{}, &tracking{all: true}
	for _, s := range []*tracking{jet, full} {
		s.tables.Put(table(chash.Working, chash.Working, chash.Working))
		s.tables.Put(table(chash.Working, chash.Draining, chash.Working))
	}
	c := pcc.Conns{Key: make([]uint64, 1000), Via: make([]uint16, 1000), First: make([]uint16, 1000), At: make([]uint16, 1000), Note: make([]uint32, 1000)}
	for i := range c.Key {
		c.Key[i] = sim.SplitMix(uint64(i))
	}
	for _, s := range []*tracking{jet, full} {
		c.Version, c.Via = 0, make([]uint16, len(c.Key))
		s.Open(&c)
		c.Version, c.Via = 1, slices.Repeat([]uint16{1}, len(c.Key))
		s.Serve(&c)
		if broken, _ := pcc.Judge(&c); (broken == 0) != (s == jet) {
			t.Errorf("jet %v: %d of 1000 broken when a server drains and the balancer changes", s == jet, broken)
		}
	}
}

func TestFlowTableHolds(t *testing.T) {
	if lost := New().forgotten(1, 5000); lost > 0.002 {
		t.Errorf("a flow table of the size that is counted has forgotten %.4f of its connections", lost)
	}
}

func TestBadOptions(t *testing.T) {
	for want, change := range map[string]func(d *Datacentre){
		"--servers 3999":        func(d *Datacentre) { d.Servers = 3999 },
		"--vips 0":              func(d *Datacentre) { d.VIPs = 0 },
		"--skew -1":             func(d *Datacentre) { d.Skew = -1 },
		"--balancers 0":         func(d *Datacentre) { d.Balancers = 0 },
		"--active 0":            func(d *Datacentre) { d.Active = 0 },
		"--hours -2":            func(d *Datacentre) { d.Hours = -2 },
		"--hours 1e-300":        func(d *Datacentre) { d.Hours = 1e-300 },
		"--wave 60":             func(d *Datacentre) { d.Wave = 60 },
		"--horizon -1":          func(d *Datacentre) { d.Horizon = -1 },
		"--buckets 0":           func(d *Datacentre) { d.Buckets = 0 },
		"--stale 2m0s":          func(d *Datacentre) { d.Stale = 2 * time.Minute },
		"--drain 0s":            func(d *Datacentre) { d.Drain = 0 },
		`--ecmp "both"`:         func(d *Datacentre) { d.ECMP = "both" },
		"--changes -1":          func(d *Datacentre) { d.Changes = -1 },
		"--failures -1":         func(d *Datacentre) { d.Failures = -1 },
		"--balancer-changes -1": func(d *Datacentre) { d.BalancerChanges = -1 },
		"largest VIP":           func(d *Datacentre) { d.VIPs = 2 },
	} {
		d := New()
		change(d)
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want one line with %q, got %v", want, err)
		}
	}
	d := small()
	d.Changes, d.Failures = 0, 0
	if _, err := d.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), "--changes") {
		t.Errorf("nothing changes: %v", err)
	}
	d = small()
	d.Balancers = 1
	if _, err := d.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), "--balancers") {
		t.Errorf("no balancer is left: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := small().Run(ctx, sim.Common{Seed: 1, Seeds: 1}); err == nil {
		t.Error("a cancelled run goes on")
	}
}
