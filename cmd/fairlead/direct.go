package main

import (
	"context"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/rollout"
)

// direct makes changes in the deployment's store by itself, so that it takes no
// daemon that reaches it, and the history has who ran the command. The verbs call
// it as they call a daemon; it has no other calls.
type direct struct {
	client
	c *rollout.Coordinator
}

type changed = connect.Response[fairleadv1.ChangeResponse]

func answered(r *fairleadv1.ChangeResponse, err error) (*changed, error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(r), nil
}

func (d direct) AddServer(ctx context.Context, r *connect.Request[fairleadv1.AddServerRequest]) (*changed, error) {
	return answered(d.c.AddServer(ctx, r.Msg))
}

func (d direct) DrainServer(ctx context.Context, r *connect.Request[fairleadv1.DrainServerRequest]) (*changed, error) {
	return answered(d.c.DrainServer(ctx, r.Msg))
}

func (d direct) UndrainServer(ctx context.Context, r *connect.Request[fairleadv1.UndrainServerRequest]) (*changed, error) {
	return answered(d.c.UndrainServer(ctx, r.Msg))
}

func (d direct) RemoveServer(ctx context.Context, r *connect.Request[fairleadv1.RemoveServerRequest]) (*changed, error) {
	return answered(d.c.RemoveServer(ctx, r.Msg))
}

func (d direct) SetWeight(ctx context.Context, r *connect.Request[fairleadv1.SetWeightRequest]) (*changed, error) {
	return answered(d.c.SetWeight(ctx, r.Msg))
}

func (d direct) RotateKey(ctx context.Context, r *connect.Request[fairleadv1.RotateKeyRequest]) (*changed, error) {
	return answered(d.c.RotateKey(ctx, r.Msg))
}
