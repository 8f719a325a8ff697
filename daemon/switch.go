package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/tables"
)

// fabricSwitch is what the plane needs of swtch.Switch.
type fabricSwitch interface {
	Apply(tables.SwitchPlan) error
	Health(map[string]swtch.Report) error
	Run(context.Context) error
	Drain(drained bool) ([]string, error)
	Unlock() ([]string, error)
	ChainRows(first, max int) (rows []buckets.BucketRow, generation uint32, next int)
	LearnChains(rows []buckets.BucketRow) error
	SetEndAfter(time.Time)
	Ready() []string
	Status() swtch.Status
	Close() error
}

// switchPlane is the plane of `fairlead switch`: the kernel's routes,
// nexthops and neighbours, and the agents that are asked how their servers are
// (Faild, NSDI'18, section 5).
type switchPlane struct {
	log   *slog.Logger
	sw    fabricSwitch
	tls   config.TLS
	state *stateDir

	mu     sync.Mutex
	agents map[string]*polled // of the assignment in force, by server
	first  uint32             // the lowest id of a VIP, 0: none
	size   int                // buckets of its table
	asked  chan struct{}      // other agents are to be asked: at once
}

// polled is an agent that is asked.
type polled struct {
	endpoint string
	// vips of scheme faild that the server is in, by id: true, the assignment
	// gives it new connections there.
	vips    map[uint32]bool
	version uint64 // of the assignment
	client  fairleadv1connect.FairleadClient
	err     error // there is no way to ask it
}

const (
	// pollInterval is how often each agent is asked, and pollTimeout how long
	// for; after so many polls in a row without an answer the server is down.
	pollInterval = 500 * time.Millisecond
	pollTimeout  = time.Second
	pollFall     = 3

	drainedName, lockedName = "drained", "locked"
)

func openSwitch(me self, cfg *config.Config, o Options, log *slog.Logger) (plane, error) {
	options, err := switchOptions(me.sw, o.state)
	if err != nil {
		return nil, err
	}
	options.Log = log
	sw, err := swtch.Open(options)
	if err != nil {
		return nil, err
	}
	return newSwitchPlane(sw, cfg.TLS, o.state, log), nil
}

// switchOptions is what the file and the daemon's folder say of a switch.
func switchOptions(s *config.Switch, state *stateDir) (swtch.Options, error) {
	locked, err := readLock(state)
	if err != nil {
		return swtch.Options{}, err
	}
	_, err = os.Stat(filepath.Join(state.path, drainedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return swtch.Options{}, fmt.Errorf("look whether the switch is drained: %w", err)
	}
	return swtch.Options{
		Locked: locked, KeepLock: func(l *swtch.Lock) error { return keepLock(state, l) },
		Bridge: s.Bridge, Ports: s.Ports, AnnounceTable: s.AnnounceTable, Drained: err == nil,
		Health: swtch.HealthOptions{Fall: pollFall, Flaps: s.Flaps, LockShare: float64(s.LockPercent) / 100, LockWindow: s.LockWindow},
	}, nil
}

func newSwitchPlane(sw fabricSwitch, tls config.TLS, state *stateDir, log *slog.Logger) *switchPlane {
	return &switchPlane{log: log, sw: sw, tls: tls, state: state, asked: make(chan struct{}, 1)}
}

// clockBase: a switch has no shared clock, see daemon.fixClock.
func (p *switchPlane) clockBase() (uint32, bool)                                  { return 0, false }
func (p *switchPlane) fixClock(uint32) error                                      { return nil }
func (p *switchPlane) live(*controller.Assignment) ([]*fairleadv1.LiveVIP, error) { return nil, nil }
func (p *switchPlane) flows() flowTable                                           { return nil }
func (p *switchPlane) close() error                                               { return p.sw.Close() }

// chainVIPs: all VIPs share one table, which goes by the first's id.
func (p *switchPlane) chainVIPs() []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == 0 {
		return nil
	}
	return []uint32{p.first}
}

