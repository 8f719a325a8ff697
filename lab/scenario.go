package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// scenario is what Run does under one name.
type scenario struct {
	// schemes and policies are the defaults; allowed are the schemes that it
	// knows, nil: all.
	schemes, policies, allowed []string
	// scale is the scenario as it is judged.
	scale Scale
	// size is the lab's.
	size size
	// parts divides the runs over labs, which come one after the other.
	parts func(RunOptions) []part
	// play carries out a part in its lab.
	play func(*runner, context.Context) error
}

// size is how many servers and balancers (or switches) a lab has, and with
// how many of each it starts.
type size struct{ servers, activeServers, fronts, activeFronts int }

// part is one lab's share of a scenario.
type part struct {
	runs []RunTally
	// drained is how many servers drain (synflood with RunOptions.Drained).
	drained int
}

// churnSize: two fronts carry the traffic of six servers.
var churnSize = size{churnServers, churnActiveServers, churnLBs, churnActiveLBs}

// scenarios are those that Run knows.
func scenarios() map[string]scenario {
	both := []string{"cheetah", "stateless"}
	return map[string]scenario{
		"churn":   {schemes: both, policies: []string{"rr", "p2c"}, scale: FullScale, size: churnSize, parts: RunOptions.apart, play: (*runner).run},
		"control": {schemes: both, policies: []string{"rr", "p2c"}, scale: FullScale, size: churnSize, parts: RunOptions.apart, play: (*runner).run},
		"synflood": {schemes: []string{"jet", "cheetah", "full-ct"}, policies: []string{"rr"}, scale: FloodScale, size: churnSize,
			parts: RunOptions.floodParts, play: (*runner).flood},
		"chain": {schemes: []string{"beamer", "faild"}, allowed: []string{"beamer", "faild"}, scale: ChainScale, size: size{4, 1, 2, 2},
			parts: RunOptions.apart, play: (*runner).chain},
		"stale-mux": {schemes: []string{"beamer"}, allowed: []string{"beamer"}, scale: StaleScale, size: size{8, 4, 3, 3},
			parts: RunOptions.apart, play: (*runner).stale},
		"drain-switch": {schemes: []string{"faild"}, allowed: []string{"faild"}, scale: DrainScale, size: size{8, 8, 2, 2},
			parts: RunOptions.drainParts, play: (*runner).drainSwitch},
		"attack": {schemes: []string{"cheetah", "jet", "beamer", "faild"}, allowed: []string{"cheetah", "jet", "beamer", "faild"},
			policies: []string{"rr"}, scale: AttackScale, size: attackSize, parts: RunOptions.attackParts, play: (*runner).attack},
		"offload": {schemes: []string{"cheetah"}, allowed: []string{"cheetah"}, policies: []string{"rr"}, scale: OffloadScale, size: churnSize,
			parts: RunOptions.offloadParts, play: (*runner).offload},
		"parted": {schemes: []string{"cheetah", "jet", "beamer"}, policies: []string{"rr"}, scale: PartedScale, size: partedSize, parts: RunOptions.apart, play: (*runner).parted},
		"two-tier": {schemes: []string{"cheetah", "cheetah-stateful", "full-ct"}, allowed: []string{"cheetah", "cheetah-stateful", "full-ct"},
			policies: []string{"rr"}, scale: TwoTierScale, size: twoTierSize, parts: RunOptions.apart, play: (*runner).twoTier},
		"migrate-scheme": {schemes: []string{"jet"}, allowed: migrates(), policies: []string{"rr"}, scale: MigrateScale, size: churnSize,
			parts: RunOptions.migrateParts, play: (*runner).migrateScheme},
		"scaling": {schemes: []string{"cheetah", "beamer", "jet", "stateless"}, allowed: []string{"cheetah", "beamer", "jet", "full-ct", "stateless"},
			policies: []string{"rr"}, parts: RunOptions.apart, play: (*runner).scaling},
	}
}

// ScenarioNames lists what Run knows.
func ScenarioNames() []string { return slices.Sorted(maps.Keys(scenarios())) }

