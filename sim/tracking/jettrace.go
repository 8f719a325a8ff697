package tracking

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/vip"
)

// Schemes of the trace benchmark.
const (
	SchemeJET    = "jet"
	SchemeFullCT = "full-ct"
	// SchemePlain is full-ct over a plain open-addressing table: what
	// full-ct's own table is to be measured against.
	SchemePlain = "full-ct-plain"
)

// JetTraceOptions of JET's trace benchmark (slides "Balance, Tracking and
// Rate"); DefaultJetTrace has what the slides have.
type JetTraceOptions struct {
	// Servers is how many work. The horizon is Horizon of them, above 0 to 1,
	// rounded, at least one.
	Servers []int
	Horizon float64
	// Seeds is how many seeds are run, from Seed on. A seed decides the trace's keys, sizes and order, the hash's key and
	// the servers' names.
	Seeds int
	Seed  uint64
	// Trace to make for each seed (its Seed is not used).
	Trace TraceOptions
	// Capture is run in place of a made trace, where there is one.
	Capture *Trace
	Hashes  []chash.Kind
	// Passes over the trace, of each case of each seed, in turn.
	Passes int
	// Load is how many entries there are for each of the flow table's sets
	// of seven, 0.1 to 7.
	Load float64
	// Native looks the hashes up as objects, not as the tables that the
	// program has.
	Native bool
	// Plain adds SchemePlain.
	Plain bool
	// Progress is called before each step of all that there are. May be nil.
	Progress func(step, steps int, what string)
}

// DefaultJetTrace is the benchmark of the slides, for all hashes.
func DefaultJetTrace() JetTraceOptions {
	return JetTraceOptions{
		Servers: []int{500, 50}, Horizon: 0.1, Seeds: 7, Seed: 1, Trace: DefaultTrace(),
		Hashes: []chash.Kind{chash.KindTableHRW, chash.KindAnchor, chash.KindRing, chash.KindHRW, chash.KindDx, chash.KindMaglev},
		Passes: 3, Load: 3,
	}
}

// minLoad bounds the memory of a flow table: 640 bytes a flow.
const minLoad = 0.1

// MaxServers bounds a pool with its horizon: slots that there can be.
const MaxServers = chash.MaxSlots

// Check says what is wrong with the options, if anything.
func (o *JetTraceOptions) Check() error {
	if len(o.Servers) == 0 || len(o.Hashes) == 0 {
		return errors.New("numbers of servers and hashes: give at least one of each")
	}
	if !(o.Horizon > 0 && o.Horizon <= 1) {
		return fmt.Errorf("horizon %g: must be above 0 and at most 1 (a share of the servers)", o.Horizon)
	}
	for _, n := range o.Servers {
		if n < 1 || n > MaxServers || n+o.horizon(n) > MaxServers {
			return fmt.Errorf("servers %d: must be at least 1, and with the horizon (%d) at most %d", n, o.horizon(n), MaxServers)
		}
	}
	for _, k := range o.Hashes {
		if !slices.Contains(chash.Kinds(), k) {
			return fmt.Errorf("hash %q: there are %v", k, chash.Kinds())
		}
	}
	switch {
	case o.Seeds < 1 || o.Seeds > 1000:
		return fmt.Errorf("seeds %d: must be 1 to 1000", o.Seeds)
	case o.Passes < 1 || o.Passes > 1000:
		return fmt.Errorf("passes %d: must be 1 to 1000", o.Passes)
	case !(o.Load >= minLoad && o.Load <= jet.Ways):
		return fmt.Errorf("load %g: must be %g to %d entries a set", o.Load, minLoad, jet.Ways)
	case o.Seed+uint64(o.Seeds)-1 > maxSeed:
		return fmt.Errorf("seed %d: the last of %d seeds must be at most %d", o.Seed, o.Seeds, uint64(maxSeed))
	}
	if o.Capture != nil {
		return nil
	}
	return o.Trace.Check()
}

func (o *JetTraceOptions) horizon(servers int) int {
	return max(1, int(o.Horizon*float64(servers)+0.5))
}

// JetTraceResult is what `fairlead sim jet-trace -o json` prints.
type JetTraceResult struct {
	sim.Machine
	Trace   string        `json:"trace"`
	Flows   int           `json:"flows"`
	Packets int           `json:"packets"`
	Skipped int           `json:"skipped_packets"` // of a capture
	Seeds   []uint64      `json:"seeds"`
	Passes  int           `json:"passes"`
	Load    float64       `json:"entries_per_bucket"`
	Native  bool          `json:"native"`
	Cases   []TraceCase   `json:"cases"`
	Ratios  []SpeedRatio  `json:"ratios"`
	Noted   []ReportedRow `json:"reported"` // others' figures
}

