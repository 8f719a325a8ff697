// Package announced is the scenario `lab run bgp`: two balancers (scheme faild: switches) announce their VIPs to
// a router that runs BIRD or FRR, whose kernel spreads packets over both. Servers fail
// their checks and are well again, and are killed and start again; a balancer is told to
// stop, starts again, is killed and comes back, and servers' agents are, while
// connections go on through both.
//
//	                     ┌─ lb1, announces
//	client ── router ────┤  lb2, announces
//	          BIRD, FRR  └─ server1, server2
//
// Files: announced.go the options and the order of things, router.go the router's
// daemons and its kernel's routes, print.go the table.
package announced

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/lab/talk"
	"github.com/fairlead/fairlead/vip"
)

// Options of a run; zero fields are the defaults.
type Options struct {
	Name string // of the lab; default announced and this process's number
	// Routers are what the router runs, each in a run of its own (default bird, frr).
	Routers []string
	// Scheme of the VIP: cheetah (default), or faild, whose switches announce it.
	Scheme string
	// Connections at a time (default 64, at most 1024).
	Connections int
	Seed        uint64 // of the connections' ports
	// Program is the fairlead binary that runs in the machines.
	Program string
	Keep    bool // leave the lab of a failed run
	// Watch, if not nil, is told what happens.
	Watch func(text string)
}

// Within is how long a route that is withdrawn may stay in the router's kernel.
const Within = time.Second

// patience is how long anything may take.
const patience = 60 * time.Second

// Result is all runs. Its JSON form is stable.
type Result struct {
	experiment.Head
	Scheme      string      `json:"scheme"`
	Connections int         `json:"connections"`
	Runs        []RunResult `json:"runs"`
}

// RunResult is one router's.
type RunResult struct {
	Router  string `json:"router"`
	Version string `json:"version"`
	Steps   []Step `json:"steps"`
	// Broken connections: errors, or another server's answer. LongestGap is the
	// longest that one of them waited for an answer.
	Broken     int     `json:"broken"`
	Answers    int64   `json:"answers"`
	LongestGap float64 `json:"longest_gap_seconds"`
}

// Step is something that happens.
type Step struct {
	Name string `json:"name"`
	// Wrong is for how long the router's kernel had other routes than it should, since
	// the daemon decided, or was told; Most is what it may be, absent where nobody can
	// say.
	Wrong float64  `json:"wrong_seconds"`
	Most  *float64 `json:"most_seconds,omitempty"`
}

// Check refuses options that cannot work, and fills in defaults.
func (o *Options) Check() error {
	if len(o.Routers) == 0 {
		o.Routers = routerNames()
	}
	for _, r := range o.Routers {
		if !slices.Contains(routerNames(), r) {
			return fmt.Errorf("--router %s: must be %s", r, strings.Join(routerNames(), " or "))
		}
	}
	o.Scheme = cmp.Or(o.Scheme, "cheetah")
	if row := vip.Scheme(o.Scheme).Row(); !row.Switched && row.Finds != vip.ByCookie {
		return fmt.Errorf("--scheme %s: must be cheetah or faild", o.Scheme)
	}
	if o.Connections == 0 {
		o.Connections = 64
	}
	if o.Connections < 1 || o.Connections > 1024 {
		return fmt.Errorf("--connections %d: must be 1 to 1024", o.Connections)
	}
	if o.Name == "" {
		o.Name = fmt.Sprint("announced", os.Getpid())
	}
	if o.Watch == nil {
		o.Watch = func(string) {}
	}
	return nil
}

