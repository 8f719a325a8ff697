// Package held is the scenario `lab run l2-vip`: balancers on one Ethernet with a
// client and servers hold the VIPs' addresses by ARP and neighbour discovery. The
// holder of an address is told to stop, is killed, loses its power and comes back, and
// the store is away for a while, all under connections and a stream of datagrams to
// each address.
//
//	client ──┬── lb1, lb2, lb3, of which each holds some addresses
//	         └── server1, server2
//
// Files: held.go the options and the order of things, stream.go the datagrams, print.go
// the table.
package held

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/l2"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/talk"
	"github.com/fairlead/fairlead/vip"
)

// Options of a run; zero fields are the defaults.
type Options struct {
	Name string // of the lab; default held and this process's number
	// Schemes of the VIPs, each in a run of its own (default cheetah, jet).
	Schemes []string
	// Connections at a time (default 64, at most 1024).
	Connections int
	Seed        uint64 // of the connections' ports, and of who has what happen to it
	// Brief: the holder is told to stop, and another loses its power, that is all.
	Brief bool
	// Program is the fairlead binary that runs in the machines.
	Program string
	Keep    bool // leave the lab of a failed run
	// Watch, if not nil, is told what happens.
	Watch func(text string)
}

// Bounds of how long datagrams may go unanswered: when a holder loses its power, and
// when anything else happens, where another has the address before it is missed. A
// moment is what a machine of few processors takes to run everybody.
const (
	Within = time.Second
	moment = 250 * time.Millisecond
)

// patience is how long anything may take.
const patience = 60 * time.Second

// Result is all runs. Its JSON form is stable.
type Result struct {
	experiment.Head
	Connections int         `json:"connections"`
	Runs        []RunResult `json:"runs"`
}

// RunResult is one scheme's.
type RunResult struct {
	Scheme string `json:"scheme"`
	Steps  []Step `json:"steps"`
	// Broken connections: errors, or another server's answer. LongestGap is the
	// longest that one of them waited for an answer.
	Broken     int     `json:"broken"`
	Answers    int64   `json:"answers"`
	LongestGap float64 `json:"longest_gap_seconds"`
}

// Step is something that happens.
type Step struct {
	Name string `json:"name"`
	// Moved are how many of the addresses had another holder afterwards.
	Moved int `json:"moved"`
	// Lost is for how long no datagram to an address was answered, of the address that
	// fared worst; Most is what it may be.
	Lost float64 `json:"lost_seconds"`
	Most float64 `json:"most_seconds"`
}

// Check refuses options that cannot work, and fills in defaults.
func (o *Options) Check() error {
	if len(o.Schemes) == 0 {
		o.Schemes = []string{"cheetah", "jet"}
	}
	for _, s := range o.Schemes {
		if row := vip.Scheme(s).Row(); row.Name == "" || row.Switched {
			return fmt.Errorf("--scheme %s: must be a scheme of balancers, such as cheetah or jet", s)
		}
	}
	o.Connections = cmp.Or(o.Connections, 64)
	if o.Connections < 1 || o.Connections > 1024 {
		return fmt.Errorf("--connections %d: must be 1 to 1024", o.Connections)
	}
	o.Name = cmp.Or(o.Name, fmt.Sprint("held", os.Getpid()))
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	return nil
}

// addresses are those of the VIPs.
var addresses = []netip.Addr{netip.MustParseAddr("10.77.7.1"), netip.MustParseAddr("10.77.7.2"), netip.MustParseAddr("fd77:7::1"), netip.MustParseAddr("fd77:7::2")}

// vips are a web service and an echo of datagrams on each address.
func vips(scheme string) (all []lab.VIP) {
	for i, a := range addresses {
		all = append(all,
			lab.VIP{Name: fmt.Sprint("web", i+1), Address: a, Port: 80, Protocol: "tcp", Scheme: scheme, Policy: string(vip.Scheme(scheme).Policies(vip.TCP)[0]), Health: "http"},
			lab.VIP{Name: fmt.Sprint("echo", i+1), Address: a, Port: 7, Protocol: "udp", Scheme: scheme, Policy: "hash"})
	}
	return all
}

