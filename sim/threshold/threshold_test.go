package threshold

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// outAtRandom takes servers out and brings them back: who changed.
func outAtRandom(r *rand.Rand, out []bool) (changed []uint16) {
	for n := range out {
		if r.IntN(4) == 0 && (out[n] || slices.Index(out, false) != n || slices.Contains(out[n+1:], false)) {
			out[n] = !out[n]
			changed = append(changed, uint16(n))
		}
	}
	return changed
}

// The table that is changed in place is the one that controller/buckets makes
// of the same moves, and none of its buckets is at a server that is out.
func TestTableIsTheProducts(t *testing.T) {
	seed := soak.Seed(t)
	for _, rule := range Returns() {
		r := rand.New(rand.NewPCG(seed, 0))
		const servers, n = 7, 100
		out := make([]bool, servers)
		mine := newTable(n, servers, rule, r)
		want := buckets.New(n, weights(out))
		for round := range 50 {
			before := slices.Clone(mine.current)
			changed := outAtRandom(r, out)
			o := buckets.Options{Now: uint32(round + 1), ChainTime: 1 << 30}
			mine.change(changed, out, sim.Time(round+1)*sim.Second/100)
			var moves []buckets.Move
			for b, s := range mine.current {
				if s != before[b] {
					moves = append(moves, buckets.Move{Bucket: uint32(b), To: s})
				}
				if out[s] {
					t.Fatalf("seed %d, %s: bucket %d is at %d, which is out", seed, rule, b, s)
				}
			}
			if rule == Random {
				// A bucket may move twice in one change, by way of who returns.
				continue
			}
			want, _ = want.Apply(moves, o)
			if !slices.Equal(mine.current, want.Current) {
				t.Fatalf("seed %d, %s: %v, controller/buckets %v", seed, rule, mine.current, want.Current)
			}
			if rule == Oldest && !slices.Equal(mine.previous, want.Previous) {
				t.Fatalf("seed %d: chains %v, controller/buckets %v", seed, mine.previous, want.Previous)
			}
		}
	}
}

// One move at a time, chains are those of controller/buckets.
func TestMoveIsTheProducts(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	const servers, n = 6, 10
	mine := newTable(n, servers, Home, r)
	want := buckets.New(n, weights(make([]bool, servers)))
	for round := range 300 {
		b, to := int32(r.IntN(n)), uint16(r.IntN(servers))
		if mine.current[b] == to {
			continue
		}
		mine.move(b, to)
		want, _ = want.Apply([]buckets.Move{{Bucket: uint32(b), To: to}}, buckets.Options{Now: uint32(round + 1), ChainTime: 1 << 30})
		if !slices.Equal(mine.current, want.Current) || !slices.Equal(mine.previous, want.Previous) {
			t.Fatalf("seed %d: %v %v, controller/buckets %v %v", seed, mine.current, mine.previous, want.Current, want.Previous)
		}
	}
}

// rows is a table as a mux goes by it, with chains of a depth.
type rows struct {
	*table
	depth int
}

func (r rows) Len() int { return len(r.current) }
func (r rows) Row(b int) beamer.Row {
	row := beamer.Settled(r.current[b])
	copy(row.Previous[:r.depth], r.previous[b][:r.depth])
	return row
}

// ends is where a packet ends by the mux and the servers of scheme/beamer;
// owner has its connection.
func ends(t rows, key uint64, owner uint16) (at uint16) {
	slot, hops, _ := beamer.Way(t, key, 2)
	p := beamer.Packet{Flags: wire.ACK, From: beamer.Balancer, Carried: true, Hops: hops}
	for at = uint16(slot); ; p.From = beamer.Passed {
		s := beamer.Server{Slot: at, Generation: 2, ChainTime: 1 << 30, Peers: func(uint16) beamer.Peer { return beamer.Reachable }}
		a := s.Decide(&p, 1, func() beamer.Socket {
			if at == owner {
				return beamer.Socket{State: beamer.Established}
			}
			return beamer.Socket{State: beamer.Listener}
		}, nil)
		if a.Verdict != beamer.PassOn {
			return at
		}
		at, p.Hops = a.Next, a.Hops
	}
}

// What breaks is what breaks with the mux and servers of scheme/beamer.
func TestPacketsGoTheProductsWay(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	const servers, n, conns = 6, 30, 500
	out := make([]bool, servers)
	b := newBucketed(conns, newServers(servers, never), newTable(n, servers, Home, r), newCookies(conns, seed), sim.Second)
	var want [schemes][conns]bool
	for id := range int32(conns) {
		b.begin(id, r.Uint64(), 0)
		if id%10 != 9 {
			continue
		}
		for _, bucket := range b.table.change(outAtRandom(r, out), out, 0) {
			for live := b.head[bucket]; live != none; live = b.next[live] {
				b.judgePacket(live, bucket)
			}
		}
		for scheme, depth := range []int{beamer1: 1, beamer3: 3} {
			for live := range id + 1 {
				if ends(rows{b.table, depth}, b.key[live], b.first[live]) != b.first[live] {
					want[scheme][live] = true
				}
			}
		}
	}
	for id := range conns {
		for scheme := range want {
			if got := b.broken[id]>>scheme&1 != 0; got != want[scheme][id] {
				t.Errorf("seed %d: connection %d, scheme %d: broken %v, by scheme/beamer %v", seed, id, scheme, got, want[scheme][id])
			}
		}
	}
	if b.Broken[beamer1] == 0 || b.Broken[beamer1] <= b.Broken[beamer3] {
		t.Errorf("seed %d: broken %v", seed, b.Broken)
	}
}