func (p *switchPlane) chainRows(_ uint32, first, max int) (rows []buckets.BucketRow, generation uint32, size, next int) {
	rows, generation, next = p.sw.ChainRows(first, max)
	p.mu.Lock()
	defer p.mu.Unlock()
	return rows, generation, p.size, next
}

func (p *switchPlane) learnChains(_ uint32, rows []buckets.BucketRow) {
	if err := p.sw.LearnChains(rows); err != nil {
		p.log.Error("what another switch says of its chains could not be put in force; it is asked again", "error", err)
	}
}

// endAfter: see endsChains.
func (p *switchPlane) endAfter(t time.Time) { p.sw.SetEndAfter(t) }

// changed never tells anything: the switch follows health and time by itself.
func (p *switchPlane) changed() <-chan struct{} { return nil }

// apply puts the VIPs of scheme faild in force; with none left, nothing of
// them stays in the kernel.
func (p *switchPlane) apply(a *controller.Assignment) (time.Time, error) {
	want, ok, err := tables.Switch(a)
	if err != nil {
		return time.Time{}, err
	}
	if !ok {
		want = tables.SwitchPlan{Version: a.Version}
	}
	if err := p.sw.Apply(want); err != nil {
		return time.Time{}, err
	}
	p.follow(a)
	return time.Time{}, nil
}

// follow makes the agents of a's servers those that are asked.
func (p *switchPlane) follow(a *controller.Assignment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.agents
	p.agents, p.first, p.size = map[string]*polled{}, 0, 0
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !v.Scheme.Row().Switched {
			continue
		}
		if v.Bucketed() && (p.first == 0 || v.ID < p.first) {
			p.first, p.size = v.ID, v.Buckets.Len()
		}
		weights := v.BucketServers()
		for i, s := range v.Slots {
			agent := p.agents[s.Server]
			if agent == nil {
				agent = &polled{endpoint: s.API, vips: map[uint32]bool{}, version: a.Version}
				if was := before[s.Server]; was != nil && was.endpoint == s.API {
					agent.client, agent.err = was.client, was.err
				} else {
					agent.client, agent.err = api.Dial(s.API, p.tls)
				}
				p.agents[s.Server] = agent
			}
			agent.vips[v.ID] = weights[i].Weight > 0
		}
	}
	select {
	case p.asked <- struct{}{}:
	default: // they are going to be
	}
}

func (p *switchPlane) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.sw.Run(ctx) })
	g.Go(func() error { p.watchAgents(ctx); return nil })
	return g.Wait()
}

// watchAgents asks all agents from time to time and hands on what they say.
func (p *switchPlane) watchAgents(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.asked:
		}
		timer.Reset(pollInterval)
		reports := p.poll(ctx)
		if ctx.Err() != nil {
			return // they were not really asked
		}
		text := ""
		if err := p.sw.Health(reports); err != nil {
			text = err.Error()
		}
		if text != failed && text != "" {
			p.log.Error("what agents say could not be put in force; trying again", "error", text)
		}
		failed = text
	}
}

// poll asks every agent once.
func (p *switchPlane) poll(ctx context.Context) map[string]swtch.Report {
	p.mu.Lock()
	agents := maps.Clone(p.agents)
	p.mu.Unlock()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	reports := map[string]swtch.Report{}
	// All at once, 1,023 at most: behind agents that hang, others would look
	// as if they did not answer.
	for name, agent := range agents {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, pollTimeout)
			defer cancel()
			r := agent.ask(ctx)
			mu.Lock()
			defer mu.Unlock()
			reports[name] = r
		})
	}
	wg.Wait()
	return reports
}