// Run carries the scenario out.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	result := &Result{Head: experiment.Begin("l2-vip", o.Seed), Connections: o.Connections}
	random := experiment.Random(o.Seed)
	ports := experiment.Ports(random)
	for _, scheme := range o.Schemes {
		l, err := lab.Up(ctx, lab.Options{Name: o.Name, Servers: 2, LBs: 3, L2: true, Scheme: scheme, Program: o.Program, VIPs: vips(scheme)}, !o.Keep)
		if err != nil {
			return nil, err
		}
		r := &run{o: &o, lab: l, about: addresses[rand.New(random).IntN(len(addresses))].String(), result: RunResult{Scheme: scheme}, talk: talk.Talk{Lab: l, Ports: ports}}
		for _, v := range l.VIPs {
			if v.Protocol == "tcp" {
				r.talk.Endpoints = append(r.talk.Endpoints, v.Endpoint())
			}
		}
		err = r.play(ctx)
		verdict := r.judge()
		result.Runs, result.Verdict = append(result.Runs, r.result), append(result.Verdict, verdict...)
		if !o.Keep || err == nil && len(verdict) == 0 {
			err = errors.Join(err, lab.Down(o.Name))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scheme, err)
		}
	}
	result.End()
	return result, nil
}

// run is the scenario with one scheme.
type run struct {
	o   *Options
	lab *lab.Lab
	// about is the address whose holder things happen to.
	about  string
	talk   talk.Talk
	sum    talk.Sum
	flow   streams
	result RunResult
	// holders is who holds each address.
	holders map[string]string
	last    string // whom something has happened to
}

// play does one thing after the other.
func (r *run) play(ctx context.Context) (err error) {
	begin := r.spread
	if r.o.Brief {
		begin = r.settle
	}
	if err := begin(ctx); err != nil {
		return err
	}
	if err := r.flow.begin(ctx, r.lab, addresses); err != nil {
		return err
	}
	defer r.flow.end()
	r.talk.Begin(ctx, r.o.Connections)
	defer func() { r.sum = r.talk.End() }()
	back := func(start func(context.Context, string) error) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(start(ctx, r.last), r.spread(ctx)) }
	}
	steps := []struct {
		name string
		most time.Duration
		do   func(context.Context) error
	}{
		{"the holder is told to stop", moment, r.holder(r.lab.StopDaemon)},
		{"it starts again, and has its part", moment, back(r.lab.StartDaemon)},
		{"the holder's daemon is killed", moment, r.holder(func(_ context.Context, m string) error { return r.lab.KillDaemon(m) })},
		{"it starts again", moment, back(r.lab.StartDaemon)},
		{"the store is away", moment, r.storeGone},
		{"the store is back", moment, r.storeBack},
		{"the holder loses its power", Within, r.holder(func(_ context.Context, m string) error { return r.lab.CutPower(m) })},
		{"it has power again", moment, back(r.lab.Boot)},
	}
	if r.o.Brief {
		steps = slices.Concat(steps[:1], steps[6:7])
	}
	for _, s := range steps {
		if err := r.step(ctx, s.name, s.most, s.do); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// step does something, and notes how datagrams fared meanwhile and until all is quiet.
func (r *run) step(ctx context.Context, name string, most time.Duration, do func(context.Context) error) error {
	before, began := r.holders, time.Now()
	if err := do(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, 2*moment); err != nil { // what was lost at the end shows
		return err
	}
	s := Step{Name: name, Lost: r.flow.lost(began).Seconds(), Most: most.Seconds()}
	for a, h := range r.holders {
		if before[a] != h {
			s.Moved++
		}
	}
	r.result.Steps = append(r.result.Steps, s)
	r.o.Watch("  " + s.line())
	return nil
}

// holder does something to whoever holds the address that this is about, and waits
// until that one holds nothing.
func (r *run) holder(do func(context.Context, string) error) func(context.Context) error {
	return func(ctx context.Context) error {
		r.last = r.holders[r.about]
		if err := do(ctx, r.last); err != nil {
			return err
		}
		return r.await(ctx, r.last+" holds nothing any more", func() bool {
			for _, h := range r.holders {
				if h == r.last {
					return false
				}
			}
			return true
		})
	}
}

// spread waits until the balancers, all of which are there, have the addresses that the
// rule gives them.
func (r *run) spread(ctx context.Context) error {
	names := []string{r.lab.Name + "-lb1", r.lab.Name + "-lb2", r.lab.Name + "-lb3"}
	return r.await(ctx, "all balancers have their parts", func() bool {
		return !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return r.lab.Name+"-"+r.holders[a.String()] != l2.Order(a, names)[0] })
	})
}

