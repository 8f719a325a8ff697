package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/tables/effective"
)

// BucketsResult is what `fairlead bench buckets -o json` prints: what it costs
// to change the bucket table of a VIP of scheme beamer or faild, on one core.
type BucketsResult struct {
	experiment.Head
	CPU    string        `json:"cpu"`
	Rounds int           `json:"rounds"` // in which each change was measured
	Cases  []BucketsCase `json:"runs"`
	// Minimal is the way to one contiguous range a server (Table.Minimal).
	Minimal BucketsMinimal `json:"minimal"`
	// PeakBytes is the most memory that the process had resident.
	PeakBytes uint64 `json:"peak_bytes"`
}

// BucketsCase is one change of one table. Times are the fastest of the runs, in
// milliseconds: what the machine does beside makes one slower, never faster.
type BucketsCase struct {
	Name    string `json:"name"`
	Buckets int    `json:"buckets"`
	Before  int    `json:"servers_before"` // that take buckets
	After   int    `json:"servers_after"`
	Moves   int    `json:"moves"`
	// Least is the fewest moves that there can be.
	Least int `json:"moves_least"`
	// Forgotten is how many previous servers that may have connections found
	// no place in a chain.
	Forgotten int `json:"forgotten"`

	AssignMS float64 `json:"assign_ms"` // which buckets move (Table.Assign)
	ApplyMS  float64 `json:"apply_ms"`  // the table after it (Table.Apply)
	// EffectiveMS: a daemon takes the table over; its chains, health and
	// agents' reports laid over (effective.Table.Update).
	EffectiveMS float64 `json:"effective_ms"`
	// IdleMS: the same again when nothing has changed, with every chain open.
	IdleMS float64 `json:"idle_ms"`

	// MedianMS is the runs' medians, by the name of the time before "_ms".
	MedianMS map[string]float64 `json:"median_ms"`

	DeltaBytes int     `json:"delta_bytes"`
	DeltaMS    float64 `json:"delta_ms"` // made, and written to a file
	// ReadMS: the delta read from the file and applied to the old table.
	ReadMS        float64 `json:"read_ms"`
	SnapshotBytes int     `json:"snapshot_bytes"` // the whole table

	TableBytes  int    `json:"table_bytes"`  // in memory
	AssignBytes uint64 `json:"assign_bytes"` // allocated by Assign
}

// BucketsMinimal is what it takes to get an aged table to one range a server.
type BucketsMinimal struct {
	Buckets int `json:"buckets"`
	Servers int `json:"servers"`
	// Churn is the most moves of a step; none changes any server's load.
	Churn int `json:"churn"`
	Steps int `json:"steps"`
	Moves int `json:"moves"`
	// Rules are contiguous ranges, before and after all steps.
	Before int     `json:"rules_before"`
	After  int     `json:"rules_after"`
	MS     float64 `json:"ms"` // to compute the steps
}

// BucketsOptions of a run.
type BucketsOptions struct {
	Runs int
	Seed uint64
	// Progress is called before each case. May be nil.
	Progress func(name string)
}

// chainTime and now of the measured changes, in seconds.
const (
	bucketsChainTime = 240
	bucketsNow       = 1_800_000_000
)

// Buckets measures changes of bucket tables on one core: GOMAXPROCS is 1
// meanwhile, so that the garbage collector's work counts, too.
func Buckets(ctx context.Context, o BucketsOptions) (*BucketsResult, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	dir, err := os.MkdirTemp("", "fairlead-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &BucketsResult{Head: experiment.Begin("bench buckets", o.Seed), CPU: cpu(), Rounds: o.Runs}
	for _, c := range []struct {
		name          string
		buckets       int
		before, after int
		aged          bool
	}{
		{"double", 6_400_000, 32_000, 64_000, false},
		{"double-aged", 6_400_000, 32_000, 64_000, true},
		{"largest-aged", buckets.Max, buckets.MaxServers / 2, buckets.MaxServers, true},
		{"one-aged", 6_400_000, 63_999, 64_000, true},
		{"drain-aged", 6_400_000, 64_000, 63_999, true},
	} {
		if o.Progress != nil {
			o.Progress(c.name)
		}
		m, err := measureBuckets(ctx, c.name, filepath.Join(dir, c.name), c.buckets, c.before, c.after, c.aged, o)
		if err != nil {
			return nil, err
		}
		r.Cases = append(r.Cases, *m)
	}
	if o.Progress != nil {
		o.Progress("minimal")
	}
	r.Minimal = minimalBuckets(640_000, 6_400, 6_400, o.Seed)
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return nil, err
	}
	r.PeakBytes = uint64(usage.Maxrss) << 10
	r.End()
	return r, nil
}

// working are the servers 0 to n-1 of all, and the others draining.
func working(n, all int) []buckets.Server {
	servers := make([]buckets.Server, all)
	for i := range servers {
		servers[i].Number = uint16(i)
		if i < n {
			servers[i].Weight = 1
		}
	}
	return servers
}

