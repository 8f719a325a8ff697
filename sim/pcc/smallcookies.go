package pcc

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// SmallCookies is scenario small-cookies: cookies of constant size (Cheetah,
// NSDI'20, App. B).
type SmallCookies struct {
	Base
	// Rates of updates, a minute.
	Rates []float64
	// Configurations that a balancer remembers: powers of two.
	Configurations []int
}

// SmallCookiesKind is its entry in the list of all.
var SmallCookiesKind = sim.Kind{
	Name:  "small-cookies",
	Short: "Cookies of constant size: a tag of the configuration, an index of the hash (Cheetah App. B)",
	Long: `Cookies smaller than a server's number: a tag that names one of the last
configurations of the pool, in which the connection's hash is looked up again
(replaced by the newest configuration's where that gives the same server:
"fresher" cookies), and one or two bits that say which of two or four hashes
chose the server. What breaks when the pool changes, what becomes of drained
servers' connections, and how even the load is.`,
	Example: `  fairlead sim small-cookies
  fairlead sim small-cookies --configurations 1,16 --rates 80 --active 70000`,
	Seeds: 3,
	New: func() sim.Scenario {
		o := &SmallCookies{Base: NewBase(Cheetah), Rates: []float64{10, 20, 40, 80}, Configurations: []int{1, 2, 4, 8, 16, 32, 64}}
		o.Active, o.Seconds = 20_000, 300
		return o
	},
}

// Flags adds the options.
func (o *SmallCookies) Flags(f *sim.Flags) {
	f.Add("servers", &o.Servers, "servers that work at the start")
	f.Add("standby", &o.Standby, "servers on standby at the start")
	f.Add("active", &o.Active, "live connections in the mean")
	f.Add("seconds", &o.Seconds, secondsUsage)
	f.Add("lifetimes", &o.Lifetimes, workload.LifetimesUsage)
	f.Add("rates", &o.Rates, "updates of the pool a minute")
	f.Add("configurations", &o.Configurations, "how many configurations a balancer remembers: powers of two")
}

// Check says which option is wrong.
func (o *SmallCookies) Check() error {
	if err := checkRates(o.Rates); err != nil {
		return err
	}
	if len(o.Configurations) == 0 {
		return fmt.Errorf("--configurations: name one number at least, such as 16")
	}
	for i, n := range o.Configurations {
		if n < 1 || n > MaxConfigurations || n&(n-1) != 0 {
			return fmt.Errorf("--configurations %d: must be a power of two from 1 to %d", n, MaxConfigurations)
		}
		if slices.Contains(o.Configurations[:i], n) {
			return fmt.Errorf("--configurations: %d is there twice; name each once", n)
		}
	}
	return o.Base.Check()
}

// variant is a small cookie but for the number of configurations.
type variant struct {
	name   string
	kind   chash.Kind // empty: modulo
	fresh  bool
	hashes int
}

// variants of which each is a curve over the configurations.
var variants = []variant{
	{Hash, "", false, 1},
	{"hash, fresher", "", true, 1},
	{AnchorTable, chash.KindAnchor, false, 1},
	{AnchorTable + ", fresher", chash.KindAnchor, true, 1},
	{"hash, 2 hashes", "", false, 2},
	{AnchorTable + ", fresher, 2 hashes", chash.KindAnchor, true, 2},
	{AnchorTable + ", fresher, 4 hashes", chash.KindAnchor, true, 4},
}

// Places in variants of those that are shown at all rates.
const (
	tagOfHash   = 0
	tagOfAnchor = 3
)

// all tells whether a variant is run at all rates, not only at the highest.
func (v variant) all() bool { return v.hashes == 1 }

// smallRun is one run: a rate and a seed.
type smallRun struct {
	*Tally
	counts []TagCounts // by contender; cheetah has none
}

