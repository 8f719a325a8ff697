package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// heldAgent answers AwaitServing as an agent does.
type heldAgent struct {
	fairleadv1connect.FairleadClient

	mu    sync.Mutex
	last  uint64
	ended []uint64 // numbers of ends
	err   error
	parts bool
	calls int
	news  chan struct{}
}

func (a *heldAgent) tell(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.news)
	a.news = make(chan struct{})
}

func (a *heldAgent) AwaitServing(ctx context.Context, req *connect.Request[fairleadv1.AwaitServingRequest]) (*connect.Response[fairleadv1.AwaitServingResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	for a.err == nil && !a.parts && req.Msg.Seen == a.last && ctx.Err() == nil {
		news := a.news
		a.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
	if a.err != nil {
		return nil, a.err
	}
	r := &fairleadv1.AwaitServingResponse{Seen: a.last, Parting: a.parts}
	for _, n := range a.ended {
		if req.Msg.Seen > 0 && n > req.Msg.Seen {
			r.Ended = append(r.Ended, &fairleadv1.EndedListener{VipId: 7, Detail: fmt.Sprint("end ", n)})
		}
	}
	return connect.NewResponse(r), nil
}

func (a *heldAgent) called() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

// TestAgents: what an agent has to say is heard at once and once, also over an end of
// the connection; that it ends, or is gone, is told once; nobody asks one that does
// not answer all the time, nor one whose server has left; one that could not be dialled is
// heard when it can.
func TestAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var heard []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprintf(format, args...))
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(heard) // of two agents either may be the first
			if !slices.Equal(heard, want) {
				t.Errorf("heard %q, want %q", heard, want)
			}
			heard = nil
		}
		all := map[string]*heldAgent{"unix:a": {last: 5, news: make(chan struct{})}, "unix:b": {last: 9, news: make(chan struct{})}}
		g := NewAgents(slog.New(slog.DiscardHandler), config.TLS{})
		g.dial = func(endpoint string, _ config.TLS) (fairleadv1connect.FairleadClient, error) {
			mu.Lock()
			defer mu.Unlock()
			if a := all[endpoint]; a != nil {
				return a, nil
			}
			return nil, errors.New("there is no " + endpoint)
		}
		g.Ended = func(server string, vip uint32, why string) { note("%s ended in %d: %s", server, vip, why) }
		g.Changed = func(server string) { note("%s changed", server) }
		g.Gone = func(server string) { note("%s gone", server) }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		g.Follow(map[string]string{"s1": "unix:a", "s2": "unix:b", "s3": config.NoAgent, "s4": "ftp:c"})
		expect("s1 changed", "s2 changed")
		time.Sleep(2 * time.Minute) // calls that end without news
		expect()
		mu.Lock()
		all["ftp:c"] = &heldAgent{last: 3, news: make(chan struct{})} // it can be dialled now
		mu.Unlock()
		time.Sleep(10 * time.Second)
		expect("s4 changed")
		a := all["unix:a"]
		a.tell(func() { a.last, a.ended = 6, []uint64{6} })
		expect("s1 changed", "s1 ended in 7: end 6")
		a.tell(func() { a.err = connect.NewError(connect.CodeUnavailable, errors.New("refused")) })
		expect()
		time.Sleep(time.Second)
		expect("s1 gone")
		before := a.called()
		time.Sleep(time.Minute)
		expect()
		if n := a.called() - before; n < 8 || n > 60 {
			t.Errorf("%d calls in a minute of one that does not answer", n)
		}
		// It is the same life: what ended meanwhile is told.
		a.tell(func() { a.err, a.last, a.ended = nil, 7, []uint64{6, 7} })
		time.Sleep(10 * time.Second)
		expect("s1 changed", "s1 ended in 7: end 7")
		a.tell(func() { a.parts = true })
		expect("s1 gone")
		g.Follow(map[string]string{"s2": "unix:b"})
		synctest.Wait()
		before = a.called()
		a.tell(func() { a.parts, a.last, a.ended = false, 8, []uint64{8} })
		time.Sleep(time.Minute)
		expect()
		if a.called() != before {
			t.Error("an agent whose server has left is called")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAgentsMost: a daemon hears so many at once, and no more.
func TestAgentsMost(t *testing.T) {
	g := NewAgents(slog.New(slog.DiscardHandler), config.TLS{})
	servers := map[string]string{}
	for i := range agentsMost + 100 {
		servers[fmt.Sprintf("s%04d", i)] = "unix:x"
	}
	g.Follow(servers)
	if len(g.want) != agentsMost || g.want["s0000"] == "" || g.want[fmt.Sprintf("s%04d", agentsMost)] != "" {
		t.Errorf("%d are heard", len(g.want))
	}
}