// TraceCase is a row of the table: a hash and a scheme over so many servers.
// Statistics are over seeds.
type TraceCase struct {
	Servers int        `json:"servers"`
	Horizon int        `json:"horizon"`
	Hash    chash.Kind `json:"hash"`
	Scheme  string     `json:"scheme"`
	// NotApplicable says why there are no figures.
	NotApplicable string `json:"not_applicable,omitempty"`
	// Rows of the compiled table; 0: the form has none.
	Rows       int `json:"rows,omitempty"`
	TableBytes int `json:"table_bytes,omitempty"`
	// FlowTableBytes is the memory of the flow table.
	FlowTableBytes int `json:"flow_table_bytes,omitempty"`
	// Oversubscription is the most connections that a server has, divided
	// by the mean over the working servers.
	Oversubscription *sim.Stat `json:"oversubscription,omitempty"`
	// Tracked is the number of connections (flows of the trace) that the
	// scheme remembers, Share that of all connections, Expected the share
	// |H| / (|W| + |H|) of JET.
	Tracked  *sim.Stat `json:"tracked,omitempty"`
	Share    *sim.Stat `json:"tracked_share,omitempty"`
	Expected float64   `json:"expected_share,omitempty"`
	// Replaced and Refused are insertions into full sets, in a pass: that
	// put out an entry in use, and that found none to put out.
	Replaced *sim.Stat `json:"replaced,omitempty"`
	Refused  *sim.Stat `json:"refused,omitempty"`
	// Mpps is the rate in millions of packets a second of processor time, one
	// thread: for each seed every twentieth of the trace by its best pass, as
	// what the machine does beside makes one slower, never faster. Passes is
	// over all whole passes.
	Mpps   *sim.Stat `json:"mpps,omitempty"`
	Passes *sim.Stat `json:"mpps_of_passes,omitempty"`
}

// SpeedRatio is a scheme's rate divided by another's with the same hash and
// seed; statistics are over seeds.
type SpeedRatio struct {
	Servers int        `json:"servers"`
	Hash    chash.Kind `json:"hash"`
	Of      string     `json:"of"`
	To      string     `json:"to"`
	Ratio   sim.Stat   `json:"ratio"`
}

// noJET is why a hash cannot do JET; "": it can.
func noJET(k chash.Kind) string {
	if k.Minimal() {
		return ""
	}
	return fmt.Sprintf("a change of %s also moves keys between servers that did not change, so the horizon cannot tell which connections to track", k)
}

// JetTrace runs the benchmark. When ctx ends, so does the run, without result.
func JetTrace(ctx context.Context, o JetTraceOptions) (*JetTraceResult, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	// One thread does it all; another core's cache holds none of its data.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cases := o.cases()
	t := &traceRun{o: o, cases: cases, step: 0, steps: o.Seeds * (1 + o.Passes*len(o.Servers))}
	r := &JetTraceResult{Machine: sim.ThisMachine(), Passes: o.Passes, Load: o.Load, Native: o.Native, Noted: Reported()}
	for s := range o.Seeds {
		seed := o.Seed + uint64(s)
		t.progress(fmt.Sprintf("seed %d: making the trace", seed))
		trace, err := o.trace(ctx, seed)
		if err != nil {
			return nil, err
		}
		r.Trace, r.Flows, r.Packets, r.Skipped = trace.Name, len(trace.Flows), len(trace.Packets), trace.Skipped
		r.Seeds = append(r.Seeds, seed)
		for _, n := range o.Servers {
			if err := t.seed(ctx, trace, n, seed); err != nil {
				return nil, err
			}
		}
		runtime.GC() // the next trace takes the memory of this one
	}
	for _, c := range cases {
		c.sum(r.Packets)
		r.Cases = append(r.Cases, c.TraceCase)
	}
	r.Ratios = ratios(cases)
	return r, nil
}

func (o *JetTraceOptions) trace(ctx context.Context, seed uint64) (*Trace, error) {
	if o.Capture != nil {
		o.Capture.rekey(seed)
		return o.Capture, nil
	}
	made := o.Trace
	made.Seed = seed
	return NewTrace(ctx, made)
}

// traceCase gathers a case's samples.
type traceCase struct {
	TraceCase
	over, tracked, share, replaced, refused []float64
	passes                                  [][]pass // by seed
}

func (o *JetTraceOptions) cases() []*traceCase {
	var out []*traceCase
	for _, n := range o.Servers {
		for _, k := range o.Hashes {
			for _, scheme := range []string{SchemePlain, SchemeFullCT, SchemeJET} {
				if scheme == SchemePlain && !o.Plain {
					continue
				}
				c := &traceCase{TraceCase: TraceCase{Servers: n, Horizon: o.horizon(n), Hash: k, Scheme: scheme}}
				if vip.Scheme(scheme).Row().Foresees() {
					c.NotApplicable = noJET(k)
					c.Expected = float64(c.Horizon) / float64(n+c.Horizon)
				}
				out = append(out, c)
			}
		}
	}
	return out
}

type traceRun struct {
	o           JetTraceOptions
	cases       []*traceCase
	step, steps int
}