// away is longer than the daemons' leases.
const away = 7 * time.Second

func (r *run) storeGone(ctx context.Context) error {
	if err := r.lab.StopStore(); err != nil {
		return err
	}
	return sleep(ctx, away)
}

func (r *run) storeBack(ctx context.Context) error {
	if err := r.lab.StartStore(); err != nil {
		return err
	}
	return r.await(ctx, "the store answers all", func() bool {
		for _, s := range r.statuses(ctx) {
			if s.L2.Error != "" {
				return false
			}
		}
		return true
	})
}

// statuses are those of the balancers that answer.
func (r *run) statuses(ctx context.Context) (all []*fairleadv1.GetStatusResponse) {
	for n := 1; n <= r.lab.LBs; n++ {
		client, err := api.Dial("unix:"+filepath.Join(r.lab.Dir(), fmt.Sprint("lb", n, ".sock")), config.TLS{})
		if err != nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		s, err := client.GetStatus(call, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
		cancel()
		if err == nil && s.Msg.L2 != nil {
			all = append(all, s.Msg)
		}
	}
	return all
}

// look finds out who holds what; false: not each address has one holder.
func (r *run) look(ctx context.Context) bool {
	r.holders = map[string]string{}
	one := true
	for _, s := range r.statuses(ctx) {
		for _, a := range s.L2.Addresses {
			if a.Held {
				one = one && r.holders[a.Address] == ""
				r.holders[a.Address] = strings.TrimPrefix(s.Name, r.lab.Name+"-")
			}
		}
	}
	return one && len(r.holders) == len(addresses)
}

// settle waits until each address has one holder.
func (r *run) settle(ctx context.Context) error {
	return r.await(ctx, "each address is held by one", func() bool { return true })
}

// await waits until each address has one holder and more is true.
func (r *run) await(ctx context.Context, what string, more func() bool) error {
	for began := time.Now(); !r.look(ctx) || !more(); {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%v passed until %s: holders are %v", patience, what, r.holders)
		}
	}
	return ctx.Err()
}

// judge is what went wrong.
func (r *run) judge() (verdict []string) {
	r.result.Broken, r.result.Answers, r.result.LongestGap = r.sum.Broken, r.sum.Answers, r.sum.Gap.Seconds()
	for _, s := range r.result.Steps {
		if s.Lost > s.Most {
			verdict = append(verdict, fmt.Sprintf("%s: for %.3f s an address did not answer, may be %.3f s", s.Name, s.Lost, s.Most))
		}
	}
	if r.sum.Broken > 0 {
		verdict = append(verdict, fmt.Sprintf("%d connections broke, the first: %s", r.sum.Broken, r.sum.First))
	}
	if r.sum.Answers == 0 {
		verdict = append(verdict, "no connection had an answer: the run proves nothing")
	}
	if i := slices.IndexFunc(r.result.Steps, func(s Step) bool { return s.Most == Within.Seconds() }); i < 0 || r.result.Steps[i].Moved == 0 || r.result.Steps[i].Lost == 0 {
		verdict = append(verdict, "no address moved, or none was missed, when its holder lost its power: the run proves nothing")
	}
	for i := range verdict {
		verdict[i] = r.result.Scheme + ": " + verdict[i]
	}
	return verdict
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
