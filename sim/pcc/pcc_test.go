package pcc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/simtest"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/soak"
)

// small is a base of a few servers.
func small(schemes ...string) Base {
	b := NewBase(schemes...)
	b.Servers, b.Standby, b.Active, b.Seconds = 40, 6, 2000, 120
	return b
}

func smallUpdates() *DIPUpdates {
	o := DIPUpdatesKind.New().(*DIPUpdates)
	o.Servers, o.Standby, o.Active, o.Seconds = 40, 6, 2000, 120
	o.Rates, o.Balancers, o.BalancerChurn = []float64{5, 20}, 4, 3
	return o
}

func smallChurn() *BalancerChurn {
	o := BalancerChurnKind.New().(*BalancerChurn)
	o.Servers, o.Standby, o.Active, o.Seconds = 40, 6, 2000, 60
	o.Balancers, o.Updates, o.Churn = 5, 20, 6
	o.Churns, o.Stales, o.Floods = []float64{0, 6}, []time.Duration{0, 3 * time.Second}, []float64{0, 10_000}
	// The other hashes are like anchor, and slow to change.
	o.Schemes = []string{Hash, "anchor", FullCTECMP, JET, Faild1, Beamer1, Cheetah}
	return o
}

// Same options and seeds: the same bytes, on one core and on two; in a soak
// over longer runs.
func TestSameBytes(t *testing.T) {
	updates, churn := smallUpdates(), smallChurn()
	if !soak.On() {
		updates.Seconds, churn.Seconds = 30, 30
		churn.Churns, churn.Stales = []float64{6}, []time.Duration{3 * time.Second}
	}
	for name, s := range map[string]sim.Scenario{"dip-updates": updates, "balancer-churn": churn} {
		var first []byte
		for _, workers := range []int{1, 2} {
			r, err := s.Run(context.Background(), sim.Common{Seed: 5, Seeds: 2, Workers: workers})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			out, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = out
			} else if !bytes.Equal(first, out) {
				t.Errorf("%s: another result with %d workers", name, workers)
			}
		}
	}
}

// recorder is a scheme that writes down what it sees.
type recorder struct {
	keys    []uint64
	starts  []sim.Time
	changes []Change
}

func (r *recorder) Update(p *Pool, _ sim.Time) error {
	r.changes = append(r.changes, p.Last...)
	return nil
}
func (r *recorder) Forget(int) {}
func (r *recorder) Open(c *Conns) {
	r.keys, r.starts = append(r.keys, c.Key...), append(r.starts, c.Start...)
}
func (r *recorder) Serve(c *Conns) { copy(c.At, c.First) }

// Connections and updates do not depend on who looks at them, and connections
// not on the updates either.
func TestStreams(t *testing.T) {
	seen := func(rate float64, front *Front, schemes ...string) *recorder {
		b := small(schemes...)
		r := b.run(7, workload.Updates{PerMinute: rate})
		rec := &recorder{}
		r.Contenders = []Contender{{"recorder", rec, front}}
		for _, name := range schemes {
			s, err := New(name, b.setup(7))
			if err != nil {
				t.Fatal(err)
			}
			r.Contenders = append(r.Contenders, Contender{name, s, front})
		}
		if _, err := r.Play(context.Background()); err != nil {
			t.Fatal(err)
		}
		return rec
	}
	alone := seen(20, nil)
	if len(alone.keys) < 2000 || len(alone.changes) < 20 {
		t.Fatalf("%d connections and %d updates: too few", len(alone.keys), len(alone.changes))
	}
	front, err := NewFront(7, FrontOptions{Balancers: 4, ECMP: Resilient, Stale: sim.Second, Churn: []workload.Update{{At: 30 * sim.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	several := seen(20, front, Names()...)
	if !slices.Equal(alone.keys, several.keys) || !slices.Equal(alone.starts, several.starts) || !slices.Equal(alone.changes, several.changes) {
		t.Error("other connections or updates beside other schemes")
	}
	if often := seen(40, nil); !slices.Equal(alone.keys, often.keys) || slices.Equal(alone.changes, often.changes) {
		t.Error("other connections under more updates, or the same updates")
	}
}

// The curves of Fig 2a lie above each other as in the paper.
func TestOrder(t *testing.T) {
	o := smallUpdates()
	o.Seconds, o.Rates = 300, []float64{10}
	r, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	mean := func(name string) float64 {
		y, ok := pointAt(r.Figures[0], name, 10)
		if !ok {
			t.Fatalf("no %s", name)
		}
		return y.Mean
	}
	for _, hash := range []string{"ring", "table-hrw", "maglev", "anchor"} {
		if mean(Hash) < 2*mean(hash) || mean(hash) < 2*mean(Beamer1) || mean(hash) < 2*mean(Faild1) {
			t.Errorf("hash %.3f, %s %.3f, beamer-1 %.3f, faild-1 %.3f %%", mean(Hash), hash, mean(hash), mean(Beamer1), mean(Faild1))
		}
	}
	if mean(Beamer1) < 2*mean(Beamer3) || mean(Beamer1) == 0 || mean(FullCTECMP) == 0 {
		t.Errorf("beamer-1 %.4f, beamer-3 %.4f, full-ct-ecmp %.4f %%", mean(Beamer1), mean(Beamer3), mean(FullCTECMP))
	}
	for _, never := range []string{Cheetah, JET, FullCT} {
		if mean(never) > 0 {
			t.Errorf("%s: %.4f %%", never, mean(never))
		}
	}
	for _, c := range r.Checks[:1] {
		if !c.Holds || !strings.Contains(c.What, Cheetah) {
			t.Errorf("%s: %v", c.What, c.Ours)
		}
	}
}

func TestNothingToSee(t *testing.T) {
	o := smallUpdates()
	o.Seconds, o.Rates = 1, []float64{0.001}
	_, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1})
	if err == nil || !strings.Contains(err.Error(), "no connection lived through") {
		t.Errorf("error %v", err)
	}
	c := smallChurn()
	c.Seconds, c.Updates = 1, 0.001
	_, err = c.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1})
	if err == nil || !strings.Contains(err.Error(), "no connection lived through") {
		t.Errorf("error %v", err)
	}
}

