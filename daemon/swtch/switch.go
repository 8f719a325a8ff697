// Package swtch is `fairlead switch`, for VIPs of scheme faild.
package swtch

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/tables/effective"
)

// fabricSwitch is what the plane needs of swtch.Switch.
type fabricSwitch interface {
	Apply(tables.SwitchPlan) error
	Health(map[string]swtch.Report) error
	Run(context.Context) error
	Drain(drained bool) ([]string, error)
	Unlock() ([]string, error)
	ChainRows(first, max int) (rows []effective.BucketRow, generation uint32, next int)
	LearnChains(rows []effective.BucketRow) error
	SetEndAfter(time.Time)
	Ready() []string
	Status() swtch.Status
	Close() error
}

// Run is `fairlead switch`. It returns when ctx ends (nil) or when the daemon cannot
// go on.
func Run(ctx context.Context, o member.Options) error {
	p := newPlane()
	return member.Run(ctx, o, role(p, func(options swtch.Options) (fabricSwitch, error) { return swtch.Open(options) }))
}

// role is a switch's, on what open opens.
func role(p *plane, open func(swtch.Options) (fabricSwitch, error)) member.Role {
	return member.Role{
		Is: config.RoleSwitch, Status: fairleadv1.Role_ROLE_SWITCH, What: "a switch",
		Routed:   true,
		Concerns: func(v *controller.VIP, _ string) bool { return v.Scheme.Row().Switched },
		Fixed: func(s config.Self) []member.Setting {
			sw := s.Switch
			return []member.Setting{{Name: "bridge", Value: sw.Bridge}, {Name: "ports", Value: sw.Ports}, {Name: "announce_table", Value: sw.AnnounceTable},
				{Name: "lock_percent", Value: sw.LockPercent}, {Name: "lock_window", Value: sw.LockWindow}, {Name: "flaps", Value: sw.Flaps}}
		},
		Service: func(m *member.Member) fairleadv1connect.FairleadHandler { return service{member.Service{Member: m}, p} },
		Metrics: families, Emit: emit,
		Open: func(m *member.Member) (o member.Opened, err error) {
			options, err := options(m.Self.Switch, m.State)
			if err != nil {
				return o, err
			}
			options.Log = m.Log
			p.log, p.tls, p.state, p.changed = m.Log, m.Config.TLS, m.State, m.AnnounceSoon
			p.heard = member.NewAgents(m.Log, m.Config.TLS)
			p.heard.Changed = p.askSoon
			if p.sw, err = open(options); err != nil {
				return o, err
			}
			return member.Opened{Plane: p, Chains: chains{p}}, nil
		},
	}
}

// plane is that of `fairlead switch`: the kernel's routes, nexthops and
// neighbours, and the agents that are asked how their servers are (Faild,
// NSDI'18, section 5).
type plane struct {
	log   *slog.Logger
	sw    fabricSwitch
	tls   config.TLS
	state *daemon.State
	// changed has what is announced looked at.
	changed func()

	mu     sync.Mutex
	agents map[string]*polled // of the assignment in force, by server
	heard  *member.Agents
	first  uint32          // the lowest id of a VIP, 0: none
	size   int             // buckets of its table
	news   map[string]bool // servers whose agents have something to say
	asked  chan struct{}   // all agents are to be asked: at once
	told   chan struct{}   // those of news are

	// telling is held while reports are sorted out and handed on, so that an older
	// answer does not come after a newer one.
	telling sync.Mutex
}

func newPlane() *plane {
	return &plane{asked: make(chan struct{}, 1), told: make(chan struct{}, 1), news: map[string]bool{},
		changed: func() {}, heard: member.NewAgents(slog.New(slog.DiscardHandler), config.TLS{})}
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
	// last is when the newest ask began of which was told, of all assignments that have
	// it; what it points to is guarded by plane.telling.
	last *time.Time
}

const (
	// pollInterval is how often each agent is asked, and pollTimeout how long
	// for; after so many polls in a row without an answer the server is down.
	pollInterval = 500 * time.Millisecond
	pollTimeout  = time.Second
	pollFall     = 3

	drainedName, lockedName = "drained", "locked"
)