// ask is one agent's answer over all VIPs of scheme faild, which share the
// switch's nexthops: the server is as well as its worst VIP is.
func (a *polled) ask(ctx context.Context) swtch.Report {
	if a.err != nil {
		return swtch.Report{Detail: rollout.Text(a.err)}
	}
	asked := time.Now()
	resp, err := a.client.GetServing(ctx, connect.NewRequest(&fairleadv1.GetServingRequest{Owned: true}))
	if err != nil {
		return swtch.Report{Detail: rollout.Text(err)}
	}
	r := swtch.Report{Answered: true}
	known, counted := 0, true
	states := map[swtch.State]*fairleadv1.ServingVIP{}
	for _, v := range resp.Msg.Vips {
		active, ok := a.vips[v.VipId]
		if !ok {
			continue
		}
		known++
		counted = counted && rollout.Counted(v)
		r.Connections += v.Connections
		r.Owned = either(r.Owned, v.Owned, known == 1)
		// The answer took some time, so that the count is younger than this.
		if at := asked.Add(-time.Duration(v.AgeMs) * time.Millisecond); r.At.IsZero() || at.Before(r.At) {
			r.At = at
		}
		state := servingState(v.State)
		if state == swtch.Disabled && !active {
			state = drains // a VIP that goes away takes nobody out of the others
		}
		if states[state] == nil {
			states[state] = v
		}
	}
	for _, state := range []swtch.State{swtch.Down, swtch.Disabled, swtch.Unknown, swtch.Up, drains} {
		if v := states[state]; v != nil {
			r.State = state
			if state == drains {
				r.State = swtch.Disabled
			}
			if state != swtch.Up {
				r.Detail = "VIP " + v.Name + ": " + v.Detail
			}
			break
		}
	}
	switch {
	case known == len(a.vips):
	case resp.Msg.AssignmentVersion > a.version:
		// Agents get a version before switches do: what it does not know any
		// more is going away here, too.
	default:
		// What it does not know of may have connections there all the same.
		r.State, r.Detail, r.At = swtch.Down, fmt.Sprintf("its agent knows %d of %d VIPs", known, len(a.vips)), time.Time{}
	}
	if !counted {
		r.At = time.Time{}
	}
	return r
}

// drains is what Disabled is in a VIP in which the assignment itself gives the
// server no new connections.
const drains swtch.State = "drains"

// either is what is owned of one VIP or another: nil, not known, where one of
// them is not known. first: there is no other yet.
func either(owned, more []byte, first bool) []byte {
	switch {
	case first:
		return slices.Clone(more)
	case len(owned) != len(more):
		return nil
	}
	for i := range owned {
		owned[i] |= more[i]
	}
	return owned
}

// servingState: what an agent does not say, or says in a word of a newer
// program, is not known to be well.
func servingState(s fairleadv1.Serving) swtch.State {
	switch s {
	case fairleadv1.Serving_SERVING_UP:
		return swtch.Up
	case fairleadv1.Serving_SERVING_DISABLED:
		return swtch.Disabled
	case fairleadv1.Serving_SERVING_UNKNOWN:
		return swtch.Unknown
	}
	return swtch.Down
}

