package swtch

import (
	"context"
	"maps"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/vip"
)

// gatedClient is an agent's API that answers when it may, with what it had to say
// when it was asked.
type gatedClient struct {
	fairleadv1connect.FairleadClient
	mu    sync.Mutex
	state fairleadv1.Serving
	asked chan struct{}
	gate  chan struct{} // nil: it answers at once
	err   error
}

func (c *gatedClient) GetServing(context.Context, *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	c.mu.Lock()
	state, gate, err := c.state, c.gate, c.err
	c.mu.Unlock()
	if gate != nil {
		c.asked <- struct{}{}
		<-gate
	}
	return connect.NewResponse(&fairleadv1.GetServingResponse{Vips: []*fairleadv1.ServingVIP{{VipId: 1, State: state}}}), err
}

// TestNews: what an agent has to say is asked for at once; an older answer does not
// come after it, and that an agent does not answer then is no poll without an answer.
func TestNews(t *testing.T) {
	f := &fakeFabric{}
	p := planeOf(f)
	c := &gatedClient{state: fairleadv1.Serving_SERVING_UP, asked: make(chan struct{}), gate: make(chan struct{})}
	p.agents = map[string]*polled{}
	a := &controller.Assignment{VIPs: []controller.VIP{{ID: 1, Settings: vip.Settings{Scheme: vip.Faild}, Slots: []controller.Slot{{Server: "s1", API: "unix:/nowhere/s1.sock"}}}}}
	p.follow(a)
	p.agents["s1"].client = c
	polled := maps.Clone(p.agents)
	done := make(chan error)
	go func() { done <- p.report(t.Context(), polled, true) }()
	<-c.asked   // the poll has its answer, which is on its way
	p.follow(a) // it is the same agent in the next assignment
	c.mu.Lock()
	gate := c.gate
	c.state, c.gate = fairleadv1.Serving_SERVING_DOWN, nil
	c.mu.Unlock()
	if err := p.report(t.Context(), p.agents, false); err != nil || f.report("s1").State != swtch.Down || f.report("s1").Ended {
		t.Fatalf("%v, of s1: %+v", err, f.report("s1"))
	}
	close(gate)
	if err := <-done; err != nil || f.report("s1").State != swtch.Down {
		t.Errorf("%v, after an older answer: %+v", err, f.report("s1"))
	}
	for _, ended := range []bool{true, false} { // one VIP's check fails, or none
		p.agents["s1"].client = &askedClient{vips: []*fairleadv1.ServingVIP{{VipId: 1, State: fairleadv1.Serving_SERVING_DOWN, Ended: true},
			{VipId: 2, State: fairleadv1.Serving_SERVING_DOWN, Ended: ended}}}
		p.agents["s1"].vips[2] = true
		if err := p.report(t.Context(), p.agents, false); err != nil || f.report("s1").Ended != ended {
			t.Errorf("%v, ended %v: %+v", err, ended, f.report("s1"))
		}
	}
	p.agents["s1"].client = c
	c.mu.Lock()
	c.err = connect.NewError(connect.CodeUnavailable, nil)
	c.mu.Unlock()
	if err := p.report(t.Context(), p.agents, false); err != nil || !f.report("s1").Answered {
		t.Errorf("%v, silence as news: %+v", err, f.report("s1"))
	}
	if err := p.report(t.Context(), p.agents, true); err != nil || f.report("s1").Answered {
		t.Errorf("%v, silence as a poll: %+v", err, f.report("s1"))
	}
}
