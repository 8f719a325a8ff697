// Package bench measures what a packet costs in the loaded programs, by
// BPF_PROG_TEST_RUN, next to a floor program in the same run.
//
// One sample of a case is a run over many packets (bpf/bench: write the next
// flow's packet, call the program's own inlined entry, undo). What the loop
// costs without the entry is measured in the same round and subtracted. The
// cases of a round take turns, so that what disturbs the machine disturbs all
// of them; medians over the rounds are what is reported, with the least and
// the most beside them.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/experiment"
)

// MinRounds is the least number of rounds that says anything.
const MinRounds = 10

// Options of a run.
type Options struct {
	// Rounds is how often every case is measured; at least MinRounds.
	Rounds int
	// Packets of one sample; 0: 1,048,576, each flow once.
	Packets int
	// Only names the cases to measure beside the floor; empty: all.
	Only []string
	// Progress is called before each round: 0, which warms up and is not
	// counted, to Rounds. May be nil.
	Progress func(round int)
}

// Result is what `fairlead bench -o json` prints.
type Result struct {
	experiment.Head
	CPU    string `json:"cpu"`
	Rounds int    `json:"rounds"`
	// HarnessNS is what was subtracted (median), by kind of packet.
	HarnessNS map[string]float64 `json:"harness_ns"`
	Cases     []Case             `json:"runs"`
}

// Case is one measured way of a packet. Times are nanoseconds a packet, the
// harness subtracted: the median over the rounds, the least and the most.
type Case struct {
	Name  string  `json:"name"`
	NS    float64 `json:"ns"`
	Min   float64 `json:"ns_min"`
	Max   float64 `json:"ns_max"`
	Ratio float64 `json:"ratio"` // of NS to that of the case Floor
	Floor string  `json:"floor"`
	// Bound is what Ratio shall be at most on a machine that does nothing else;
	// 0: none is set. Nothing is judged by it: what else the machine does shows
	// in every figure.
	Bound float64 `json:"bound,omitempty"`
}

// bounds are those of schemes beamer and faild, and of the router, by case.
var bounds = map[string]float64{
	"beamer-known": 1.1, "beamer-known-v6": 1.1, "beamer-known-gue": 1.1, "beamer-known-moved": 1.1, "beamer-new": 1.1,
	"beamer-known-6m":  1.8, // one line that no cache holds
	"stateful-known-1": 1.8, "stateful-known-1m": 2.6, "stateful-new": 2.5,
	"stateful-known-2cpu": 0.56, // of one CPU's time a packet, where two at once take half
	"host-in-settled":     1.2, "host-in-owned": 2.8, "host-forward": 2.8,
	"router-cflb": 1.15, "router-rc5": 1.6,
}

// seed of flows and tables, the same in all runs so that they can be compared.
const seed = 1

// parts is into how many runs a sample is cut. A round runs the first part of
// every case, then the second of every case, and so on; the fastest part of a
// case counts. What the machine does beside makes a run slower, never faster,
// and it lasts longer than one part. Together the parts take every flow once,
// so that none finds its flow in the cache.
const parts = 8

// sample measures one part of a case: nanoseconds a packet.
type sample func(part, packets int) (float64, error)

// measured is a case as the rounds see it.
type measured struct {
	name    string
	harness string // name of the harness that is subtracted
	floor   string // case that it is compared with; "": floor
	run     sample
}

// comparedWith is the case whose time the ratio is to.
func (m measured) comparedWith() string {
	return cmp.Or(m.floor, "floor")
}

// suite is a group of cases with what they need loaded.
type suite struct {
	cases     []measured
	harnesses []measured
	// refresh is called before each round.
	refresh func() error
	close   func()
}

// ErrInterrupted is Run's error when its context ended first.
var ErrInterrupted = errors.New("interrupted")

// Run measures every case. With ErrInterrupted comes the result of the rounds
// that were whole, nil if there is none.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Rounds < MinRounds {
		return nil, fmt.Errorf("%d rounds: a median needs at least %d", o.Rounds, MinRounds)
	}
	if err := Known(o.Only); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("loading programs needs privileges: run as root")
	}
	o.Packets = cmp.Or(o.Packets, flowCount)
	// Per-CPU counters stay in one cache, and no migration counts as cost.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unpin, err := pin()
	if err != nil {
		return nil, err
	}
	defer unpin()

	head := experiment.Begin("bench", seed)
	suites, err := openSuites(o.Only)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range suites {
			s.close()
		}
	}()
	choose(suites, o.Only)
	times := map[string][]float64{}
	// Round 0 warms caches, tables and the processor up, and is not counted.
	for round := range o.Rounds + 1 {
		if o.Progress != nil {
			o.Progress(round)
		}
		for _, s := range suites {
			if err := oneRound(ctx, s, o.Packets, times, round > 0); err != nil {
				return interrupted(ctx, head, suites, times, round-1, err)
			}
		}
	}
	return report(head, suites, times, o.Rounds)
}