// describe fills in what the switch has in the kernel.
func (p *switchPlane) describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	kernel := p.sw.Status()
	s.NotReady = p.sw.Ready()
	out := &fairleadv1.Switch{
		Bridge: kernel.Bridge, Drained: kernel.Drained, Locked: kernel.Locked, LockReason: kernel.LockReason,
		LockedSinceUnixMs: unixMS(kernel.LockedSince), Plain: kernel.Plain, Repointed: kernel.Repointed,
		LastChangeUs: uint64(kernel.LastChange.Microseconds()), Error: kernel.Error, Generation: kernel.Generation,
		Chained: uint32(kernel.Chained), ChainsEndUnixMs: unixMS(kernel.ChainsEnd), Retries: kernel.Retries, Rollbacks: kernel.Rollbacks,
	}
	s.Switch = out
	for _, g := range kernel.Groups {
		out.Groups = append(out.Groups, &fairleadv1.SwitchGroup{Family: g.Family, Id: g.ID, Nexthops: uint32(g.Nexthops)})
	}
	for _, kind := range swtch.Kinds {
		out.Corrections = append(out.Corrections, &fairleadv1.SwitchCorrections{Kind: kind, Count: kernel.Corrections[kind]})
	}
	hosts := map[uint32]swtch.Host{}
	for _, h := range kernel.Hosts {
		hosts[uint32(h.Number)] = h
		out.Hosts = append(out.Hosts, switchHost(h))
	}
	for _, v := range s.Vips {
		if text := unserved(v); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
		v.Buckets.Generation, v.Buckets.Chained, v.Buckets.FirstChainEndsUnixMs = out.Generation, out.Chained, out.ChainsEndUnixMs
		v.Buckets.Renewed, v.Buckets.Deputies, v.Buckets.Forgotten = uint32(kernel.Renewed), uint32(kernel.Deputies), kernel.Forgotten
		for _, slot := range v.Slots {
			h, ok := hosts[slot.Number]
			if !ok {
				continue
			}
			slot.Health, slot.HealthDetail, slot.HealthSinceUnixMs = hostHealth(h.State), h.Detail, unixMS(h.Since)
			slot.Buckets, slot.Connections = uint32(h.Nexthops), int64(h.Connections)
			slot.TakesNew = h.Nexthops > 0
			for _, n := range h.PreviousOf {
				slot.PreviousOf += uint32(n)
			}
		}
	}
	if kernel.Error != "" {
		s.Warnings = append(s.Warnings, "the kernel is not as it should be: "+kernel.Error)
	}
	if kernel.Locked {
		how := "keeps its nexthops as they were"
		if kernel.Plain {
			how = "spreads packets over all servers by plain ECMP"
		}
		up := 0
		for _, h := range kernel.Hosts {
			if h.State == swtch.Up {
				up++
			}
		}
		see := fmt.Sprintf("%d of %d servers are up now: see to the others", up, len(kernel.Hosts))
		if up == len(kernel.Hosts) {
			see = "all servers are up now: see why they were not"
		}
		s.Warnings = append(s.Warnings, fmt.Sprintf("LOCKED: %s; the switch %s and follows nobody's health. %s, then fairlead unlock %s", kernel.LockReason, how, see, s.Name))
	}
	if kernel.Drained {
		s.Warnings = append(s.Warnings, fmt.Sprintf("drained: its routes are not announced; fairlead undrain %s announces them again", s.Name))
	}
	for _, h := range kernel.Hosts {
		if !h.HeldDownUntil.IsZero() {
			s.Warnings = append(s.Warnings, fmt.Sprintf("server %s went up and down too often and is held down until %s: see its agent's log", h.Server, h.HeldDownUntil.Format(time.RFC3339)))
		}
		if h.Port == "" && h.Nexthops > 0 {
			s.Warnings = append(s.Warnings, fmt.Sprintf("server %s: no port of bridge %s is known to lead to it: name it under switches[].ports", h.Server, kernel.Bridge))
		}
	}
	return nil
}

func switchHost(h swtch.Host) *fairleadv1.SwitchHost {
	out := &fairleadv1.SwitchHost{
		Server: h.Server, Number: uint32(h.Number), State: servingWord(string(h.State)), Detail: h.Detail, SinceUnixMs: unixMS(h.Since),
		HeldDownUntilUnixMs: unixMS(h.HeldDownUntil), Nexthops: uint32(h.Nexthops), Port: h.Port, Connections: h.Connections,
	}
	for _, server := range slices.Sorted(maps.Keys(h.PreviousOf)) {
		out.PreviousOf = append(out.PreviousOf, &fairleadv1.SwitchForwarding{Server: server, Nexthops: uint32(h.PreviousOf[server])})
	}
	return out
}

// servingWord is up, down or disabled for the API; anything else is not known.
func servingWord(state string) fairleadv1.Serving {
	return fairleadv1.Serving(fairleadv1.Serving_value["SERVING_"+strings.ToUpper(state)])
}

func hostHealth(s swtch.State) fairleadv1.Health {
	switch s {
	case swtch.Up:
		return fairleadv1.Health_HEALTH_UP
	case swtch.Unknown:
		return fairleadv1.Health_HEALTH_UNKNOWN
	case swtch.Disabled:
		return fairleadv1.Health_HEALTH_UNSPECIFIED // it drains: nothing is wrong
	}
	return fairleadv1.Health_HEALTH_DOWN
}
