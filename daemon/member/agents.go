package member

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
)

// Agents is how balancers and switches hear at once what agents have to say: each
// agent holds a call of theirs (AwaitServing) until there is something.
//
//	AwaitServing ─▶ somebody does not listen any more ─▶ Ended: down at once
//	             ─▶ a state changed                   ─▶ Changed: it is asked
//	             ─▶ it ends, or the call does         ─▶ Gone: its server is looked at
//
// An agent that is gone is no server that is: its programs go on. One that is
// restarted takes seconds, in which nobody may be held for down.
type Agents struct {
	// Ended is told that nobody listens for a server's VIP any more. May be nil.
	Ended func(server string, vip uint32, why string)
	// Changed is told that a server's agent has something new to say. May be nil.
	Changed func(server string)
	// Gone is told that an agent does not answer any more. May be nil.
	Gone func(server string)

	log  *slog.Logger
	tls  config.TLS
	dial func(endpoint string, t config.TLS) (fairleadv1connect.FairleadClient, error)

	mu    sync.Mutex
	want  map[string]string // endpoint, by server
	again chan struct{}
}

const (
	// agentsMost is of how many agents a daemon hears at once: each is a connection
	// that stays. What the others have to say is found by checks and polls.
	agentsMost = 1024
	// agentTime is longer than an agent holds a call.
	agentTime = 40 * time.Second
	// agentGap is between two calls, whatever an agent says.
	agentGap = 10 * time.Millisecond
	// agentRest is after a call that failed, longer each time up to agentRestMost.
	agentRest     = 250 * time.Millisecond
	agentRestMost = 5 * time.Second
)

// NewAgents listens to nobody before Follow.
func NewAgents(log *slog.Logger, tls config.TLS) *Agents {
	return &Agents{log: log, tls: tls, dial: api.Dial, again: make(chan struct{}, 1)}
}

// Follow makes servers, by name and their agents' endpoints, those that are heard;
// those without an agent are left out.
func (g *Agents) Follow(servers map[string]string) {
	want := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if endpoint := servers[name]; endpoint != config.NoAgent && len(want) < agentsMost {
			want[name] = endpoint
		}
	}
	g.mu.Lock()
	g.want = want
	g.mu.Unlock()
	daemon.Poke(g.again)
}

// Run listens until ctx ends.
func (g *Agents) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	type heard struct {
		endpoint string
		cancel   context.CancelFunc
	}
	now := map[string]heard{}
	for {
		g.mu.Lock()
		want := g.want
		g.mu.Unlock()
		for name, h := range now {
			if endpoint, ok := want[name]; !ok || endpoint != h.endpoint {
				h.cancel()
				delete(now, name)
			}
		}
		for name, endpoint := range want {
			if _, ok := now[name]; !ok {
				life, cancel := context.WithCancel(ctx)
				now[name] = heard{endpoint, cancel}
				all.Go(func() { g.hear(life, name, endpoint) })
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.again:
		}
	}
}

// hear listens to one agent until ctx ends.
func (g *Agents) hear(ctx context.Context, name, endpoint string) {
	var client fairleadv1connect.FairleadClient
	for rest, told := agentRest, ""; ; rest = min(2*rest, agentRestMost) {
		var err error
		if client, err = g.dial(endpoint, g.tls); err == nil {
			break
		}
		if told != err.Error() {
			told = err.Error()
			g.log.Warn("an agent cannot be heard yet: what it has to say is found by checks", "server", name, "error", err)
		}
		if !daemon.Sleep(ctx, rest/2+rand.N(rest)) {
			return
		}
	}
	var seen uint64
	rest, there := agentRest, false
	for {
		r, err := await(ctx, client, seen)
		if ctx.Err() != nil {
			return
		}
		pause := agentGap
		for _, e := range r.GetEnded() {
			if g.Ended == nil {
				break
			}
			g.Ended(name, e.VipId, e.Detail)
		}
		switch {
		case connect.CodeOf(err) == connect.CodeUnimplemented: // an older build
			pause = agentRestMost
		case err != nil || r.Parting:
			if there && g.Gone != nil {
				g.Gone(name)
			}
			if there {
				g.log.Info("an agent is gone; its programs go on", "server", name, "said_so", err == nil, "error", api.ErrorText(err))
			}
			there = false
			pause, rest = rest/2+rand.N(rest), min(2*rest, agentRestMost)
		default:
			if seen != r.Seen && g.Changed != nil {
				g.Changed(name)
			}
			seen, rest, there = r.Seen, agentRest, true
		}
		if !daemon.Sleep(ctx, pause) {
			return
		}
	}
}

func await(ctx context.Context, client fairleadv1connect.FairleadClient, seen uint64) (*fairleadv1.AwaitServingResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	r, err := client.AwaitServing(ctx, connect.NewRequest(&fairleadv1.AwaitServingRequest{Seen: seen}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}