// interrupted is Run's answer where err stopped it after some whole rounds:
// if the context ended it, what these say, with ErrInterrupted.
func interrupted(ctx context.Context, head experiment.Head, suites []*suite, times map[string][]float64, whole int, err error) (*Result, error) {
	if ctx.Err() == nil {
		return nil, err
	}
	if whole < 1 {
		return nil, fmt.Errorf("%w before the first round was whole: nothing is measured", ErrInterrupted)
	}
	for name := range times { // one suite may have begun the next round
		times[name] = times[name][:min(whole, len(times[name]))]
	}
	r, err := report(head, suites, times, whole)
	if err != nil {
		return nil, err
	}
	return r, fmt.Errorf("%w after %d whole rounds", ErrInterrupted, whole)
}

// Names are the cases that there are, in the order of a result.
func Names() (all []string) {
	for _, s := range kinds {
		for _, c := range s.cases() {
			all = append(all, c.name)
		}
	}
	return all
}

// kind is a program that has cases.
type kind struct {
	cases func() []measured // their names
	open  func() (*suite, error)
}

// kinds are all, in the order of a result. All are loaded beside each other,
// so that their cases take turns.
var kinds = []kind{
	{func() []measured { return balancerSuite([places]*balancer{}).cases }, openBalancers},
	{func() []measured { return (&agent{}).cases() }, openAgent},
	{func() []measured { return routerSuite(nil).cases }, openRouters},
}

// openSuites loads everything that has one of these cases, or one that they
// are compared with; none named: everything.
func openSuites(only []string) (suites []*suite, err error) {
	defer func() {
		if err != nil {
			for _, s := range suites {
				s.close()
			}
		}
	}()
	needed := map[string]bool{}
	for _, k := range kinds {
		for _, c := range k.cases() {
			if len(only) == 0 || slices.Contains(only, c.name) {
				needed[c.name], needed[c.comparedWith()] = true, true
			}
		}
	}
	for _, k := range kinds {
		if !slices.ContainsFunc(k.cases(), func(c measured) bool { return needed[c.name] }) {
			continue
		}
		s, err := k.open()
		if err != nil {
			return suites, err
		}
		suites = append(suites, s)
	}
	return suites, nil
}

// Known says which of names is no case, and what there is.
func Known(names []string) error {
	all := Names()
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("no case is named %q; there are %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}

// choose leaves only the named cases and what they are compared with.
func choose(suites []*suite, only []string) {
	if len(only) == 0 {
		return
	}
	for _, s := range suites {
		keep := slices.Clone(only)
		for _, c := range s.cases {
			if slices.Contains(only, c.name) {
				keep = append(keep, c.comparedWith())
			}
		}
		s.cases = slices.DeleteFunc(s.cases, func(c measured) bool { return !slices.Contains(keep, c.name) })
		// What nothing is subtracted from need not be measured.
		s.harnesses = slices.DeleteFunc(s.harnesses, func(h measured) bool {
			return !slices.ContainsFunc(s.cases, func(c measured) bool { return c.harness == h.name })
		})
	}
}

func oneRound(ctx context.Context, s *suite, packets int, times map[string][]float64, count bool) error {
	if err := s.refresh(); err != nil {
		return err
	}
	best := map[string]float64{}
	for part := range parts {
		for _, c := range slices.Concat(s.harnesses, s.cases) {
			if err := ctx.Err(); err != nil {
				return err
			}
			ns, err := c.run(part, max(packets/parts, packetsPerRun))
			if err != nil {
				return fmt.Errorf("measure %s: %w", c.name, err)
			}
			if before, ok := best[c.name]; !ok || ns < before {
				best[c.name] = ns
			}
		}
	}
	if !count {
		return nil
	}
	for _, h := range s.harnesses {
		times[h.name] = append(times[h.name], best[h.name])
	}
	for _, c := range s.cases {
		times[c.name] = append(times[c.name], best[c.name]-best[c.harness])
	}
	return nil
}

func report(head experiment.Head, suites []*suite, times map[string][]float64, rounds int) (*Result, error) {
	head.End()
	r := &Result{Head: head, Rounds: rounds, HarnessNS: map[string]float64{}, CPU: cpu()}
	for _, s := range suites {
		for _, h := range s.harnesses {
			r.HarnessNS[h.name] = median(times[h.name])
		}
		for _, c := range s.cases {
			t := times[c.name]
			m, floor := median(t), median(times[c.comparedWith()])
			if floor <= 0 {
				return nil, fmt.Errorf("%s measured %.1f ns: the machine is too noisy; try more rounds", c.comparedWith(), floor)
			}
			r.Cases = append(r.Cases, Case{Name: c.name, NS: m, Min: slices.Min(t), Max: slices.Max(t), Ratio: m / floor, Floor: c.comparedWith(), Bound: bounds[c.name]})
		}
	}
	return r, nil
}

func median(t []float64) float64 {
	if len(t) == 0 {
		return 0
	}
	t = slices.Sorted(slices.Values(t))
	if n := len(t); n%2 == 0 {
		return (t[n/2-1] + t[n/2]) / 2
	}
	return t[len(t)/2]
}

// pin keeps the calling thread on the last CPU it may use (the first one takes
// most interrupts).
func pin() (undo func(), err error) {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("read the CPU affinity: %w", err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("set the CPU affinity: %w", err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &all) }, nil
}

func cpu() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// perPacket turns a run's time into one packet's.
func perPacket(d time.Duration) float64 { return float64(d.Nanoseconds()) / packetsPerRun }