// Run plays all rates under all seeds, and the fixed pool.
func (o *SmallCookies) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	rates, seeds := slices.Sorted(slices.Values(o.Rates)), c.SeedList()
	configurations := slices.Sorted(slices.Values(o.Configurations))
	runs, even := make([]smallRun, len(rates)*len(seeds)), make([][]float64, len(seeds))
	err := c.Each(ctx, len(runs)+len(even), func(ctx context.Context, i int) (err error) {
		if i -= len(runs); i >= 0 {
			even[i], err = o.balance(ctx, seeds[i])
			return err
		}
		i = -1 - i // the longest ones first
		rate := i / len(seeds)
		runs[i], err = o.play(ctx, seeds[i%len(seeds)], rates[rate], rate == len(rates)-1, configurations)
		return err
	})
	if err != nil {
		return nil, err
	}
	through := int64(0)
	for _, r := range runs {
		through += r.Through
	}
	if through == 0 {
		return nil, sim.NothingToSee("small-cookies", "no connection lived through an update of the pool", "make --seconds or --rates greater")
	}
	return (&smallResult{o, c, rates, configurations, runs, even}).result(), nil
}

// play is a run at a rate against all variants, by variant and then by
// configurations, and cheetah.
func (o *SmallCookies) play(ctx context.Context, seed uint64, rate float64, highest bool, configurations []int) (smallRun, error) {
	r := o.run(seed, workload.Updates{PerMinute: rate})
	var schemes []*tags
	for _, v := range variants {
		for _, n := range configurations {
			if !v.all() && !highest {
				continue
			}
			t := newTags(o.setup(seed), n, v.hashes, v.kind, v.fresh)
			schemes = append(schemes, t)
			r.Contenders = append(r.Contenders, Contender{Name: v.name, Scheme: t})
		}
	}
	full, err := New(Cheetah, o.setup(seed))
	if err != nil {
		return smallRun{}, err
	}
	r.Contenders = append(r.Contenders, Contender{Name: Cheetah, Scheme: full})
	tally, err := r.Play(ctx)
	if err != nil {
		return smallRun{}, err
	}
	run := smallRun{Tally: tally}
	for _, t := range schemes {
		run.counts = append(run.counts, t.TagCounts)
	}
	return run, nil
}

// levels are the ways to choose servers whose balance is compared.
var levels = []struct {
	name   string
	hashes int // 0: policy
}{{"hash", 1}, {twoHashes, 2}, {"4 hashes", 4}, {policy.P2C, 0}}

// twoHashes is not policy hash-bit, which chooses between the halves of one
// hash over the policy's table: here both hashes go over the servers, as those
// of tags do.
const twoHashes = "2 hashes"

// balanceSeconds is how long the fixed pool is watched at most, openEvery for
// how long a policy may not know yet that a connection has ended.
const (
	balanceSeconds = 120
	openEvery      = 10 * sim.Millisecond
)

// balance is the imbalance of a pool that does not change, by levels.
func (o *SmallCookies) balance(ctx context.Context, seed uint64) ([]float64, error) {
	b := o.Base
	b.Seconds = min(b.Seconds, balanceSeconds)
	r := b.run(seed, workload.Updates{})
	r.End, r.From, r.Until = sim.Time(b.Seconds)*sim.Second, 0, 0
	r.Step, r.Tick = openEvery, sim.Second
	var all []*levelWatch
	for _, l := range levels {
		var s Scheme = newTags(o.setup(seed), 1, l.hashes, "", false)
		if l.hashes == 0 {
			s = newTwoChoices(o.setup(seed))
		}
		w := &levelWatch{Scheme: s, servers: o.Servers}
		all = append(all, w)
		r.Contenders = append(r.Contenders, Contender{Name: l.name, Scheme: w})
	}
	if _, err := r.Play(ctx); err != nil {
		return nil, err
	}
	imbalance := make([]float64, len(all))
	for i, w := range all {
		imbalance[i] = w.sum / float64(max(1, w.samples))
	}
	return imbalance, nil
}