// options is what the file and the daemon's folder say of a switch.
func options(s *config.Switch, state *daemon.State) (swtch.Options, error) {
	locked, err := readLock(state)
	if err != nil {
		return swtch.Options{}, err
	}
	drained, err := state.Marked(drainedName)
	if err != nil {
		return swtch.Options{}, fmt.Errorf("look whether the switch is drained: %w", err)
	}
	return swtch.Options{
		Locked: locked, KeepLock: func(l *swtch.Lock) error { return keepLock(state, l) },
		Bridge: s.Bridge, Ports: s.Ports, AnnounceTable: s.AnnounceTable, Drained: drained,
		Health: swtch.HealthOptions{Fall: pollFall, Flaps: s.Flaps, LockShare: float64(s.LockPercent) / 100, LockWindow: s.LockWindow},
	}, nil
}

// chains are those of the switch's table.
type chains struct{ p *plane }

// VIPs implements member.Chains: all VIPs share one table, which goes by the
// first's id.
func (c chains) VIPs() []uint32 {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.first == 0 {
		return nil
	}
	return []uint32{c.p.first}
}

// Rows implements member.Chains.
func (c chains) Rows(_ uint32, first, max int) (rows []effective.BucketRow, generation uint32, size, next int) {
	rows, generation, next = c.p.sw.ChainRows(first, max)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return rows, generation, c.p.size, next
}

// Learn implements member.Chains.
func (c chains) Learn(_ uint32, rows []effective.BucketRow) {
	if err := c.p.sw.LearnChains(rows); err != nil {
		c.p.log.Error("what another switch says of its chains could not be put in force; it is asked again", "error", err)
	}
}

// EndAfter implements member.Chains.
func (c chains) EndAfter(t time.Time) { c.p.sw.SetEndAfter(t) }

// Close implements member.Plane.
func (p *plane) Close() error { return p.sw.Close() }

// Apply puts the VIPs of scheme faild in force; with none left, nothing of
// them stays in the kernel.
func (p *plane) Apply(a *controller.Assignment) (time.Time, error) {
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
func (p *plane) follow(a *controller.Assignment) {
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
				agent = &polled{endpoint: s.API, vips: map[uint32]bool{}, version: a.Version, last: &time.Time{}}
				if was := before[s.Server]; was != nil && was.endpoint == s.API {
					agent.client, agent.err, agent.last = was.client, was.err, was.last
				} else {
					agent.client, agent.err = api.Dial(s.API, p.tls)
				}
				p.agents[s.Server] = agent
			}
			agent.vips[v.ID] = weights[i].Weight > 0
		}
	}
	endpoints := map[string]string{}
	for name, agent := range p.agents {
		endpoints[name] = agent.endpoint
	}
	p.heard.Follow(endpoints)
	daemon.Poke(p.asked)
}

// Run implements member.Plane.
func (p *plane) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.sw.Run(ctx) })
	g.Go(func() error { p.watchAgents(ctx); return nil })
	g.Go(func() error { p.watchNews(ctx); return nil })
	g.Go(func() error { return p.heard.Run(ctx) })
	return g.Wait()
}

// ask is one agent's answer over all VIPs of scheme faild, which share the
// switch's nexthops: the server is as well as its worst VIP is.
func (a *polled) ask(ctx context.Context) swtch.Report {
	if a.err != nil {
		return swtch.Report{Detail: api.ErrorText(a.err)}
	}
	asked := time.Now()
	resp, err := a.client.GetServing(ctx, connect.NewRequest(&fairleadv1.GetServingRequest{Owned: true}))
	if err != nil {
		return swtch.Report{Detail: api.ErrorText(err)}
	}
	r := swtch.Report{Answered: true}
	known, counted := 0, true
	ended := true // whatever is down
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
		ended = ended && (state != swtch.Down || v.Ended)
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
			r.Ended = state == swtch.Down && ended
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
		r.State, r.Ended, r.Detail, r.At = swtch.Down, false, fmt.Sprintf("its agent knows %d of %d VIPs", known, len(a.vips)), time.Time{}
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
