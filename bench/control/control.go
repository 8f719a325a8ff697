// Package control measures what a large change costs the control plane: one VIP of
// scheme beamer gets as many servers as it has, and all watch (Beamer's slides).
//
//	this process ── plans, writes versions ──▶ three `fairlead controller`
//	                                             │ head, parts; reports back
//	        a process of watchers ◀──────────────┤ 100 connections, digests verified
//	        a process with a balancer's maps ◀───┘ loaded, filled, flipped
//
// Servers are names and addresses: no agent runs. Watchers are balancers that fetch,
// verify, accept and report as such, each by a connection of its own, and put nothing
// into a kernel; they run at the lowest priority, since on their own machines they would
// take nothing from the one that is measured.
package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/vip"
)

// Options of a run.
type Options struct {
	Servers int // before; as many join
	Buckets int
	// Watchers beside the balancer; 0: it is alone.
	Watchers int
	// Aged: buckets are anywhere, as after a long life; else one range a server.
	Aged bool
	Seed uint64 // of an aged table
	// Program is `fairlead`, which runs the controllers, and Self `fairlead-lab`.
	Program, Self string
	// Progress is called with what begins. May be nil.
	Progress func(what string)
}

// Result is what `fairlead bench control -o json` prints. Times are in milliseconds,
// sizes in bytes.
type Result struct {
	experiment.Head
	Servers  int    `json:"servers_before"`
	After    int    `json:"servers_after"`
	Buckets  int    `json:"buckets"`
	Watchers int    `json:"watchers"`
	Aged     bool   `json:"aged"`
	Load     string `json:"load"` // of the machine, when the change began
	// PlanMS: the versions are computed; StoreMS: and in the store, all of them,
	// without waiting for daemons between; CPUMS is what the process took for that.
	PlanMS  float64 `json:"plan_ms"`
	StoreMS float64 `json:"controller_ms"`
	CPUMS   float64 `json:"controller_cpu_ms"`
	// FloorMS: writing as many bytes to the store as values of no meaning.
	FloorMS  float64   `json:"floor_ms"`
	Versions []Version `json:"runs"`
	// PlannerBytes is the most memory that this process had resident, NodeBytes what
	// the controllers have after the store was compacted, and NodeDiskBytes on disk.
	PlannerBytes  uint64   `json:"planner_peak_bytes"`
	NodeBytes     []uint64 `json:"node_bytes"`
	NodePeakBytes []uint64 `json:"node_peak_bytes"`
	NodeDiskBytes []uint64 `json:"node_disk_bytes"`
}

// Version is what one version of the change cost.
type Version struct {
	Version  uint64  `json:"version"`
	What     string  `json:"name"`
	AppendMS float64 `json:"append_ms"` // into the store
	// Of the balancer: from the notice on, until it was fetched and verified, accepted,
	// and in force for packets; FetchMS of that is waiting for the store. What is of
	// ApplyMS and behind FillMS packets do not wait for.
	FetchMS   float64 `json:"fetch_ms"`
	ReadMS    float64 `json:"read_ms"`
	AcceptMS  float64 `json:"accept_ms"`
	ApplyMS   float64 `json:"apply_ms"`
	InForceMS float64 `json:"notice_to_installed_ms"`
	// Of ApplyMS: tables computed, ways to servers looked up, server lines written, the
	// idle half filled and flipped.
	PlanMS  float64 `json:"tables_ms"`
	WaysMS  float64 `json:"ways_ms"`
	LinesMS float64 `json:"lines_ms"`
	FillMS  float64 `json:"fill_ms"`
	// CPUMS is its processor time for all, and ReadCPUMS until it was accepted.
	CPUMS     float64 `json:"balancer_cpu_ms"`
	ReadCPUMS float64 `json:"balancer_read_cpu_ms"`
	DiskMS    float64 `json:"disk_ms"` // since it was in force, until it is on the balancer's disk; 0: the next came first
	// ReadBytes are what the balancer, and every watcher, read of the store for it.
	ReadBytes uint64 `json:"bytes_a_balancer"`
	// AllMS: until all had it and said so. WatcherCPUMS is the watchers' median.
	AllMS        float64 `json:"all_ms"`
	WatcherCPUMS float64 `json:"watcher_cpu_ms"`
}