// RunOptions narrow a scenario; the zero value runs all of it.
type RunOptions struct {
	Lab      string // the labs' name; default: this process's
	Scenario string
	Seed     uint64
	Schemes  []string // default cheetah and stateless; synflood: jet, cheetah, full-ct
	// Policies of cheetah (default rr and p2c); the other schemes always run
	// hash.
	Policies []string
	// Hashes of the other schemes (default table-hrw and, for jet, anchor).
	Hashes       []string
	Forwarding   string // default ipip; beamer: ipip and gue
	IPv6         bool   // IPv6 alone: VIPs and tunnels; default: IPv4 and IPv6 VIPs, mixed tunnels
	IPv4         bool   // IPv4 VIPs alone
	NoTimestamps bool
	Rate         int // synflood: packets a second, default DefaultFloodRate
	// Drained, of synflood: instead of its changes that many of 8 servers
	// drain, for each number in a lab of its own; default for scheme beamer
	// 0, 1, 2, 4.
	Drained []int
	// WithoutGuards, of attack: daemons run without what holds attackers off.
	WithoutGuards bool
	// RateFactor and Schedule are scaling's: the share of the schedule's rate
	// (default DefaultRateFactor), and the schedule (default Cheetah's).
	RateFactor float64
	Schedule   pcc.Schedule
	Scale      Scale  // default the scenario's own
	Keep       bool   // leave the lab of a failed run, to look at
	Program    string // the fairlead binary that runs in the machines
	// Watch, if not nil, is told of every change while it runs.
	Watch func(Moment)
}

// Scale is a churn's size.
type Scale struct {
	// Connections a run.
	Connections int
	// Slot is the time from one change to the next.
	Slot time.Duration
	// Pause is synflood's longest silence of a connection.
	Pause time.Duration
	// Steps, if not nil, names the changes that happen, in this order.
	Steps []string
}

// FullScale is the scenario as it is judged.
var FullScale = Scale{Connections: 2000, Slot: 3 * time.Second}

// minChanges is how many changes a full churn must have made.
const minChanges = 12

// Moment is a point of a scenario's time line.
type Moment struct {
	// At is seconds since the load's start.
	At float64 `json:"at"`
	// Text says what changed; empty: nothing, only the tallies are news.
	Text string `json:"text"`
	// Tallies by run, in the order of Result.Runs.
	Tallies []Tally `json:"tallies"`
}

// Result is what `lab run -o json` prints.
type Result struct {
	experiment.Head
	// WithoutGuards: attacks were not held off.
	WithoutGuards bool       `json:"without_guards,omitempty"`
	Runs          []RunTally `json:"runs"`
	Timeline      []Moment   `json:"timeline"`
	// Synflood: of each lab that ran, one after the other, what was sent and
	// what stood in the balancers' tables at the flood's end.
	Floods []FloodReport `json:"floods,omitempty"`
	Tables []TableUse    `json:"tables,omitempty"`
	// Chain: what the scenario of this name opened on each server.
	Chain []ChainStage `json:"chain,omitempty"`
	// Detours: chain's latency of packets that a previous server owns.
	Detours []Detour `json:"detours,omitempty"`
	// Drains, Repoints: drain-switch's flows moved by each change, and the
	// time to repoint 1,024 nexthops.
	Drains   []DrainCount `json:"drains,omitempty"`
	Repoints []Repoint    `json:"repoints,omitempty"`
	// Attacks: scenario attack's, in their order, lab after lab.
	Attacks []Attack `json:"attacks,omitempty"`
	// Handshakes: offload's, by VIP.
	Handshakes []Handshakes `json:"handshakes,omitempty"`
	// Partitions: parted's.
	Partitions []Partition `json:"partitions,omitempty"`
	// Tiers: of two-tier, what the balancers that live counted about tiers, by reason.
	Tiers Counters `json:"tiers,omitempty"`
	// Scaling: the scenario of this name.
	Scaling *Scaling `json:"scaling,omitempty"`
	// Counters are kernel counters that moved, at the client and at all
	// servers together, by nstat's names; those of kernelCounters.
	Counters map[string]Counters `json:"counters"`
	// Reasons are what the agents of the servers that lived to the end
	// counted since they started, by reason.
	Reasons Counters `json:"reasons"`
	// MissedResets are RSTs that the capture at the client could not keep.
	MissedResets int `json:"missed_resets"`
	// Failures are connections that did not complete, the first maxFailures
	// of each run.
	Failures []Failure `json:"failures,omitempty"`
}