// A flow file's connections, and how long they last, in place of drawn ones.
func TestFlows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flows.csv")
	text := "start,duration,source,source_port,destination,destination_port\n"
	for i := range 500 {
		text += fmt.Sprintf("%d.5,60,192.0.2.7,%d,203.0.113.80,443\n", 1000+i/10, 1024+i)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []sim.Kind{DIPUpdatesKind, BalancerChurnKind} {
		for _, option := range []string{"--active 10", "--seconds 100", "--lifetimes hadoop"} {
			err := simtest.Check(kind.New(), strings.Fields("--flows "+file+" "+option)...)
			if err == nil || !strings.Contains(err.Error(), option+":") {
				t.Errorf("%s --flows with %s: error %v", kind.Name, option, err)
			}
		}
	}
	o := smallUpdates()
	if err := o.Flows.Set(file); err != nil {
		t.Fatal(err)
	}
	r, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(500 * len(o.Rates)); r.Samples[0].Count != want {
		t.Errorf("%d %s, want %d", r.Samples[0].Count, r.Samples[0].What, want)
	}
	// Only ten live at time 0, but tables have room for those that come.
	for _, name := range []string{JET, FullCT} {
		if y, _ := pointAt(r.Figures[0], name, 20); y.Mean > 0 {
			t.Errorf("%s breaks %.2f %% of a record's connections", name, y.Mean)
		}
	}
	if y, _ := pointAt(r.Figures[0], AnchorTable, 20); y.Mean < 5 {
		t.Errorf("anchor-table breaks %.2f %%: tables have nothing to do", y.Mean)
	}
	c := smallChurn()
	c.Flows, c.Floods, c.Stales = o.Flows, nil, nil
	if r, err = c.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err != nil {
		t.Fatal(err)
	}
	if y, _ := pointAt(byName(r.Figures, "churn-"+string(Modulo)), JET, 0); y.Mean > 0 {
		t.Errorf("jet at balancers breaks %.2f %% of a record's connections", y.Mean)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := smallUpdates().Run(ctx, sim.Common{Seed: 1, Seeds: 1}); err == nil || r != nil {
		t.Errorf("result %v, error %v", r, err)
	}
}

// Each wrong option is named with its value, in one line.
func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--servers 20000":                     "--servers 20000 and --standby 47: a cookie names 16384 servers at most",
		"--servers 1":                         "--servers 1:",
		"--servers 2000":                      "faild-1: 2047 servers: a MAC address names 1023 at most",
		"--standby 0":                         "--standby 0:",
		"--active 0":                          "--active 0:",
		"--seconds -5":                        "--seconds -5:",
		"--buckets 1000000":                   "--buckets 1000000",
		"--buckets 9223372036854775807":       "--buckets 9223372036854775807",
		"--chain-time -1":                     "--chain-time -1:",
		"--entries NaN":                       "--entries NaN:",
		"--schemes hash,beamer":               `--schemes: scheme "beamer": there are hash, ring`,
		"--schemes hash,hash":                 "--schemes: hash is there twice",
		"--balancers 0":                       "--balancers 0:",
		"--balancer-churn -1":                 "--balancer-churn -1:",
		"--lifetimes nowhere.txt":             "nowhere.txt",
		"--rates 0":                           "--rates 0:",
		"--rates 80,80":                       "--rates: 80 is there twice",
		"--rates -1.5":                        "--rates -1.5:",
		"churn --updates 0":                   "--updates 0:",
		"churn --churns -2":                   "--churns -2:",
		"churn --churns 0,0,3":                "--churns: 0 is there twice",
		"churn --stales 1s,1s":                "--stales: 1s is there twice",
		"churn --floods 5,5":                  "--floods: 5 is there twice",
		"churn --stales -1s":                  "--stales -1s:",
		"churn --stale 2h":                    "--stale 2h0m0s:",
		"churn --floods -1":                   "--floods: -1",
		"churn --flood-entries 0":             "--flood-entries 0:",
		"churn --balancers 2000":              "--balancers 2000:",
		"churn --schemes ,":                   `--schemes: scheme ""`,
		"churn --churns= --stales= --floods=": "",
	} {
		fields := strings.Fields(args)
		var s sim.Scenario = DIPUpdatesKind.New()
		if fields[0] == "churn" {
			s, fields = BalancerChurnKind.New(), fields[1:]
		}
		err := simtest.Check(s, fields...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
	for _, kind := range []sim.Kind{DIPUpdatesKind, BalancerChurnKind} {
		if err := simtest.Check(kind.New()); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}