// secret is the deployment's.
const secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// Run measures one change.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	say := func(what string) {
		if o.Progress != nil {
			o.Progress(what)
		}
	}
	dir, err := os.MkdirTemp("", "fairlead-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &Result{Head: experiment.Begin("bench control", o.Seed), Servers: o.Servers, After: 2 * o.Servers, Buckets: o.Buckets, Watchers: o.Watchers, Aged: o.Aged}

	say("starting three controllers")
	n, err := startNodes(ctx, dir, o.Program)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	s, l, err := n.at.open()
	if err != nil {
		return nil, err
	}
	defer s.Close()

	say("the first version")
	before, err := deployment(o.Servers, o.Buckets)
	if err != nil {
		return nil, err
	}
	first, err := controller.First(before)
	if err != nil {
		return nil, err
	}
	if o.Aged {
		age(first.VIPs[0].Buckets, o.Servers, o.Seed)
	}
	head, err := l.Head(ctx)
	if err != nil {
		return nil, err
	}
	if head, err = l.Append(ctx, head, nil, first, ledger.Change{Who: "bench"}); err != nil {
		return nil, err
	}
	if head, err = l.Turn(ctx, head, 3); err != nil {
		return nil, err
	}
	crowd, err := startParts(ctx, o, n.at, filepath.Join(dir, "balancer"))
	if err != nil {
		return nil, err
	}
	stop := sync.OnceValue(crowd.stop)
	defer func() { err = errors.Join(err, stop()) }()
	say("waiting until all have the first version")
	if err := crowd.await(ctx, l, first, o.Watchers+1); err != nil {
		return nil, err
	}

	after, err := deployment(2*o.Servers, o.Buckets)
	if err != nil {
		return nil, err
	}
	say("the change")
	r.Load = load()
	begun, cpu := time.Now(), processCPU()
	steps, _, err := controller.Plan(after, first, controller.LiveCounts{}, time.Now(), false)
	if err != nil {
		return nil, err
	}
	r.PlanMS = ms(time.Since(begun))
	r.StoreMS, r.CPUMS = r.PlanMS, ms(processCPU()-cpu)
	prior := first
	for _, step := range steps {
		v := Version{Version: step.Version, What: "servers join"}
		if step.VIPs[0].Buckets != prior.VIPs[0].Buckets {
			v.What = "buckets move"
		}
		begun, cpu := time.Now(), processCPU()
		if head, err = l.Append(ctx, head, prior, step, ledger.Change{Who: "bench"}); err != nil {
			return nil, err
		}
		v.AppendMS = ms(time.Since(begun))
		r.StoreMS += v.AppendMS
		r.CPUMS += ms(processCPU() - cpu)
		begun = time.Now()
		if head, err = l.Turn(ctx, head, 3); err != nil {
			return nil, err
		}
		if err := crowd.await(ctx, l, step, o.Watchers+1); err != nil {
			return nil, err
		}
		v.AllMS = ms(time.Since(begun))
		r.Versions = append(r.Versions, v)
		prior = step
	}
	if err := stop(); err != nil {
		return nil, err
	}
	var size uint64
	for i := range r.Versions {
		crowd.fill(&r.Versions[i])
		size += r.Versions[i].ReadBytes
	}
	if r.FloorMS, err = floor(ctx, s, size); err != nil {
		return nil, err
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return nil, err
	}
	r.PlannerBytes = uint64(usage.Maxrss) << 10
	if err := n.measure(ctx, r); err != nil {
		return nil, err
	}
	r.End()
	return r, nil
}

// deployment is one VIP with so many servers and buckets.
func deployment(servers, n int) (*config.Config, error) {
	c := &config.Config{Secret: secret}
	c.Balancers = []config.Balancer{{Name: "lb1", Interfaces: []string{"eth0"}, Source: netip.MustParsePrefix("10.200.0.0/16")}}
	v := config.VIP{Settings: vip.Settings{Name: "v", Address: netip.MustParseAddr("192.0.2.1"), Scheme: vip.Beamer}, Port: 80, Buckets: n}
	for i := range servers {
		name := fmt.Sprintf("s%d", i)
		c.Servers = append(c.Servers, config.Server{Name: name, Address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})})
		v.Servers = append(v.Servers, config.Member{Name: name})
	}
	c.VIPs = []config.VIP{v}
	return c, c.Validate()
}

// age gives t a long life: any bucket at any server, moved at any time of the last day.
func age(t *buckets.Table, servers int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	now := uint32(time.Now().Unix())
	r.Shuffle(t.Len(), func(i, j int) { t.Current[i], t.Current[j] = t.Current[j], t.Current[i] })
	for b := range t.Since {
		t.Since[b] = now - 1 - r.Uint32N(86_400)
		if t.Since[b]+240 <= now {
			continue
		}
		for i, k := 0, r.IntN(buckets.Chain+1); i < k; {
			s := uint16(r.IntN(servers))
			if s != t.Current[b] && !slices.Contains(t.Previous[b][:], s) {
				t.Previous[b][i] = s
				i++
			}
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// processCPU is what this process has taken of processors.
func processCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Address is where the store is: a part is told of it.
type Address struct {
	Endpoints []string   `json:"endpoints"`
	TLS       config.TLS `json:"tls"`
}
