package member

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// Service is what all members answer of the API (fairlead.v1.Fairlead), and what
// they say to calls that are for other roles. A role's own embeds it.
type Service struct{ *Member }

// handler answers for the API.
func (m *Member) handler() http.Handler {
	const timeOnly = fairleadv1connect.FairleadGetTimeProcedure
	logged := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			resp, err := next(ctx, req)
			if err != nil && req.Spec().Procedure != timeOnly {
				m.Log.Warn("api call failed", "procedure", req.Spec().Procedure, "error", err)
			}
			return resp, err
		}
	})
	_, h := fairleadv1connect.NewFairleadHandler(m.service, m.Guard(timeOnly), connect.WithInterceptors(logged))
	return h
}

// controllers are those that make changes of this daemon's deployment.
func (m *Member) controllers() []config.Controller {
	set := m.settings.Load()
	if set == nil {
		return nil
	}
	return set.cfg.Controllers
}

// Coded gives an error the code that the schema promises.
func Coded(err error) error {
	var c *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c):
		return err
	case errors.Is(err, os.ErrPermission):
		return connect.NewError(connect.CodePermissionDenied, err)
	}
	return connect.NewError(connect.CodeInternal, err)
}

func (s Service) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	status, err := s.status()
	if err != nil {
		return nil, Coded(err)
	}
	return connect.NewResponse(status), nil
}

func (s Service) GetAssignment(context.Context, *connect.Request[fairleadv1.GetAssignmentRequest]) (*connect.Response[fairleadv1.GetAssignmentResponse], error) {
	force := s.force.Load()
	return connect.NewResponse(&fairleadv1.GetAssignmentResponse{
		Assignment: force.Encode(), Version: force.Version, Digest: force.digest,
	}), nil
}

// GetTime answers as soon as the clock is fixed, long before the daemon
// serves: peers that start at the same time wait for it.
func (s Service) GetTime(context.Context, *connect.Request[fairleadv1.GetTimeRequest]) (*connect.Response[fairleadv1.GetTimeResponse], error) {
	clock := s.clock.Load()
	if clock == nil {
		if s.asking.Load() {
			return nil, connect.NewError(codeAsking, errors.New("the daemon is asking its peers for the time"))
		}
		return nil, connect.NewError(codeOpening, errors.New("the daemon is starting"))
	}
	resp := &fairleadv1.GetTimeResponse{SharedMs: clock.now(), Source: string(clock.source)}
	if force := s.force.Load(); force != nil {
		resp.AssignmentVersion, resp.AssignmentDigest = force.Version, force.digest
	}
	return connect.NewResponse(resp), nil
}

// Reload has this machine's file read again.
func (s Service) Reload(context.Context, *connect.Request[fairleadv1.ReloadRequest]) (*connect.Response[fairleadv1.ReloadResponse], error) {
	return s.AnswerReload()
}

// GetLive: none but a host has sockets to count.
func (s Service) GetLive(context.Context, *connect.Request[fairleadv1.GetLiveRequest]) (*connect.Response[fairleadv1.GetLiveResponse], error) {
	return connect.NewResponse(&fairleadv1.GetLiveResponse{}), nil
}

// ShareFlows is for balancers.
func (s Service) ShareFlows(context.Context, *connect.Request[fairleadv1.ShareFlowsRequest]) (*connect.Response[fairleadv1.ShareFlowsResponse], error) {
	return nil, s.tracksNothing()
}

// GetFlows is for balancers.
func (s Service) GetFlows(context.Context, *connect.Request[fairleadv1.GetFlowsRequest]) (*connect.Response[fairleadv1.GetFlowsResponse], error) {
	return nil, s.tracksNothing()
}

// MoveConnections is for balancers.
func (s Service) MoveConnections(context.Context, *connect.Request[fairleadv1.MoveConnectionsRequest]) (*connect.Response[fairleadv1.MoveConnectionsResponse], error) {
	return nil, s.tracksNothing()
}

// GetConnections is for balancers.
func (s Service) GetConnections(context.Context, *connect.Request[fairleadv1.GetConnectionsRequest]) (*connect.Response[fairleadv1.GetConnectionsResponse], error) {
	return nil, s.tracksNothing()
}

// GetRoutes is for routers (daemon/router).
func (s Service) GetRoutes(context.Context, *connect.Request[fairleadv1.GetRoutesRequest]) (*connect.Response[fairleadv1.GetRoutesResponse], error) {
	return nil, s.notA("a router")
}

// GetHad is for hosts.
func (s Service) GetHad(context.Context, *connect.Request[fairleadv1.GetHadRequest]) (*connect.Response[fairleadv1.GetHadResponse], error) {
	return nil, s.notA("a host's agent, which alone has connections")
}

// GetServing is for hosts.
func (s Service) GetServing(context.Context, *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	return nil, s.notA("a host's agent, which alone serves VIPs")
}

// AwaitServing is for hosts.
func (s Service) AwaitServing(context.Context, *connect.Request[fairleadv1.AwaitServingRequest]) (*connect.Response[fairleadv1.AwaitServingResponse], error) {
	return nil, s.notA("a host's agent, which alone serves VIPs")
}

// DrainSwitch is for switches.
func (s Service) DrainSwitch(context.Context, *connect.Request[fairleadv1.DrainSwitchRequest]) (*connect.Response[fairleadv1.DrainSwitchResponse], error) {
	return nil, s.notA("a switch; DrainServer drains a server")
}

// UnlockSwitch is for switches.
func (s Service) UnlockSwitch(context.Context, *connect.Request[fairleadv1.UnlockSwitchRequest]) (*connect.Response[fairleadv1.UnlockSwitchResponse], error) {
	return nil, s.notA("a switch")
}

// tracksNothing answers calls about flows at a host or a switch.
func (m *Member) tracksNothing() error {
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%s is %s, which tracks no connections: ask a balancer", m.Name, m.role.What))
}

// notA answers calls that are for another kind of daemon.
func (m *Member) notA(other string) error {
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%s is %s: ask %s", m.Name, m.role.What, other))
}