// Run carries the scenario out.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	result := &Result{Head: experiment.Begin("bgp", o.Seed), Scheme: o.Scheme, Connections: o.Connections}
	web, front := web, "lb"
	if vip.Scheme(o.Scheme).Row().Switched {
		web.Scheme, web.Policy, front = "faild", "hash", "switch"
	}
	ports := experiment.Ports(experiment.Random(o.Seed))
	for _, name := range o.Routers {
		l, err := lab.Up(ctx, lab.Options{Name: o.Name, Servers: 2, LBs: 2, BGP: true, Program: o.Program, Scheme: o.Scheme, VIPs: []lab.VIP{web}}, !o.Keep)
		if err != nil {
			return nil, err
		}
		r := &run{o: &o, lab: l, fronts: [2]string{front + "1", front + "2"}, router: router{lab: l, name: name}, result: RunResult{Router: name}, talk: talk.Talk{Lab: l, Ports: ports, Endpoints: []string{web.Endpoint()}}}
		err = errors.Join(r.play(ctx), r.router.close())
		verdict := r.judge()
		result.Runs, result.Verdict = append(result.Runs, r.result), append(result.Verdict, verdict...)
		if !o.Keep || err == nil && len(verdict) == 0 {
			err = errors.Join(err, lab.Down(o.Name))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	result.End()
	return result, nil
}

// web is the one VIP: another on its address, whose servers nobody checks, would keep
// that announced.
var web = lab.VIP{Name: "web", Address: netip.MustParseAddr("10.77.7.1"), Port: 80, Protocol: "tcp", Scheme: "cheetah", Policy: "rr", Health: "http"}

// run is the scenario with one router.
type run struct {
	o      *Options
	lab    *lab.Lab
	fronts [2]string // who announce
	router router
	talk   talk.Talk
	sum    talk.Sum
	result RunResult
}

// The next hops of one balancer and of both.
var (
	lb1, _ = lab.FrontAddresses(1)
	lb2, _ = lab.FrontAddresses(2)
	both   = []string{lb1, lb2}
)

// play does one thing after the other.
func (r *run) play(ctx context.Context) (err error) {
	if r.result.Version, err = r.router.start(); err != nil {
		return err
	}
	if _, err := r.router.until(ctx, both...); err != nil {
		return err
	}
	r.o.Watch(fmt.Sprintf("%s: its kernel spreads over both balancers", r.result.Version))
	for _, well := range []bool{false, true} {
		if err := r.health(ctx, well); err != nil {
			return err
		}
	}
	if err := r.servicesEnd(ctx); err != nil {
		return err
	}
	r.talk.Begin(ctx, r.o.Connections)
	defer func() { r.sum = r.talk.End() }()
	steps := []func(context.Context) error{r.told, r.startedAgain, r.killed}
	if !vip.Scheme(r.o.Scheme).Row().Switched { // whose agents are what says that a server is well
		steps = append(steps, r.agentsKilled)
	}
	for _, step := range steps {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return sleep(ctx, time.Second)
}

// step notes for how long the router's kernel had other routes than it should; most is
// what that may be, negative: anything.
func (r *run) step(name string, wrong, most time.Duration) {
	s := Step{Name: name, Wrong: max(wrong, 0).Seconds()}
	if most >= 0 {
		s.Most = new(most.Seconds())
	}
	r.result.Steps = append(r.result.Steps, s)
	r.o.Watch("  " + s.line())
}

// health has all servers fail their checks, or be well again.
func (r *run) health(ctx context.Context, well bool) error {
	for _, server := range []string{"server1", "server2"} {
		if err := r.fail(ctx, server, !well); err != nil {
			return err
		}
	}
	name, hops := "no healthy server", []string{}
	if well {
		name, hops = "healthy again", both
	}
	at, err := r.router.until(ctx, hops...)
	if err != nil {
		return err
	}
	var known, decided time.Time
	for _, m := range r.fronts {
		s, err := r.status(ctx, m)
		if err != nil {
			return err
		}
		for _, a := range s.Bgp.Addresses {
			if since := time.UnixMilli(a.SinceUnixMs); a.Address == r.router.address() && since.After(decided) {
				decided = since
			}
		}
		// The last check that failed is what the daemon goes by, or the first that did not.
		here := time.Time{}
		for _, slot := range s.Vips[0].Slots {
			since, up := time.UnixMilli(slot.HealthSinceUnixMs), slot.Health == fairleadv1.Health_HEALTH_UP
			if up == well && (here.IsZero() || since.After(here) != well) {
				here = since
			}
		}
		if here.After(known) {
			known = here
		}
	}
	// A millisecond is all that status tells.
	r.step(name+", from the check", at.Sub(known), Within)
	r.step(name, at.Sub(decided), Within)
	return nil
}

// servicesEnd: all servers are killed, and start again. No check has to fail for it.
func (r *run) servicesEnd(ctx context.Context) error {
	ended, err := r.lab.KillServices()
	if err != nil {
		return err
	}
	at, err := r.router.until(ctx)
	if err != nil {
		return err
	}
	r.step("all servers are killed", at.Sub(ended), Within)
	if err := r.lab.StartServices(ctx); err != nil {
		return err
	}
	_, err = r.router.until(ctx, both...)
	return err
}

// agentsKilled: the agents of all servers are killed and start again, which nobody
// takes for an end of their servers.
func (r *run) agentsKilled(ctx context.Context) (err error) {
	lost := r.router.watch(both)
	agents := []string{"server1", "server2"}
	for _, m := range agents {
		err = errors.Join(err, r.lab.KillDaemon(m))
	}
	if err == nil {
		err = sleep(ctx, 2*time.Second)
	}
	for _, m := range agents {
		if err == nil {
			err = r.lab.StartDaemon(ctx, m)
		}
	}
	r.step("all agents are killed, and back", lost(), 0)
	return err
}

// fail has a server fail its checks, or not.
func (r *run) fail(ctx context.Context, server string, fail bool) error {
	namespace, err := r.lab.Machine(server)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("http://127.0.0.1/health?fail=%t", fail), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: talk.DialerIn(namespace, nil)}, Timeout: 5 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("have %s fail its checks: %w", server, err)
	}
	return answer.Body.Close()
}