// aged is a table of n buckets after a long life: any bucket at any server, as
// many each, moved at any time of the last day; of those that moved within the
// chain time there are chains of every length.
func aged(n int, servers []buckets.Server, seed uint64) *buckets.Table {
	r := rand.New(rand.NewPCG(seed, 0))
	t := buckets.New(n, servers)
	r.Shuffle(n, func(i, j int) { t.Current[i], t.Current[j] = t.Current[j], t.Current[i] })
	for b := range t.Since {
		t.Since[b] = bucketsNow - 1 - r.Uint32N(86_400)
		if t.Since[b]+bucketsChainTime <= bucketsNow {
			continue
		}
		for i, k := 0, r.IntN(buckets.Chain+1); i < k; {
			s := servers[r.IntN(len(servers))].Number
			if s != t.Current[b] && !slices.Contains(t.Previous[b][:], s) {
				t.Previous[b][i] = s
				i++
			}
		}
	}
	return t
}

func measureBuckets(ctx context.Context, name, path string, n, before, after int, old bool, o BucketsOptions) (*BucketsCase, error) {
	all := max(before, after)
	c := &BucketsCase{Name: name, Buckets: n, Before: before, After: after, TableBytes: n * (2 + 4 + 2*buckets.Chain)}
	t := buckets.New(n, working(before, all))
	if old {
		t = aged(n, working(before, all), o.Seed)
	}
	servers := working(after, all)
	options := buckets.Options{Now: bucketsNow, ChainTime: bucketsChainTime}
	view := effective.View{Now: bucketsNow, ChainTime: bucketsChainTime, Servers: servers}
	var times [6][]float64
	for range o.Runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var next *buckets.Table
		var moves []buckets.Move
		var delta []byte
		var err error
		e := new(effective.Table)
		e.Update(t, effective.View{Now: bucketsNow - 1, ChainTime: bucketsChainTime, Servers: working(before, all)})
		for i, step := range []func(){
			func() { moves = t.Assign(servers, options) },
			func() { next, c.Forgotten = t.Apply(moves, options) },
			func() { e.Update(next, view) },
			func() { e.Update(next, view) },
			func() {
				if delta, err = buckets.Delta(t, next); err == nil {
					err = os.WriteFile(path, delta, 0o600)
				}
			},
			func() {
				var data []byte
				var read *buckets.Table
				if data, err = os.ReadFile(path); err != nil {
					return
				}
				if read, err = t.ApplyDelta(data); err == nil && read.Generation != next.Generation {
					err = fmt.Errorf("the delta gives generation %d, not %d", read.Generation, next.Generation)
				}
			},
		} {
			runtime.GC()
			var from, to runtime.MemStats
			runtime.ReadMemStats(&from)
			start := time.Now()
			step()
			times[i] = append(times[i], float64(time.Since(start).Microseconds())/1000)
			if runtime.ReadMemStats(&to); i == 0 {
				c.AssignBytes = to.TotalAlloc - from.TotalAlloc
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		c.Moves, c.DeltaBytes = len(moves), len(delta)
		if c.SnapshotBytes > 0 {
			continue
		}
		c.Least = fewest(t, servers)
		read, err := t.ApplyDelta(delta)
		if err != nil || !read.Equal(next) {
			return nil, fmt.Errorf("%s: the delta does not give the new table: %w", name, cmp.Or(err, fmt.Errorf("rows differ")))
		}
		snapshot, err := next.MarshalBinary()
		if err != nil {
			return nil, err
		}
		c.SnapshotBytes = len(snapshot)
	}
	c.MedianMS = map[string]float64{}
	names := []string{"assign", "apply", "effective", "idle", "delta", "read"}
	for i, to := range []*float64{&c.AssignMS, &c.ApplyMS, &c.EffectiveMS, &c.IdleMS, &c.DeltaMS, &c.ReadMS} {
		slices.Sort(times[i])
		*to = times[i][0]
		c.MedianMS[names[i]] = times[i][len(times[i])/2]
	}
	return c, nil
}

// minimalBuckets: what moved within the chain time stays where it is, so the
// table has not moved for a day.
func minimalBuckets(n, servers, churn int, seed uint64) BucketsMinimal {
	t := aged(n, working(servers, servers), seed)
	o := buckets.Options{Now: bucketsNow + 86_400, ChainTime: bucketsChainTime}
	m := BucketsMinimal{Buckets: n, Servers: servers, Churn: churn, Before: t.Rules()}
	start := time.Now()
	steps := t.Minimal(working(servers, servers), o, churn)
	m.MS = float64(time.Since(start).Microseconds()) / 1000
	m.Steps = len(steps)
	for _, step := range steps {
		m.Moves += len(step)
		for _, move := range step { // as Apply does, without chains
			t.Current[move.Bucket] = move.To
		}
	}
	m.After = t.Rules()
	return m
}

// fewest is how many moves it takes at least that each of servers, whose
// weights are 0 or 1, has n/w buckets, rounded up or down: what is above the
// share rounded down must go, but n mod w servers may keep one more.
func fewest(t *buckets.Table, servers []buckets.Server) int {
	w := 0
	for _, s := range servers {
		w += s.Weight
	}
	share, more, moves := t.Len()/w, t.Len()%w, 0
	for number, load := range t.Loads() {
		if servers[number].Weight == 0 {
			moves += load
		} else if load > share {
			moves += load - share
			if more > 0 {
				more--
				moves--
			}
		}
	}
	return moves
}
