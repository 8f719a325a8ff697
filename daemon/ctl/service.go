package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/api/openapi"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/tables"
)

// service answers fairlead.v1.Control. A call comes by crowd (not too many), the
// audit, and the guard of all daemons (who may).
type service struct{ *ctl }

// handler answers for the API, and with the document that describes it.
func (c *ctl) handler() http.Handler {
	path, calls := fairleadv1connect.NewControlHandler(service{c}, connect.WithInterceptors(c.meters, c.audit), c.Guard(), daemon.WholeJSON(), connect.WithReadMaxBytes(maxRequest),
		connect.WithIdempotency(connect.IdempotencyUnknown)) // one way to call, POST: what looks would take GET, too
	mux := http.NewServeMux()
	mux.Handle(path, calls)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		if err := access.Check(access.From(r.Context()), fairleadv1connect.ControlGetConfigProcedure, nil); err != nil {
			http.Error(w, "the document: "+err.Error(), http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi.Control) // else the caller is gone
	})
	return newCrowd().within(mux)
}

// coordinator makes changes for a caller.
func (c *ctl) coordinator(ctx context.Context) *rollout.Coordinator {
	return &rollout.Coordinator{
		Config: c.config.Load, Ledger: c.ledger, Who: access.From(ctx).Name, Log: c.Log, Have: c.have.Load(), Memo: &c.memo,
		Fits: tables.Fits, Clients: &c.clients,
	}
}

// one waits for the changes of this controller before this one: together they would
// only get into each other's way.
func (c *ctl) one(ctx context.Context) (done func(), err error) {
	return turn(ctx, c.changing, "change")
}

// turn waits for room, which has place for one what.
func turn(ctx context.Context, room chan struct{}, what string) (done func(), err error) {
	select {
	case room <- struct{}{}:
		return func() { <-room }, nil
	case <-ctx.Done():
		return nil, connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("another %s is under way; nothing was begun", what))
	}
}

// change carries out one verb.
func change[R any](c *ctl, ctx context.Context, req *connect.Request[R], verb func(*rollout.Coordinator, context.Context, *R) (*rollout.Change, error)) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return c.whole(ctx, func(by *rollout.Coordinator) (*rollout.Change, error) { return verb(by, ctx, req.Msg) })
}

// unread is rollout.Code of what only reads the store.
func unread(err error) error {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("no majority of the store answers: %w", err))
	}
	return rollout.Code(err)
}

func named(what, name string) error {
	if name == "" {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s: missing; name one", what))
	}
	return nil
}

func (s service) AddServer(ctx context.Context, req *connect.Request[fairleadv1.AddServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	if err := named("server", req.Msg.Server); err != nil {
		return nil, err
	}
	return change(s.ctl, ctx, req, (*rollout.Coordinator).AddServer)
}

func (s service) DrainServer(ctx context.Context, req *connect.Request[fairleadv1.DrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	if err := named("server", req.Msg.Server); err != nil {
		return nil, err
	}
	return change(s.ctl, ctx, req, (*rollout.Coordinator).DrainServer)
}

func (s service) UndrainServer(ctx context.Context, req *connect.Request[fairleadv1.UndrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	if err := named("server", req.Msg.Server); err != nil {
		return nil, err
	}
	return change(s.ctl, ctx, req, (*rollout.Coordinator).UndrainServer)
}

func (s service) RemoveServer(ctx context.Context, req *connect.Request[fairleadv1.RemoveServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	if err := named("server", req.Msg.Server); err != nil {
		return nil, err
	}
	return change(s.ctl, ctx, req, (*rollout.Coordinator).RemoveServer)
}

func (s service) SetWeight(ctx context.Context, req *connect.Request[fairleadv1.SetWeightRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	if err := named("server", req.Msg.Server); err != nil {
		return nil, err
	}
	return change(s.ctl, ctx, req, (*rollout.Coordinator).SetWeight)
}

// Reload has this controller's file read again.
func (s service) Reload(context.Context, *connect.Request[fairleadv1.ReloadRequest]) (*connect.Response[fairleadv1.ReloadResponse], error) {
	return s.AnswerReload()
}

func (s service) RotateKey(ctx context.Context, req *connect.Request[fairleadv1.RotateKeyRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return change(s.ctl, ctx, req, (*rollout.Coordinator).RotateKey)
}
