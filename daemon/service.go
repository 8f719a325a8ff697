package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/tables"
)

// service is the daemon's API (fairlead.v1.Fairlead).
type service struct{ d *daemon }

// handler is the API's path and handler.
func (d *daemon) handler() (string, http.Handler) {
	guard := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			timeOnly := req.Spec().Procedure == fairleadv1connect.FairleadGetTimeProcedure
			if p := d.phase.Load(); p != phaseServing && !timeOnly {
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("the daemon is "+string(p.(phase))))
			}
			resp, err := next(ctx, req)
			if err != nil && !timeOnly {
				d.log.Warn("api call failed", "procedure", req.Spec().Procedure, "error", err)
			}
			return resp, err
		}
	})
	return fairleadv1connect.NewFairleadHandler(service{d}, connect.WithInterceptors(guard), connect.WithReadMaxBytes(api.MaxMessage))
}

func asError[T error](err error, target *T) bool { return errors.As(err, target) }

// coded gives an error the code that the schema promises.
func coded(err error) error {
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

func (s service) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	status, err := s.d.status()
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(status), nil
}

func (s service) GetAssignment(context.Context, *connect.Request[fairleadv1.GetAssignmentRequest]) (*connect.Response[fairleadv1.GetAssignmentResponse], error) {
	force := s.d.force.Load()
	return connect.NewResponse(&fairleadv1.GetAssignmentResponse{
		Assignment: force.encoded, Version: force.Version, Digest: force.digest,
	}), nil
}

func (s service) SetAssignment(_ context.Context, req *connect.Request[fairleadv1.SetAssignmentRequest]) (*connect.Response[fairleadv1.SetAssignmentResponse], error) {
	v, err := s.d.setAssignment(req.Msg.Assignment, req.Msg.ExpectedVersion, req.Msg.CatchUp)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&fairleadv1.SetAssignmentResponse{Version: v}), nil
}

// GetTime answers as soon as the clock is fixed, long before the daemon
// serves: peers that start at the same time wait for it.
func (s service) GetTime(context.Context, *connect.Request[fairleadv1.GetTimeRequest]) (*connect.Response[fairleadv1.GetTimeResponse], error) {
	clock := s.d.clock.Load()
	if clock == nil {
		if s.d.asking.Load() {
			return nil, connect.NewError(codeAsking, errors.New("the daemon is asking its peers for the time"))
		}
		return nil, connect.NewError(codeOpening, errors.New("the daemon is starting"))
	}
	resp := &fairleadv1.GetTimeResponse{SharedMs: clock.now(), Source: string(clock.source)}
	if force := s.d.force.Load(); force != nil {
		resp.AssignmentVersion, resp.AssignmentDigest = force.Version, force.digest
	}
	return connect.NewResponse(resp), nil
}

func (s service) GetLive(context.Context, *connect.Request[fairleadv1.GetLiveRequest]) (*connect.Response[fairleadv1.GetLiveResponse], error) {
	live, err := s.d.plane.live(s.d.force.Load().Assignment)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&fairleadv1.GetLiveResponse{Vips: live}), nil
}

// change runs one verb for all daemons: one at a time through this daemon.
// The coordinator calls this daemon's own SetAssignment as it does its peers'.
func change[R any](d *daemon, ctx context.Context, req *connect.Request[R], verb func(*rollout.Coordinator, context.Context, *R) (*fairleadv1.ChangeResponse, error)) (*connect.Response[fairleadv1.ChangeResponse], error) {
	d.verbs.Lock()
	defer d.verbs.Unlock()
	c := &rollout.Coordinator{
		Config:     func() *config.Config { return d.settings.Load().cfg },
		Self:       d.me.name,
		SelfClient: service{d}, // client and handler have the same methods
		Log:        d.log,
		Fits: func(a *controller.Assignment) error {
			return tables.Fits(a, d.settings.Load().cfg.Limits)
		},
	}
	resp, err := verb(c, ctx, req.Msg)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(resp), nil
}

func (s service) AddServer(ctx context.Context, req *connect.Request[fairleadv1.AddServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.d, ctx, req, (*rollout.Coordinator).AddServer)
}

func (s service) DrainServer(ctx context.Context, req *connect.Request[fairleadv1.DrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.d, ctx, req, (*rollout.Coordinator).DrainServer)
}

func (s service) UndrainServer(ctx context.Context, req *connect.Request[fairleadv1.UndrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.d, ctx, req, (*rollout.Coordinator).UndrainServer)
}

func (s service) RemoveServer(ctx context.Context, req *connect.Request[fairleadv1.RemoveServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.d, ctx, req, (*rollout.Coordinator).RemoveServer)
}

func (s service) SetWeight(ctx context.Context, req *connect.Request[fairleadv1.SetWeightRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.d, ctx, req, (*rollout.Coordinator).SetWeight)
}

func (s service) RotateKey(ctx context.Context, req *connect.Request[fairleadv1.RotateKeyRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.d, ctx, req, (*rollout.Coordinator).RotateKey)
}

// ShareFlows writes connections that a peer balancer tracks into this one's
// flow table. They are not told further.
func (s service) ShareFlows(_ context.Context, req *connect.Request[fairleadv1.ShareFlowsRequest]) (*connect.Response[fairleadv1.ShareFlowsResponse], error) {
	if s.d.share == nil {
		return nil, s.d.tracksNothing()
	}
	if n := len(req.Msg.Key); n > shareBatch {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d records: at most %d in one call", n, shareBatch))
	}
	records, err := flowRecords(req.Msg.Key, req.Msg.Meta)
	if err != nil {
		return nil, err
	}
	taken, err := s.d.share.receive(records)
	if err != nil {
		return nil, coded(fmt.Errorf("write flow entries: %w", err))
	}
	return connect.NewResponse(&fairleadv1.ShareFlowsResponse{Taken: uint32(taken)}), nil
}

// GetFlows is one page of this balancer's flow table.
func (s service) GetFlows(_ context.Context, req *connect.Request[fairleadv1.GetFlowsRequest]) (*connect.Response[fairleadv1.GetFlowsResponse], error) {
	if s.d.share == nil {
		return nil, s.d.tracksNothing()
	}
	s.d.share.isBack(req.Msg.From)
	records, next, buckets, err := s.d.share.table.Flows(req.Msg.FirstBucket)
	if err != nil {
		return nil, coded(fmt.Errorf("read flow entries: %w", err))
	}
	if first := req.Msg.FirstBucket; first >= buckets {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("first_bucket %d: the table has %d buckets, 0 to %d", first, buckets, buckets-1))
	}
	resp := &fairleadv1.GetFlowsResponse{NextBucket: next, Buckets: buckets,
		Key: make([]uint64, len(records)), Meta: make([]uint32, len(records))}
	for i, r := range records {
		resp.Key[i], resp.Meta[i] = r.Key, flowMeta(r)
	}
	return connect.NewResponse(resp), nil
}

// GetRoutes is a router's alone (router.go).
func (s service) GetRoutes(context.Context, *connect.Request[fairleadv1.GetRoutesRequest]) (*connect.Response[fairleadv1.GetRoutesResponse], error) {
	return nil, s.d.notA("a router")
}

// tracksNothing answers calls about flows at a host or a switch.
func (d *daemon) tracksNothing() error {
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%s is %s, which tracks no connections: ask a balancer", d.me.name, d.me.role.what()))
}

// notA answers calls that are for another kind of daemon.
func (d *daemon) notA(other string) error {
	return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%s is %s: ask %s", d.me.name, d.me.role.what(), other))
}
