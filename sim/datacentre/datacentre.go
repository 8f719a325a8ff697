// Package datacentre is scenario `datacentre`: a whole site for a day. What
// each scheme's balancers hold, what they must be told, and what breaks.
//
//	datacentre   options and their bounds
//	site         VIPs by size, balancers that come and go behind ECMP
//	changes      rolling upgrades and failures of one VIP's servers
//	population   the lazy population: who lives when something changes
//	vip          one VIP's day: versions, balancers that are late, reshuffles
//	tracking     jet and full-ct, whose flow tables are larger than needed
//	memory       bytes of a balancer, by the data plane's own structures
//	control      bytes that a change costs
//	result       figures and checks
//
// 10 million connections at a time are 33 billion a day: too many to draw. But
// nothing happens to a connection while its VIP and its balancer stay as they
// are. So only those are drawn that live when something changes, which is
// exact: see population. VIPs are independent of each other but for the
// balancers, whose times all share, so each is played alone, and one core
// needs memory for one VIP at a time.
package datacentre

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/workload"
)

const name = "datacentre"

// maxBalancers is what the notes of tracked connections can name.
const maxBalancers = 10_000

// Kinds is the scenario of this package.
var Kinds = []sim.Kind{{
	Name:  name,
	Short: "A site for a day: memory, control traffic and broken connections of every scheme",
	Long: `Plays a whole site for a day: many VIPs of very different sizes, balancers
behind ECMP, servers that are upgraded in waves and fail, balancers that are
upgraded one after the other, and news of changes that reach each balancer at
a time of its own. For every scheme: what a balancer holds and what all must
be told, in bytes of the product's own structures, and which share of the
connections breaks. Nobody has published this experiment.`,
	Example: `  fairlead sim datacentre
  fairlead sim datacentre --servers 640 --vips 20 --balancers 50 --active 100000 --changes 640
  fairlead sim datacentre --ecmp resilient --stale 10s --plot datacentre.svg`,
	Seeds: 1,
	New:   func() sim.Scenario { return New() },
}}

// Datacentre is the scenario's options.
type Datacentre struct {
	// Servers are spread over the VIPs: two to each, the others in proportion
	// to 1/rank^Skew.
	Servers, VIPs int
	Skew          float64
	Balancers     int
	// Active is the mean number of connections at a time, over all VIPs in
	// proportion to their servers.
	Active int
	// Hours is how long it takes.
	Hours float64
	// Changes is how many times a server is upgraded, in waves of Wave percent
	// of a VIP's servers, one at least; Failures how many fail, in the mean.
	// Both stay away for a downtime.
	Changes, Failures int
	Wave              float64
	// Drain is after what time no connection of a server that was taken out is
	// waited for any more.
	Drain time.Duration
	// BalancerChanges is how many times a balancer leaves, for a downtime.
	BalancerChanges int
	// ECMP is modulo (a change of the balancers moves nearly all connections to
	// other ones) or resilient (only those that it must).
	ECMP pcc.ECMP
	// Stale is for how long at most a balancer does not know of a change.
	Stale time.Duration
	// Horizon is how many servers more, in percent of a VIP's, jet is ready
	// for.
	Horizon float64
	// Buckets a server has (beamer).
	Buckets int
	// Lifetimes of connections.
	Lifetimes workload.Flag
}

// New has the defaults.
func New() *Datacentre {
	return &Datacentre{
		Servers: 64_000, VIPs: 2_000, Skew: 1, Balancers: 500, Active: 10_000_000, Hours: 24,
		Changes: 64_000, Failures: 640, Wave: 5, Drain: 3 * time.Minute,
		BalancerChanges: 500, ECMP: pcc.Modulo, Stale: 2 * time.Second, Horizon: 10, Buckets: 100,
		Lifetimes: workload.Flag{Distribution: workload.WebServer},
	}
}