// maxFailures bounds Result.Failures for each run.
const maxFailures = 20

func (o *RunOptions) fill() error {
	s, known := scenarios()[o.Scenario]
	if !known {
		return fmt.Errorf("there is no scenario %q; there are %s, and fabric and seven-paths with flags of their own", o.Scenario, strings.Join(ScenarioNames(), ", "))
	}
	if len(o.Schemes) == 0 {
		o.Schemes = s.schemes
	}
	if len(o.Policies) == 0 {
		o.Policies = s.policies
	}
	if err := o.fillDrained(); err != nil {
		return err
	}
	if err := o.fillScaling(); err != nil {
		return err
	}
	if o.WithoutGuards && o.Scenario != "attack" {
		return fmt.Errorf("--without-guards is of scenario attack, not of %s", o.Scenario)
	}
	if o.Scenario == "offload" {
		o.Rate = cmp.Or(o.Rate, MaxFloodRate)
	}
	o.Rate = cmp.Or(o.Rate, DefaultFloodRate)
	if o.Rate < 1 || o.Rate > MaxFloodRate {
		return fmt.Errorf("rate %d: must be 1 to %d packets a second", o.Rate, MaxFloodRate)
	}
	if o.Scale.Connections == 0 {
		o.Scale = s.scale
		if o.Drained != nil {
			o.Scale = DrainedScale
		}
	}
	schemes := vip.SchemeNames()
	if s.allowed != nil {
		schemes = s.allowed
	}
	for _, check := range []choice{
		{"scheme", o.Schemes, schemes}, {"hash", o.Hashes, kinds()},
		{"policy", o.Policies, vip.PolicyNames()}, {"forwarding", []string{cmp.Or(o.Forwarding, string(vip.DefaultForwarding))}, vip.ForwardingNames()},
	} {
		if err := check.check(); err != nil {
			return err
		}
	}
	for _, scheme := range o.Schemes {
		for _, hash := range o.Hashes {
			if err := suits(scheme, hash); err != nil && vip.Scheme(scheme).Row().Finds == vip.ByHash {
				return err
			}
		}
		if err := carriesHops(scheme, cmp.Or(o.Forwarding, string(vip.DefaultForwarding))); err != nil {
			return err
		}
	}
	return nil
}

// Run carries out a scenario in a lab of its own and takes the lab down. The
// result is there also where it is a failure (Result.Verdict) that stopped the
// scenario half way; an error means that there is none.
func Run(ctx context.Context, o RunOptions) (*Result, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := scenarios()[o.Scenario]
	whole := &Result{Head: experiment.Begin(o.Scenario, o.Seed), WithoutGuards: o.WithoutGuards}
	for _, p := range s.parts(o) {
		result, err := o.runLab(ctx, s, p, whole.Runs)
		if err != nil {
			return nil, err
		}
		whole.join(result)
	}
	whole.End()
	return whole, nil
}

// apart gives runs behind switches another lab than those behind balancers.
func (o RunOptions) apart() (parts []part) {
	for _, g := range apart(o.runs()) {
		parts = append(parts, part{runs: g})
	}
	return parts
}

// vips are the runs' VIPs as the scenario wants them.
func (o RunOptions) vips(runs []RunTally) []VIP {
	vips := vipsOf(runs)
	for i := range vips {
		if v := &vips[i]; o.Scenario == "chain" && wire.Tunnel(v.Forwarding).Port() != 0 {
			v.ChainTime = chainBrief
		}
		if o.Scenario == "two-tier" {
			o.tiers(vips)
		}
		if o.Scenario == "scaling" {
			// All VIPs have the servers that wait. None fails, and to check 32 for
			// each VIP takes a processor's time.
			vips[i].Standby, vips[i].Health = true, ""
		}
	}
	return vips
}

