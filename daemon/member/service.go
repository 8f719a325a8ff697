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
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/tables"
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

// Coded gives an error the code that the schema promises.
func Coded(err error) error {
	var c *connect.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c):
		return err
	case errors.Is(err, controller.ErrConflict):
		return connect.NewError(connect.CodeAborted, err)
	case errors.Is(err, errRefused):
		return connect.NewError(connect.CodeFailedPrecondition, err)
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
		Assignment: force.encoded, Version: force.Version, Digest: force.digest,
	}), nil
}

func (s Service) SetAssignment(_ context.Context, req *connect.Request[fairleadv1.SetAssignmentRequest]) (*connect.Response[fairleadv1.SetAssignmentResponse], error) {
	if s.stored != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s goes by the store: versions are agreed on there", s.Name))
	}
	v, err := s.setAssignment(req.Msg.Assignment, req.Msg.ExpectedVersion, req.Msg.CatchUp)
	if err != nil {
		return nil, Coded(err)
	}
	return connect.NewResponse(&fairleadv1.SetAssignmentResponse{Version: v}), nil
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

// GetLive: none but a host has sockets to count.
func (s Service) GetLive(context.Context, *connect.Request[fairleadv1.GetLiveRequest]) (*connect.Response[fairleadv1.GetLiveResponse], error) {
	return connect.NewResponse(&fairleadv1.GetLiveResponse{}), nil
}

// change runs one verb for all daemons: one at a time through this daemon.
// The coordinator calls this daemon's own SetAssignment as it does its peers'.
func change[R any](m *Member, ctx context.Context, req *connect.Request[R], verb func(*rollout.Coordinator, context.Context, *R) (*fairleadv1.ChangeResponse, error)) (*connect.Response[fairleadv1.ChangeResponse], error) {
	m.verbs.Lock()
	defer m.verbs.Unlock()
	c := &rollout.Coordinator{
		Who:        "a caller of " + m.Name,
		Config:     func() *config.Config { return m.settings.Load().boot },
		Self:       m.Name,
		SelfClient: m.service, // client and handler have the same methods
		Log:        m.Log,
		Fits:       tables.Fits,
	}
	if m.stored != nil {
		c.Ledger, c.Have = m.stored.ledger, m.Assignment()
	}
	resp, err := verb(c, ctx, req.Msg)
	if err != nil {
		return nil, Coded(err)
	}
	return connect.NewResponse(resp), nil
}

func (s Service) AddServer(ctx context.Context, req *connect.Request[fairleadv1.AddServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.Member, ctx, req, (*rollout.Coordinator).AddServer)
}

func (s Service) DrainServer(ctx context.Context, req *connect.Request[fairleadv1.DrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.Member, ctx, req, (*rollout.Coordinator).DrainServer)
}

func (s Service) UndrainServer(ctx context.Context, req *connect.Request[fairleadv1.UndrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.Member, ctx, req, (*rollout.Coordinator).UndrainServer)
}

func (s Service) RemoveServer(ctx context.Context, req *connect.Request[fairleadv1.RemoveServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.Member, ctx, req, (*rollout.Coordinator).RemoveServer)
}

func (s Service) SetWeight(ctx context.Context, req *connect.Request[fairleadv1.SetWeightRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.Member, ctx, req, (*rollout.Coordinator).SetWeight)
}

func (s Service) RotateKey(ctx context.Context, req *connect.Request[fairleadv1.RotateKeyRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.Member, ctx, req, (*rollout.Coordinator).RotateKey)
}

// ShareFlows is for balancers.
func (s Service) ShareFlows(context.Context, *connect.Request[fairleadv1.ShareFlowsRequest]) (*connect.Response[fairleadv1.ShareFlowsResponse], error) {
	return nil, s.tracksNothing()
}

// GetFlows is for balancers.
func (s Service) GetFlows(context.Context, *connect.Request[fairleadv1.GetFlowsRequest]) (*connect.Response[fairleadv1.GetFlowsResponse], error) {
	return nil, s.tracksNothing()
}

// GetRoutes is for routers (daemon/router).
func (s Service) GetRoutes(context.Context, *connect.Request[fairleadv1.GetRoutesRequest]) (*connect.Response[fairleadv1.GetRoutesResponse], error) {
	return nil, s.notA("a router")
}

// GetServing is for hosts.
func (s Service) GetServing(context.Context, *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
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