// order notes what happens.
type order struct {
	t     *testing.T
	now   sim.Time
	live  map[int32]sim.Time // start
	conns []workload.Connection
	looks int
	ended int
}

func (o *order) at(now sim.Time) {
	if now < o.now {
		o.t.Errorf("%d after %d", now, o.now)
	}
	o.now = now
}
func (o *order) begin(id int32, key uint64, now sim.Time) {
	o.at(now)
	o.live[id] = now
	if o.conns[id].Key != key || o.conns[id].Start != now {
		o.t.Errorf("connection %d: %v begins at %d", id, o.conns[id], now)
	}
}
func (o *order) finish(id int32, now sim.Time) {
	o.at(now)
	if _, ok := o.live[id]; !ok || o.conns[id].End() != now {
		o.t.Errorf("connection %d: %v ends at %d", id, o.conns[id], now)
	}
	delete(o.live, id)
	o.ended++
}
func (o *order) look(now sim.Time) {
	o.at(now)
	o.looks++
}

func TestTimeline(t *testing.T) {
	tl := newTimeline(workload.NewPoisson(1, 100, workload.WebServer), 100*sim.Second)
	o := &order{t: t, now: -1 << 62, live: map[int32]sim.Time{}, conns: tl.conns}
	if err := tl.play(context.Background(), o, sim.Second); err != nil {
		t.Fatal(err)
	}
	if o.looks != 99 || o.ended < 100 || len(o.live)+o.ended != len(tl.conns) {
		t.Errorf("%d looks, %d ends, %d live of %d", o.looks, o.ended, len(o.live), len(tl.conns))
	}
}

// small is the scenario with a fortieth of the servers.
func small() *Options {
	o := DefaultOptions()
	o.Servers, o.Active, o.Seconds = 12, 1800, 60
	o.Thresholds, o.Intervals = []float64{10, 20, 40}, []time.Duration{0, 10 * time.Second}
	return o
}

func TestRun(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 1, 2} {
		r, err := small().Run(context.Background(), sim.Common{Seed: 1, Seeds: 2, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
			curvesInOrder(t, r)
		}
		if string(first) != string(b) {
			t.Errorf("%d workers: not the same bytes", workers)
		}
	}
}

// curvesInOrder: what must be at any scale.
func curvesInOrder(t *testing.T, r *sim.Result) {
	at := map[string][]sim.Point{}
	for _, s := range r.Figures[0].Series {
		if s.By == sim.Ours {
			at[s.Name] = s.Points
		}
	}
	for i, p := range at[nameBeamer1] {
		if b3, c := at[nameBeamer3][i].Y, at[nameCheetah][i].Y; c.Max != 0 || b3.Mean > p.Y.Mean {
			t.Errorf("at %g %%: beamer-1 %v, beamer-3 %v, cheetah %v", p.X, p.Y, b3, c)
		}
		if i > 0 && p.Y.Mean >= at[nameBeamer1][i-1].Y.Mean {
			t.Errorf("beamer-1 at %g %%: %v, at %g %%: %v", p.X, p.Y, at[nameBeamer1][i-1].X, at[nameBeamer1][i-1].Y)
		}
	}
	last := map[string]float64{}
	for _, s := range r.Figures[1].Series {
		last[s.Name] = s.Points[len(s.Points)-1].Y.Mean
	}
	if !(last["least-conn"] < last["p2c"] && last["p2c"] < last["rr"] && last["rr"] < last[nameHash]) {
		t.Errorf("imbalance %v", last)
	}
}

// The load is a function of the seed: what it is played against draws from
// streams of its own.
func TestStreams(t *testing.T) {
	o := small()
	tl := newTimeline(workload.NewPoisson(3, 1800, workload.WebServer).FromEmpty(), 60*sim.Second)
	again := newTimeline(workload.NewPoisson(3, 1800, workload.WebServer).FromEmpty(), 60*sim.Second)
	for _, rule := range Returns() {
		if _, err := o.run(context.Background(), cell{way{rule: rule, interval: time.Second}, 20}, tl, 3); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(tl, again) {
		t.Error("a run changed its load")
	}
}

func TestCheck(t *testing.T) {
	for flag, change := range map[string]func(*Options){
		"--active 0":                     func(o *Options) { o.Active = 0 },
		"--servers 1":                    func(o *Options) { o.Servers = 1 },
		"--buckets 0":                    func(o *Options) { o.Buckets = 0 },
		"--thresholds 7: is given twice": func(o *Options) { o.Thresholds = []float64{7, 7} },
		"--buckets 922337":               func(o *Options) { o.Buckets = math.MaxInt },
		"--seconds 0":                    func(o *Options) { o.Seconds = 0 },
		"--seconds 10000":                func(o *Options) { o.Seconds, o.Active = 10_000, maxActive },
		"--thresholds":                   func(o *Options) { o.Thresholds = nil },
		"--thresholds -1":                func(o *Options) { o.Thresholds = []float64{-1} },
		"--every 50ms":                   func(o *Options) { o.Every = 50 * time.Millisecond },
		"--intervals -1s":                func(o *Options) { o.Intervals = []time.Duration{-time.Second} },
		"--intervals 150ms":              func(o *Options) { o.Intervals = []time.Duration{150 * time.Millisecond} },
	} {
		o := DefaultOptions()
		change(o)
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if err := DefaultOptions().Check(); err != nil {
		t.Error(err)
	}
}

func TestNothingToSee(t *testing.T) {
	o := small()
	o.Thresholds, o.Servers = []float64{1000}, 2
	if r, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), "nothing could have shown a difference") {
		t.Errorf("%v, %v", r, err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := small().Run(ctx, sim.Common{Seed: 1, Seeds: 1}); err == nil || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}
