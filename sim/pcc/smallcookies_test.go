package pcc

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/soak"
)

// A tag of no bits is the bare hash.
func TestTagOfNoBits(t *testing.T) {
	b := smallCookies().Base
	for name, kind := range map[string]chash.Kind{Hash: "", AnchorTable: chash.KindAnchor} {
		bare, err := New(name, b.setup(1))
		if err != nil {
			t.Fatal(err)
		}
		r := b.run(1, workload.Updates{PerMinute: 40})
		for _, s := range []Scheme{bare, newTags(b.setup(1), 1, 1, kind, false), newTags(b.setup(1), 1, 1, kind, true)} {
			r.Contenders = append(r.Contenders, Contender{Scheme: s})
		}
		tally, err := r.Play(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range tally.Schemes[1:] {
			if s.Broken != tally.Schemes[0].Broken || s.Broken == 0 {
				t.Errorf("%s: %d broken, with a tag of no bits %d", name, tally.Schemes[0].Broken, s.Broken)
			}
		}
	}
}

// fixed is a configuration that is written down.
type fixed map[uint64]uint16

func (f fixed) server(hash uint64) uint16 { return f[hash] }

// Of two hashes' servers, the one is chosen that the policy hash-bit chooses.
func TestTwoHashesChooseAsPolicy(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	const servers = 5
	var members []policy.Member
	for s := range servers {
		members = append(members, policy.Member{Slot: uint16(s), Weight: 1, Name: string(rune('a' + s))})
	}
	table := policy.Table(policy.P2C, members)
	for range 1000 {
		scheme := newTags(Setup{Working: servers}, 1, 2, "", false)
		for s := range scheme.conns {
			scheme.conns[s] = r.Int32N(4)
		}
		key := r.Uint64()
		first, _ := policy.HashBitEntry(key, table, false)
		second, _ := policy.HashBitEntry(key, table, true)
		scheme.last[0] = fixed{key: policy.EntrySlot(first), nth(key, 1): policy.EntrySlot(second)}
		want, bit, _ := policy.ChooseHashBit(key, table, func(s uint16) int32 { return scheme.conns[s] })
		c := Conns{Key: []uint64{key}, First: make([]uint16, 1), Note: make([]uint32, 1)}
		scheme.Open(&c)
		if c.First[0] != policy.EntrySlot(want) || c.Note[0]&1 != 0 != bit {
			t.Fatalf("seed %d: server %d, note %d; policy %d, %v", seed, c.First[0], c.Note[0], policy.EntrySlot(want), bit)
		}
	}
}

// A drained server's connections all live through n-1 changes more and none
// through n, whether tags are refreshed or not (App. B).
func TestDrainedBreakAfterNChanges(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8} {
		for _, fresh := range []bool{false, true} {
			scheme := newTags(Setup{Working: 20, Standby: 5, Seed: 1}, n, 1, chash.KindAnchor, fresh)
			p := NewPool(20, 5)
			if err := scheme.Update(p, 0); err != nil {
				t.Fatal(err)
			}
			const conns = 500
			c := Conns{Key: make([]uint64, conns), First: make([]uint16, conns), Note: make([]uint32, conns), At: make([]uint16, conns)}
			for i := range c.Key {
				c.Key[i] = sim.SplitMix(uint64(i))
			}
			scheme.Open(&c)
			for change := range n + 1 {
				// Server 0 first; then a standby server comes and goes.
				x := Change{Server: 0}
				if change > 0 {
					x = Change{Server: 20, Add: change%2 == 1}
				}
				p.Apply(x)
				if err := scheme.Update(p, 0); err != nil {
					t.Fatal(err)
				}
				scheme.Serve(&c)
				for i := range c.First {
					if c.First[i] == 0 && (c.At[i] == 0) != (change < n-1) {
						t.Fatalf("%d configurations, fresh %v: a connection of the drained server is at %d after %d changes", n, fresh, c.At[i], change+1)
					}
				}
				Judge(&c)
			}
			if scheme.Lost != 0 || scheme.Kept != 0 || scheme.Drained == 0 {
				t.Errorf("%+v", scheme.TagCounts)
			}
		}
	}
}

func smallCookies() *SmallCookies {
	o := SmallCookiesKind.New().(*SmallCookies)
	o.Servers, o.Standby, o.Active, o.Seconds = 40, 8, 2000, 60
	o.Rates, o.Configurations = []float64{20, 80}, []int{1, 4, 64}
	return o
}

func TestSmallCookies(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 2} {
		r, err := smallCookies().Run(context.Background(), sim.Common{Seed: 1, Seeds: 2, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
			for _, c := range r.Checks {
				if !c.Holds && c.Why == "" {
					t.Errorf("%s: %g", c.What, c.Ours)
				}
				if c.Unit == "%" && !(c.Ours >= 0 && c.Ours <= 100) {
					t.Errorf("%s: %g %%", c.What, c.Ours)
				}
			}
			for _, s := range r.Figures[0].Series {
				for i, p := range s.Points {
					if s.Name == Cheetah && p.Y.Max != 0 || s.Name != Cheetah && i > 0 && p.Y.Mean > s.Points[i-1].Y.Mean {
						t.Errorf("%s, %g configurations: %v", s.Name, p.X, p.Y)
					}
				}
			}
		}
		if string(first) != string(b) {
			t.Errorf("%d workers: not the same bytes", workers)
		}
	}
}

func TestSmallCookiesCheck(t *testing.T) {
	for flag, change := range map[string]func(*SmallCookies){
		"--rates":              func(o *SmallCookies) { o.Rates = nil },
		"--rates -1":           func(o *SmallCookies) { o.Rates = []float64{-1} },
		"--configurations":     func(o *SmallCookies) { o.Configurations = nil },
		"--configurations 3":   func(o *SmallCookies) { o.Configurations = []int{3} },
		"--configurations 512": func(o *SmallCookies) { o.Configurations = []int{512} },
		"--configurations: 4":  func(o *SmallCookies) { o.Configurations = []int{4, 4} },
		"--active 0":           func(o *SmallCookies) { o.Active = 0 },
	} {
		o := smallCookies()
		change(o)
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	o := smallCookies()
	o.Rates = []float64{0.0001}
	if r, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), "nothing could have shown a difference") {
		t.Errorf("%v, %v", r, err)
	}
}
