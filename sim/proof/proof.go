// Package proof shows Cheetah's Theorem 1 (NSDI'20, App. A) by counting: a
// balancer without memory of connections keeps them on their servers through
// all changes only with a cookie value for each server, log2 k bits for k
// servers. For small k all ways to give and to read cookies are enumerated.
//
//	count    encoders and decoders, and the pairs that survive
//	memory   a balancer whose memory all connections share
//	reach    where policies put one connection in a pool that never changes
//	cookie   the product's cookie, for every slot that it can name
package proof

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
)

// Kinds is the scenario of this package.
var Kinds = []sim.Kind{{
	Name:  "proof",
	Short: "Cheetah's Theorem 1 by counting: fewer than log2 k bits of cookie never survive",
	Long: `All ways to give cookies to one connection (one for each server on which it
may begin) and all ways to read them (a server for each cookie and active set)
are enumerated, for up to --servers servers and one cookie value more than
servers: which keep the connection on its server whatever the active set
becomes. Then the same with memory at the balancer, of each connection's own
and shared by all; for policies in a pool that never changes; and for the
cookie that balancers of this program give, for every slot.`,
	Example: `  fairlead sim proof
  fairlead sim proof --servers 4 --plot proof.svg`,
	Seeds: 1,
	New:   func() sim.Scenario { return &Options{Servers: 6, Identifiers: 16} },
}}

// Limits of the options.
const (
	maxServers     = 7
	maxIdentifiers = 1000
	// sharedServers and sharedConnections bound what is tried with memory that
	// connections share: 4^3 pasts fit a word.
	sharedServers     = 4
	sharedConnections = 3
	// histories that are played for each identifier under each policy.
	histories = 200
)

// Options of the scenario.
type Options struct {
	// Servers is the largest pool, 2 to 7.
	Servers int
	// Identifiers is for how many connections policies and the product's
	// cookies are tried.
	Identifiers int
}

// Flags adds the options.
func (o *Options) Flags(f *sim.Flags) {
	f.Add("servers", &o.Servers, "count for 2 servers up to so many; 7 take half a minute")
	f.Add("identifiers", &o.Identifiers, "connections that policies and real cookies are tried with")
}

// Check says which option is wrong.
func (o *Options) Check() error {
	if o.Servers < 2 || o.Servers > maxServers {
		return fmt.Errorf("--servers %d: must be 2 to %d; assignments grow like servers^(2·servers)", o.Servers, maxServers)
	}
	if o.Identifiers < 1 || o.Identifiers > maxIdentifiers {
		return fmt.Errorf("--identifiers %d: must be 1 to %d", o.Identifiers, maxIdentifiers)
	}
	return nil
}

// found is all that was counted.
type found struct {
	counts [][]Count       // by servers (from 2), cookies (from 1)
	own    [][]int         // by servers, bits of memory: cookie values needed
	shared [][]int         // by case of shared(), connections (from 1): states
	reach  [][][]int       // by policy, servers, seed: cookie values needed
	cookie [][]cookieCount // by seed, width
	seeds  []uint64
}

// Run counts.
func (o *Options) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	f := found{seeds: c.SeedList()}
	var jobs []func(context.Context) error
	jobs = append(jobs, o.countJobs(&f)...)
	jobs = append(jobs, o.sharedJobs(&f)...)
	jobs = append(jobs, o.reachJobs(&f)...)
	jobs = append(jobs, o.cookieJobs(&f)...)
	if err := c.Each(ctx, len(jobs), func(ctx context.Context, i int) error { return jobs[i](ctx) }); err != nil {
		return nil, err
	}
	return o.result(&f), nil
}

// countJobs begin with the largest.
func (o *Options) countJobs(f *found) (jobs []func(context.Context) error) {
	pools := o.Servers - 1
	f.counts, f.own = make([][]Count, pools), make([][]int, pools)
	for i := range pools {
		k := i + 2
		f.counts[i], f.own[i] = make([]Count, k+1), make([]int, bitsFor(k)+1)
		for j := range f.counts[i] {
			jobs = append(jobs, func(ctx context.Context) (err error) {
				f.counts[i][j], err = NewCount(ctx, k, j+1)
				return err
			})
		}
		for m := range f.own[i] {
			jobs = append(jobs, func(context.Context) error {
				f.own[i][m] = Needed(numbers(k), k, 1<<m)
				return nil
			})
		}
	}
	slices.Reverse(jobs)
	return jobs
}

// sharedCase is a pool and a cookie too small for it.
type sharedCase struct{ servers, cookies int }

func (o *Options) shared() (cases []sharedCase) {
	for k := 2; k <= min(o.Servers, sharedServers); k++ {
		for c := 1; c <= k; c++ {
			cases = append(cases, sharedCase{k, c})
		}
	}
	return cases
}

func (o *Options) sharedJobs(f *found) (jobs []func(context.Context) error) {
	cases := o.shared()
	f.shared = make([][]int, len(cases))
	for i, x := range cases {
		f.shared[i] = make([]int, sharedConnections)
		for r := range sharedConnections {
			jobs = append(jobs, func(context.Context) error {
				f.shared[i][r] = States(x.servers, x.cookies, r+1)
				return nil
			})
		}
	}
	return jobs
}

func (o *Options) reachJobs(f *found) (jobs []func(context.Context) error) {
	f.reach = make([][][]int, len(policies))
	for p, name := range policies {
		f.reach[p] = make([][]int, o.Servers-1)
		for i := range f.reach[p] {
			f.reach[p][i] = make([]int, len(f.seeds))
			for s, seed := range f.seeds {
				jobs = append(jobs, func(ctx context.Context) (err error) {
					f.reach[p][i][s], err = o.reach(ctx, name, i+2, seed)
					return err
				})
			}
		}
	}
	return jobs
}

// reach is how many cookie values some identifier needs.
func (o *Options) reach(ctx context.Context, name string, servers int, seed uint64) (needed int, err error) {
	r := sim.Stream(seed, fmt.Sprintf("histories %s %d", name, servers))
	identifiers := sim.Stream(seed, "identifiers")
	for range o.Identifiers {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		on, err := reach(name, servers, identifiers.Uint64(), histories, r)
		if err != nil {
			return 0, err
		}
		needed = max(needed, Needed(on, servers, 1))
	}
	return needed, nil
}

func (o *Options) cookieJobs(f *found) (jobs []func(context.Context) error) {
	f.cookie = make([][]cookieCount, len(f.seeds))
	for s, seed := range f.seeds {
		f.cookie[s] = make([]cookieCount, cheetah.MaxBits-cheetah.MinBits+1)
		for i := range f.cookie[s] {
			jobs = append(jobs, func(ctx context.Context) (err error) {
				bits := cheetah.MinBits + i
				f.cookie[s][i], err = countCookies(ctx, bits, o.Identifiers, sim.Stream(seed, fmt.Sprintf("cookies %d", bits)))
				return err
			})
		}
	}
	return jobs
}

// bitsFor is how many bits tell k values apart.
func bitsFor(k int) int { return int(math.Ceil(math.Log2(float64(k)))) }
