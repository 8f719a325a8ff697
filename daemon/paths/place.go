package paths

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// What the path service remembers: placed flows and measured loads.

// PlaceFlow implements the API.
func (s *service) PlaceFlow(_ context.Context, req *connect.Request[fairleadv1.PlaceFlowRequest]) (*connect.Response[fairleadv1.PlacedFlow], error) {
	var resp *fairleadv1.PlacedFlow
	err := s.change(func(v *view) error {
		o, err := v.order(req.Msg)
		if err != nil {
			return err
		}
		p, err := v.scheduler.Place(o)
		if err == nil {
			resp = v.placed(&p)
		}
		return err
	}, func(scheduler *paths.Scheduler) {
		_, _ = scheduler.Release(resp.Id) // unknown: its time is over already
		resp = nil
	})
	return answered(resp, err)
}

// answered is a response, or nothing with an error.
func answered[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

// order is what a request asks the scheduler for.
func (v *view) order(m *fairleadv1.PlaceFlowRequest) (o paths.Order, err error) {
	if o.From, o.To, err = v.ends(m.From, m.To); err != nil {
		return o, err
	}
	if o.Rules, err = v.rules(m.Rules); err != nil {
		return o, err
	}
	if m.Wanted != nil {
		wanted, err := requestOf(m.Wanted)
		if err != nil {
			return o, err
		}
		o.Ports = &wanted
	}
	if err := checkOwner(m.Owner); err != nil {
		return o, err
	}
	o.Owner, o.Until, o.Random = m.Owner, lease(m.LeaseSeconds), rand.Uint64()
	return o, nil
}

// longestOwner is in bytes.
const longestOwner = 128

// checkOwner looks at what is shown to others, on terminals, too.
func checkOwner(owner string) error {
	if len(owner) > longestOwner || strings.ContainsFunc(owner, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("owner %.40q: must be at most %d bytes that can be printed", owner, longestOwner)
	}
	return nil
}

// lease is when so many seconds are over; never for 0.
func lease(seconds uint32) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(seconds) * time.Second).Round(time.Millisecond)
}

// PlaceAgain implements the API.
func (s *service) PlaceAgain(_ context.Context, req *connect.Request[fairleadv1.PlaceAgainRequest]) (*connect.Response[fairleadv1.PlaceAgainResponse], error) {
	var resp *fairleadv1.PlaceAgainResponse
	err := s.change(func(v *view) error {
		p, moved, err := v.scheduler.Again(req.Msg.Id, rand.Uint64())
		if err == nil {
			resp = &fairleadv1.PlaceAgainResponse{Flow: v.placed(&p), Moved: moved}
		}
		return err
	}, nil)
	return answered(resp, err)
}

// RenewFlow implements the API.
func (s *service) RenewFlow(_ context.Context, req *connect.Request[fairleadv1.RenewFlowRequest]) (*connect.Response[fairleadv1.PlacedFlow], error) {
	var resp *fairleadv1.PlacedFlow
	err := s.change(func(v *view) error {
		p, err := v.scheduler.Renew(req.Msg.Id, lease(req.Msg.LeaseSeconds))
		if err == nil {
			resp = v.placed(&p)
		}
		return err
	}, nil)
	return answered(resp, err)
}

// ReleaseFlow implements the API.
func (s *service) ReleaseFlow(_ context.Context, req *connect.Request[fairleadv1.ReleaseFlowRequest]) (*connect.Response[fairleadv1.PlacedFlow], error) {
	var resp *fairleadv1.PlacedFlow
	err := s.change(func(v *view) error {
		p, err := v.scheduler.Release(req.Msg.Id)
		if err == nil {
			resp = v.placed(&p)
		}
		return err
	}, nil)
	return answered(resp, err)
}

// ListFlows implements the API.
func (s *service) ListFlows(context.Context, *connect.Request[fairleadv1.ListFlowsRequest]) (*connect.Response[fairleadv1.ListFlowsResponse], error) {
	v := s.view()
	resp := &fairleadv1.ListFlowsResponse{}
	for _, p := range v.scheduler.Placed() {
		resp.Flows = append(resp.Flows, v.placed(&p))
	}
	return connect.NewResponse(resp), nil
}

// mostCarried times its capacity is more than a link carries, whatever its
// meter's clock and bursts do: a slip of units.
const mostCarried = 2

// usualValidity is how long a measurement counts if its reporter does not say.
const usualValidity = 30

// ReportLoad implements the API. All of a report counts, or nothing.
func (s *service) ReportLoad(_ context.Context, req *connect.Request[fairleadv1.ReportLoadRequest]) (*connect.Response[fairleadv1.ReportLoadResponse], error) {
	v := s.view()
	hops := make([]paths.Hop, len(req.Msg.Links))
	for i, m := range req.Msg.Links {
		var err error
		if hops[i], err = v.hop(m.Link, m.From); err != nil {
			return nil, pathError(err)
		}
		if err := v.scheduler.Measurable(hops[i], m.BitsPerSecond); err != nil {
			return nil, pathError(err)
		}
		if c := v.fabric.Links[hops[i].Link].Capacity; m.BitsPerSecond > mostCarried*float64(c) {
			return nil, pathError(fmt.Errorf("link %s: %s is more than it can carry, which is %s; correct the rate, or the capacity in the file",
				m.Link, topology.FormatRate(int64(m.BitsPerSecond)), topology.FormatRate(c)))
		}
	}
	until := lease(max(req.Msg.ValidSeconds, 0))
	if until.IsZero() {
		until = lease(usualValidity)
	}
	for i, m := range req.Msg.Links {
		if err := v.scheduler.Load(hops[i], m.BitsPerSecond, until); err != nil {
			return nil, pathError(err)
		}
	}
	return connect.NewResponse(&fairleadv1.ReportLoadResponse{}), nil
}

// hop is a link in the direction in which from sends.
func (v *view) hop(link, from string) (paths.Hop, error) {
	i, err := v.net.Link(link)
	if err != nil {
		return paths.Hop{}, err
	}
	node, err := v.net.Node(from)
	if err != nil {
		return paths.Hop{}, err
	}
	for side, e := range v.fabric.Links[i].Ends {
		if e.Node == node {
			return paths.Hop{Link: i, From: side}, nil
		}
	}
	return paths.Hop{}, fmt.Errorf("from %s: link %s does not end there; name one of its ends, %s or %s", from, link,
		v.fabric.Nodes[v.fabric.Links[i].Ends[0].Node].Name, v.fabric.Nodes[v.fabric.Links[i].Ends[1].Node].Name)
}
