// Package draintime is the scenario `lab run drain-time`: how long it takes from the
// command to the last new connection that any of ten balancers gives a server which
// drains.
//
//	client ── router ─┬─ lb1 … lb10 ─┬─ server1
//	                  │              └─ server2, which drains, and is undrained
//	connects all the time       SYNs are seen here
package draintime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/store"
)

// Options of a run; zero fields are the defaults.
type Options struct {
	Name    string // of the lab; default drain and this process's number
	Program string
	LBs     int // default 10
	Drains  int // default 20
	// Rate is how many connections clients open a second; default 4000.
	Rate int
	Keep bool // leave the lab of a failed run
	// Watch, if not nil, is told what happens.
	Watch func(text string)
}

// Result is a run. Its JSON form is stable.
type Result struct {
	experiment.Head
	Balancers int     `json:"balancers"`
	Rate      float64 `json:"connections_per_second"`
	Drains    []Drain `json:"drains"`
	// LastNew is what is measured: from the start of `fairleadctl drain` to the last new
	// connection. Whole is the same of `fairlead drain`, in turn with it.
	LastNew Spread `json:"last_new_ms"`
	Whole   Spread `json:"last_new_whole_ms"`
	// Agreed is how much of it is over when the store has the version, and Answered when
	// the command ended, which waits for the store to hear of all daemons.
	Agreed   Spread `json:"agreed_ms"`
	Answered Spread `json:"answered_ms"`
	// Version and Put are floors, measured in between: `fairleadctl version`, and one put to
	// the store.
	Version Spread `json:"floor_version_ms"`
	Put     Spread `json:"floor_put_ms"`
	// Gap is the time between two new connections that one balancer gives the server: the
	// last balancer may have gone on for so long without being seen.
	Gap float64 `json:"gap_ms"`
	// Load is the machine's in the last minute, at the end.
	Load string `json:"load"`
}

// Drain is one, by fairleadctl.
type Drain struct {
	LastNew  float64 `json:"last_new_ms"`
	Agreed   float64 `json:"agreed_ms"`
	Answered float64 `json:"answered_ms"`
}

// Spread is of milliseconds.
type Spread struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Worst  float64 `json:"worst"`
}

func spread(of []float64) Spread {
	if len(of) == 0 {
		return Spread{}
	}
	of = slices.Sorted(slices.Values(of))
	at := func(q float64) float64 { return of[min(len(of)-1, int(q*float64(len(of))))] }
	return Spread{Median: at(0.5), P90: at(0.9), Worst: of[len(of)-1]}
}

const (
	servers = 2
	drained = "server2"
	// patience is how long anything may take.
	patience = 30 * time.Second
	// after is how many connections must come after the command's end, so that one that
	// a balancer still gives to the server is seen.
	after = 400
)

var vip = lab.VIP{Name: "web", Address: netip.MustParseAddr("10.77.7.1"), Port: 80, Protocol: "tcp", Scheme: "cheetah", Policy: "rr", Health: "tcp"}

// run is a running one.
type run struct {
	o      *Options
	lab    *lab.Lab
	store  store.Store
	result *Result
	opened atomic.Int64 // connections
	failed atomic.Int64
	syns   *syns
}

// Run carries the scenario out.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if o.Name == "" {
		o.Name = fmt.Sprint("drain", os.Getpid())
	}
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	if o.LBs == 0 {
		o.LBs = 10
	}
	if o.Drains == 0 {
		o.Drains = 20
	}
	if o.Rate == 0 {
		o.Rate = 4000
	}
	r := &run{o: &o, result: &Result{Head: experiment.Begin("drain-time", 0), Balancers: o.LBs}}
	r.lab, err = lab.Up(ctx, lab.Options{Name: o.Name, Servers: servers, LBs: o.LBs, VIPs: []lab.VIP{vip}, Program: o.Program}, !o.Keep)
	if err != nil {
		return nil, err
	}
	err = r.measure(ctx)
	if !o.Keep || err == nil && len(r.result.Verdict) == 0 {
		err = errors.Join(err, lab.Down(o.Name))
	}
	if err != nil {
		return nil, err
	}
	r.result.End()
	return r.result, nil
}

func (r *run) measure(ctx context.Context) error {
	cfg, err := config.Load(r.lab.ConfigPath())
	if err != nil {
		return err
	}
	if r.store, _, err = rollout.Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	defer r.store.Close()
	server, err := r.lab.Machine(drained)
	if err != nil {
		return err
	}
	if err := netspace.In(server, func() (err error) {
		r.syns, err = watchSYNs(lab.Uplink, vip.Port)
		return err
	}); err != nil {
		return err
	}
	defer r.syns.close()
	client, err := r.lab.Machine("client")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	clients, ctx := errgroup.WithContext(ctx)
	o := opens{rate: r.o.Rate, to: unix.SockaddrInet4{Addr: vip.Address.As4(), Port: int(vip.Port)},
		opened: func() { r.opened.Add(1) }, failed: func() { r.failed.Add(1) }}
	clients.Go(func() error { return netspace.In(client, func() error { return o.run(ctx) }) })
	began := time.Now()
	err = r.play(ctx)
	r.result.Rate = float64(r.opened.Load()) / time.Since(began).Seconds()
	stop()
	return errors.Join(err, clients.Wait())
}