// Flags adds its options.
func (d *Datacentre) Flags(f *sim.Flags) {
	f.Add("servers", &d.Servers, "servers of all VIPs together")
	f.Add("vips", &d.VIPs, "VIPs; each server is behind one of them")
	f.Add("skew", &d.Skew, "sizes of VIPs: 2 servers each, the others in proportion to 1/rank^SKEW")
	f.Add("balancers", &d.Balancers, "balancers behind ECMP, each serving all VIPs")
	f.Add("active", &d.Active, "mean number of connections at a time, spread as servers are")
	f.Add("hours", &d.Hours, "how long it takes")
	f.Add("changes", &d.Changes, "upgrades of servers in all; each leaves and comes back after a downtime")
	f.Add("failures", &d.Failures, "mean number of servers that fail, and come back after a downtime")
	f.Add("wave", &d.Wave, "percent of a VIP's servers that are upgraded at once (at least one server)")
	f.Add("drain", &d.Drain, "time after which no connection of a server that was taken out is waited for")
	f.Add("balancer-changes", &d.BalancerChanges, "balancers that leave, one after the other, and come back after a downtime")
	f.Add("ecmp", (*string)(&d.ECMP), "how connections are spread over balancers: modulo, resilient")
	f.Add("stale", &d.Stale, "time up to which a balancer does not know of a change, each a time of its own")
	f.Add("horizon", &d.Horizon, "servers more that jet is ready for, in percent of a VIP's")
	f.Add("buckets", &d.Buckets, "buckets a server has (beamer)")
	f.Add("lifetimes", &d.Lifetimes, workload.LifetimesUsage)
}

func (d *Datacentre) end() sim.Time { return sim.Time(d.Hours * 3600 * float64(sim.Second)) }

// Check says what is wrong with the options.
func (d *Datacentre) Check() error {
	switch {
	case d.VIPs < 1 || d.VIPs > 100_000:
		return fmt.Errorf("--vips %d: must be 1 to 100000", d.VIPs)
	case d.Servers < 2*d.VIPs:
		return fmt.Errorf("--servers %d: each of %d VIPs needs two; give at least %d, or fewer --vips", d.Servers, d.VIPs, 2*d.VIPs)
	case d.Servers > 10_000_000:
		return fmt.Errorf("--servers %d: must be at most 10000000", d.Servers)
	case !(d.Skew >= 0 && d.Skew <= workload.MaxSkew):
		return fmt.Errorf("--skew %v: must be 0 to %d", d.Skew, workload.MaxSkew)
	case d.Balancers < 1 || d.Balancers > maxBalancers:
		return fmt.Errorf("--balancers %d: must be 1 to %d", d.Balancers, maxBalancers)
	case d.Active < 1 || d.Active > 1_000_000_000:
		return fmt.Errorf("--active %d: must be 1 to 1000000000", d.Active)
	case !(d.Hours >= 0.01 && d.Hours <= 24*365):
		return fmt.Errorf("--hours %v: must be 0.01 to 8760", d.Hours)
	case !(d.Wave > 0 && d.Wave <= 50):
		return fmt.Errorf("--wave %v: must be above 0 and at most 50 percent", d.Wave)
	case !(d.Horizon >= 0 && d.Horizon <= 100):
		return fmt.Errorf("--horizon %v: must be 0 to 100 percent", d.Horizon)
	case d.Buckets < 1 || d.Buckets > 500:
		return fmt.Errorf("--buckets %d: must be 1 to 500 a server", d.Buckets)
	case d.Stale < 0 || d.Stale > time.Minute:
		return fmt.Errorf("--stale %v: must be 0s to 1m (no server is back sooner)", d.Stale)
	case d.Drain <= 0 || d.Drain > 24*time.Hour:
		return fmt.Errorf("--drain %v: must be above 0s and at most 24h", d.Drain)
	case !slices.Contains(pcc.ECMPs(), d.ECMP):
		return fmt.Errorf("--ecmp %q: must be %s or %s", d.ECMP, pcc.Modulo, pcc.Resilient)
	}
	for _, c := range []struct {
		flag  string
		value int
	}{{"changes", d.Changes}, {"failures", d.Failures}, {"balancer-changes", d.BalancerChanges}} {
		if c.value < 0 || c.value > 100_000_000 {
			return fmt.Errorf("--%s %d: must be 0 to 100000000", c.flag, c.value)
		}
	}
	return d.checkLargest()
}

// checkLargest refuses a VIP that no scheme here could serve.
func (d *Datacentre) checkLargest() error {
	largest := sizes(d.Servers, d.VIPs, d.Skew)[0]
	if most := pcc.MaxServers; d.capacity(largest) > most {
		return fmt.Errorf("--servers %d: the largest VIP would have %d and room for %d, more than the %d that cookies can name; give more --vips, or less --skew",
			d.Servers, largest, d.capacity(largest), most)
	}
	return nil
}