// status is a balancer's, which announces.
func (r *run) status(ctx context.Context, machine string) (*fairleadv1.GetStatusResponse, error) {
	client, err := api.Dial("unix:"+filepath.Join(r.lab.Dir(), machine+".sock"), config.TLS{})
	if err != nil {
		return nil, err
	}
	status, err := client.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", machine, err)
	}
	if status.Msg.Bgp == nil {
		return nil, fmt.Errorf("%s announces nothing", machine)
	}
	return status.Msg, nil
}

// told: the first front is told to stop.
func (r *run) told(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(r.lab.Dir(), r.fronts[0]+".pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", r.fronts[0], err)
	}
	if _, err := r.router.until(ctx, lb2); err != nil {
		return err
	}
	r.step(r.fronts[0]+" is told to stop", time.Since(began), Within)
	if !netspace.WaitFor(patience, func() bool { return netspace.IsZombie(pid) || ctx.Err() != nil }) {
		return errors.New(r.fronts[0] + " does not end")
	}
	return ctx.Err()
}

// startedAgain: it starts, and is announced again.
func (r *run) startedAgain(ctx context.Context) error {
	began := time.Now()
	if err := r.lab.StartDaemon(ctx, r.fronts[0]); err != nil {
		return err
	}
	if _, err := r.router.until(ctx, both...); err != nil {
		return err
	}
	r.step(r.fronts[0]+" starts again", time.Since(began), -1)
	return nil
}

// killed: it is killed and starts again, and its route stays all the time.
func (r *run) killed(ctx context.Context) error {
	lost := r.router.watch(both)
	began := time.Now()
	err := r.lab.KillDaemon(r.fronts[0])
	if err == nil {
		err = sleep(ctx, time.Second)
	}
	if err == nil {
		err = r.lab.StartDaemon(ctx, r.fronts[0])
	}
	established := false
	for err == nil && !established {
		var s *fairleadv1.GetStatusResponse
		if s, err = r.status(ctx, r.fronts[0]); err == nil {
			established = !slices.ContainsFunc(s.Bgp.Neighbours, func(n *fairleadv1.BGPNeighbour) bool { return !n.Established })
			err = sleep(ctx, 20*time.Millisecond)
		}
		if time.Since(began) > patience && err == nil {
			err = errors.New(r.fronts[0] + " has no sessions after it was killed and started")
		}
	}
	if err == nil {
		// What it said last has ended what the router kept.
		err = sleep(ctx, 2*time.Second)
	}
	r.step(r.fronts[0]+" is killed, and back", lost(), 0)
	return err
}

// judge is what went wrong.
func (r *run) judge() (verdict []string) {
	r.result.Broken, r.result.Answers, r.result.LongestGap = r.sum.Broken, r.sum.Answers, r.sum.Gap.Seconds()
	for _, s := range r.result.Steps {
		if s.Most != nil && s.Wrong > *s.Most {
			verdict = append(verdict, fmt.Sprintf("%s: for %.3f s the router's kernel had other routes than it should, may be %.3f s", s.Name, s.Wrong, *s.Most))
		}
	}
	if r.result.Broken > 0 {
		verdict = append(verdict, fmt.Sprintf("%d connections broke, the first: %s", r.result.Broken, r.sum.First))
	}
	if r.result.Answers == 0 {
		verdict = append(verdict, "no connection had an answer: the run proves nothing")
	}
	for i := range verdict {
		verdict[i] = r.result.Router + ": " + verdict[i]
	}
	return verdict
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