// play drains and undrains, and measures floors in between.
func (r *run) play(ctx context.Context) error {
	if err := r.await(ctx, "new connections at "+drained, func() bool { return r.syns.count() > after }); err != nil {
		return err
	}
	var versions, puts, lastNew, agreed, answered, whole []float64
	began, seen := time.Now(), r.syns.count()
	var busy time.Duration // in which the server gets connections
	drain := func(by program) (Drain, error) {
		busy += time.Since(began)
		d, err := r.drain(ctx, by)
		if err != nil {
			return d, err
		}
		began = time.Now()
		return d, r.undrain(ctx)
	}
	for range r.o.Drains {
		took, err := r.command(ctx, r.lab.Ctl, "version")
		if err != nil {
			return err
		}
		versions = append(versions, took)
		if took, err = r.put(ctx); err != nil {
			return err
		}
		puts = append(puts, took)
		d, err := drain(r.lab.Ctl)
		if err != nil {
			return err
		}
		r.result.Drains = append(r.result.Drains, d)
		lastNew, agreed, answered = append(lastNew, d.LastNew), append(agreed, d.Agreed), append(answered, d.Answered)
		r.o.Watch(fmt.Sprintf("last new connection after %.1f ms (agreed on after %.1f, answered after %.1f)", d.LastNew, d.Agreed, d.Answered))
		if d, err = drain(r.whole); err != nil {
			return err
		}
		whole = append(whole, d.LastNew)
		r.o.Watch(fmt.Sprintf("by the whole program after %.1f ms", d.LastNew))
	}
	result := r.result
	result.LastNew, result.Agreed, result.Answered = spread(lastNew), spread(agreed), spread(answered)
	result.Version, result.Put, result.Whole = spread(versions), spread(puts), spread(whole)
	result.Gap = busy.Seconds() * 1000 / float64(r.syns.count()-seen) * float64(r.o.LBs)
	load, err := os.ReadFile("/proc/loadavg")
	result.Load = string(load[:min(len(load), 4)])
	if failed, opened := r.failed.Load(), r.opened.Load(); failed > 0 {
		result.Verdict = append(result.Verdict, fmt.Sprintf("%d of %d connections failed", failed, opened))
	}
	return err
}

// undrain gives the server connections again.
func (r *run) undrain(ctx context.Context) error {
	if _, err := r.command(ctx, r.lab.Ctl, "undrain", r.lab.DaemonName(drained), "-f", r.lab.ConfigPath()); err != nil {
		return err
	}
	before := r.syns.count()
	return r.await(ctx, "new connections at "+drained+", undrained", func() bool { return r.syns.count() > before+after/2 })
}

// program is fairleadctl or fairlead, on a machine.
type program func(ctx context.Context, machine string, args ...string) (stdout, stderr string, err error)

func (r *run) whole(ctx context.Context, machine string, args ...string) (stdout, stderr string, err error) {
	return r.lab.Command(ctx, machine, nil, args...)
}

// drain drains the server once.
func (r *run) drain(ctx context.Context, by program) (d Drain, err error) {
	_, rev, err := r.store.Read(ctx, "head")
	if err != nil {
		return d, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	agreed := make(chan time.Time, 1)
	go func() {
		for range r.store.Watch(watching, "head", rev) {
			agreed <- time.Now()
			return
		}
	}()
	began := time.Now()
	if d.Answered, err = r.command(ctx, by, "drain", r.lab.DaemonName(drained), "-f", r.lab.ConfigPath()); err != nil {
		return d, err
	}
	opened := r.opened.Load()
	if err := r.await(ctx, "more connections", func() bool { return r.opened.Load() > opened+after }); err != nil {
		return d, err
	}
	select {
	case at := <-agreed:
		d.Agreed = milliseconds(at.Sub(began))
	case <-time.After(patience):
		return d, errors.New("the store's head did not move by a drain")
	}
	d.LastNew = milliseconds(r.syns.newest().Sub(began))
	return d, nil
}

func (r *run) command(ctx context.Context, by program, args ...string) (took float64, err error) {
	began := time.Now()
	_, said, err := by(ctx, "lb1", args...)
	if err != nil {
		return 0, fmt.Errorf("fairlead %s: %w: %s", args[0], err, said)
	}
	return milliseconds(time.Since(began)), nil
}

// put is how long the store takes for one, of a key that nobody else has.
func (r *run) put(ctx context.Context) (took float64, err error) {
	began := time.Now()
	_, err = r.store.Commit(ctx, nil, store.Op{Key: "drain-time", Value: []byte(began.String())})
	return milliseconds(time.Since(began)), err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *run) await(ctx context.Context, what string, done func() bool) error {
	if !netspace.WaitFor(patience, func() bool { return done() || ctx.Err() != nil }) {
		return fmt.Errorf("no %s for %v", what, patience)
	}
	return ctx.Err()
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintf(w, "kernel %s, %.0f s, load %s; %d drains of a server behind %d balancers, %.0f new connections a second\n\n",
		r.Kernel, r.Seconds, r.Load, len(r.Drains), r.Balancers, r.Rate)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "MILLISECONDS\tMEDIAN\tP90\tWORST\t")
	for _, l := range []struct {
		what string
		Spread
	}{{"command to last new connection", r.LastNew}, {"command to agreed on", r.Agreed}, {"command to its end", r.Answered},
		{"the same, by the whole program", r.Whole}, {"floor: fairleadctl version", r.Version}, {"floor: a put to the store", r.Put}} {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t\n", l.what, l.Median, l.P90, l.Worst)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nA balancer gave the server a new connection every %.0f ms: the last one may have gone on for so long unseen.\n", r.Gap)
	return err
}