// runLab is one lab's life.
func (o RunOptions) runLab(ctx context.Context, s scenario, p part, before []RunTally) (*Result, error) {
	n := s.size
	if o.Drained != nil {
		n = drainedSize
	}
	if o.Scenario == "scaling" {
		n = size{o.Schedule.Servers, o.Schedule.Active, scalingFronts, scalingFronts}
	}
	options := Options{
		Name: cmp.Or(o.Lab, fmt.Sprint("run", os.Getpid())), Servers: n.servers, ActiveServers: n.activeServers,
		LBs: n.fronts, ActiveLBs: n.activeFronts, Forwarding: o.Forwarding, IPv6: o.IPv6,
		Mixed: true, NoTimestamps: o.NoTimestamps, VIPs: o.vips(p.runs), Plain: o.Scenario == "control", Program: o.Program,
		Exposed: o.Scenario == "attack" || o.Scenario == "parted", Unguarded: o.WithoutGuards,
	}
	if o.Scenario == "parted" {
		options.Controllers, options.Remote = 3, true // operators are parted from controllers, too
	}
	if o.Scenario == "two-tier" {
		options.SecondTier = secondTier
	}
	if o.Scenario == "synflood" || o.Scenario == "attack" {
		for _, run := range p.runs {
			if row := run.row(); row.Finds == vip.ByHash && !row.Forgets() || run.NoTimestamps {
				options.Flows += floodTable * o.Scale.Connections
			}
		}
	}
	l, err := Up(ctx, options, true)
	if err != nil {
		return nil, err
	}
	r := &runner{o: o, lab: l, part: p, before: make([]Tally, len(before)), result: &Result{Runs: p.runs}}
	counters, err := l.readCounters()
	if err == nil {
		err = s.play(r, ctx)
	}
	if err != nil && ctx.Err() == nil && len(r.load) > 0 {
		// What was found until then may tell why.
		r.stopped(err)
		err = nil
	}
	if err == nil {
		r.result.Counters, err = l.moved(counters)
		r.result.Reasons = l.agentReasons(ctx)
		r.judgeCounters()
	}
	if o.Keep && (err != nil || len(r.result.Verdict) > 0) {
		l.Owner, l.OwnerStart = 0, ""
		if err := errors.Join(err, l.save()); err != nil {
			return nil, fmt.Errorf("%w (lab %s is kept)", err, l.Name)
		}
		r.result.Verdict = append(r.result.Verdict, fmt.Sprintf("lab %s is kept", l.Name))
		return r.result, nil
	}
	down := Down(l.Name)
	if err != nil {
		return nil, errors.Join(err, down)
	}
	if down != nil { // what was found is not lost by it
		r.result.Verdict = append(r.result.Verdict, down.Error())
	}
	return r.result, nil
}

// join adds what another lab found.
func (r *Result) join(o *Result) {
	for i := range r.Timeline { // tallies in the order of all runs
		r.Timeline[i].Tallies = append(r.Timeline[i].Tallies, make([]Tally, len(o.Runs))...)
	}
	r.Runs = append(r.Runs, o.Runs...)
	r.Timeline = append(r.Timeline, o.Timeline...)
	r.Failures = append(r.Failures, o.Failures...)
	if r.Counters == nil {
		r.Counters, r.Reasons = map[string]Counters{}, Counters{}
	}
	r.Reasons.add(o.Reasons)
	for who, c := range o.Counters {
		if r.Counters[who] == nil {
			r.Counters[who] = Counters{}
		}
		r.Counters[who].add(c)
	}
	r.MissedResets += o.MissedResets
	r.Chain = append(r.Chain, o.Chain...)
	r.Detours, r.Drains, r.Repoints = append(r.Detours, o.Detours...), append(r.Drains, o.Drains...), append(r.Repoints, o.Repoints...)
	r.Attacks = append(r.Attacks, o.Attacks...)
	r.Partitions = append(r.Partitions, o.Partitions...)
	r.Handshakes = append(r.Handshakes, o.Handshakes...)
	r.Floods, r.Tables = append(r.Floods, o.Floods...), append(r.Tables, o.Tables...)
	if o.Tiers != nil {
		r.Tiers = o.Tiers
	}
	if o.Scaling != nil {
		r.Scaling = o.Scaling
	}
	r.Verdict = append(r.Verdict, o.Verdict...)
}