func (t *traceRun) progress(what string) {
	if t.o.Progress != nil {
		t.o.Progress(t.step, t.steps, what)
	}
	t.step++
}

// seed runs the cases of n servers over one trace: the passes in the outer
// loop, so that what disturbs the machine for a while disturbs all cases.
func (t *traceRun) seed(ctx context.Context, trace *Trace, n int, seed uint64) error {
	flows := float64(len(trace.Flows))
	share := float64(t.o.horizon(n)) / float64(n+t.o.horizon(n))
	full, few := t.flowTable(flows), t.flowTable(flows*share)
	var plain *plainTable
	if t.o.Plain {
		plain = newPlainTable(len(trace.Flows))
	}
	type running struct {
		c *traceCase
		f *forwarder
	}
	var all []running
	for _, c := range t.cases {
		if c.Servers != n || c.NotApplicable != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		f := &forwarder{trace: trace, flows: full}
		switch {
		case vip.Scheme(c.Scheme).Row().Foresees():
			f.jet, f.flows = true, few
		case c.Scheme == SchemePlain:
			f.flows, f.plain = nil, plain
		}
		for _, before := range all {
			if before.c.Hash == c.Hash {
				f.place = before.f.place
			}
		}
		if f.place == nil {
			var err error
			if f.place, err = newPlacement(c.Hash, t.o.Native, n, c.Horizon, seed); err != nil {
				return err
			}
		}
		c.describe(f)
		c.count(f, n)
		c.passes = append(c.passes, nil)
		all = append(all, running{c, f})
	}
	for pass := range t.o.Passes {
		t.progress(fmt.Sprintf("seed %d, %d servers: pass %d of %d", seed, n, pass+1, t.o.Passes))
		for _, r := range all {
			took, err := r.f.run(ctx)
			if err != nil {
				return err
			}
			last := len(r.c.passes) - 1
			r.c.passes[last] = append(r.c.passes[last], took)
		}
	}
	for _, r := range all {
		r.c.replaced = append(r.c.replaced, float64(r.f.replaced))
		r.c.refused = append(r.c.refused, float64(r.f.full))
	}
	return nil
}

// flowTable is one for so many flows.
func (t *traceRun) flowTable(flows float64) *jet.Flows {
	return jet.NewFlows(int(flows/t.o.Load + 0.5))
}

func (c *traceCase) describe(f *forwarder) {
	c.Rows, c.TableBytes = len(f.place.rows), f.place.bytes()
	if f.plain != nil {
		c.FlowTableBytes = 8 * len(f.plain.entries)
		return
	}
	c.FlowTableBytes = 64 * len(f.flows.Sets)
}

// count finds without measuring where each flow goes, and which the scheme
// tracks.
func (c *traceCase) count(f *forwarder, servers int) {
	perServer := make([]int, chash.None+1)
	tracked := 0
	for i := range f.trace.Flows {
		slot, track := f.place.place(f.trace.hash(&f.trace.Flows[i]))
		perServer[slot&chash.None]++
		if track || !f.jet {
			tracked++
		}
	}
	flows := float64(len(f.trace.Flows))
	c.over = append(c.over, float64(slices.Max(perServer))*float64(servers)/flows)
	c.tracked = append(c.tracked, float64(tracked))
	c.share = append(c.share, float64(tracked)/flows)
}

// sum makes the statistics of the samples over so many packets.
func (c *traceCase) sum(packets int) {
	if c.NotApplicable != "" {
		return
	}
	stat := func(samples []float64) *sim.Stat { s := sim.NewStat(samples); return &s }
	c.Oversubscription, c.Tracked, c.Share = stat(c.over), stat(c.tracked), stat(c.share)
	c.Replaced, c.Refused = stat(c.replaced), stat(c.refused)
	mpps := func(p pass) float64 { return float64(packets) / p.sum().Seconds() / 1e6 }
	var seeds, all []float64
	for _, passes := range c.passes {
		seeds = append(seeds, mpps(best(passes)))
		for _, p := range passes {
			all = append(all, mpps(p))
		}
	}
	c.Mpps, c.Passes = stat(seeds), stat(all)
}

func ratios(cases []*traceCase) []SpeedRatio {
	var out []SpeedRatio
	for _, c := range cases {
		if vip.Scheme(c.Scheme).Row().Tracks != vip.All {
			continue
		}
		for _, other := range cases {
			same := other.Servers == c.Servers && other.Hash == c.Hash && other.NotApplicable == ""
			if !same || other == c {
				continue
			}
			var samples []float64
			for s := range c.passes {
				mine, others := best(c.passes[s]), best(other.passes[s])
				samples = append(samples, mine.sum().Seconds()/others.sum().Seconds())
			}
			out = append(out, SpeedRatio{c.Servers, c.Hash, other.Scheme, c.Scheme, sim.NewStat(samples)})
		}
	}
	return out
}
