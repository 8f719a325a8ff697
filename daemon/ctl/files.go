package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout"
)

// Desired state by files: Plan, Apply, Rollback, GetConfig.

// planTime bounds a plan, its turn included: all daemons are asked, and there is one at a time.
const planTime = time.Minute

// text is a file's, which may not be missing.
func text(s string) ([]byte, error) {
	if s == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("text: missing; send the content of a fairlead.yaml"))
	}
	return []byte(s), nil
}

// called refuses a name of a text that messages could not have.
func called(name string) error {
	if !config.FileName(name) {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("file: %.40q: not a name for messages; at most 255 printable characters, or leave it out", name))
	}
	return nil
}

// answer is a change's response, whatever made it.
func answer(ch *rollout.Change) *connect.Response[fairleadv1.ChangeResponse] {
	r := &fairleadv1.ChangeResponse{Answered: ch.Answered(), Version: ch.To, FromVersion: ch.From, Changes: ch.Lines, Notes: ch.Notes, Diff: ch.Diff}
	for _, d := range ch.Silent {
		r.Unanswered = append(r.Unanswered, &fairleadv1.UnansweredPeer{Name: d.Name, Api: d.API, Error: api.ErrorText(d.Err)})
	}
	return connect.NewResponse(r)
}

func (s service) Plan(ctx context.Context, req *connect.Request[fairleadv1.PlanRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	text, err := text(req.Msg.Text)
	if err = cmp.Or(err, called(req.Msg.File)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	done, err := turn(ctx, s.planning, "plan")
	if err != nil {
		return nil, err
	}
	defer done()
	// Whoever may only look sends nobody to places of his own choice.
	ch, err := s.coordinator(ctx).PlanFile(ctx, text, rollout.Options{Force: req.Msg.Force, Without: req.Msg.Without, File: req.Msg.File, OnlyKnown: access.From(ctx).Role < access.Administer})
	var refusal controller.Refusal
	if err != nil && (ch == nil || !errors.As(err, &refusal)) {
		return nil, rollout.Code(err)
	}
	resp := answer(ch)
	resp.Msg.Refused = refusal
	return resp, nil
}

func (s service) Apply(ctx context.Context, req *connect.Request[fairleadv1.ApplyRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	text, err := text(req.Msg.Text)
	if err = cmp.Or(err, called(req.Msg.File)); err != nil {
		return nil, err
	}
	return s.whole(ctx, func(c *rollout.Coordinator) (*rollout.Change, error) {
		return c.Apply(ctx, text, rollout.Options{Force: req.Msg.Force, Without: req.Msg.Without, File: req.Msg.File, Expect: req.Msg.ExpectedVersion})
	})
}

func (s service) Rollback(ctx context.Context, req *connect.Request[fairleadv1.RollbackRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	if req.Msg.Version == 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("version: missing; GetHistory lists them"))
	}
	return s.whole(ctx, func(c *rollout.Coordinator) (*rollout.Change, error) {
		return c.Rollback(ctx, req.Msg.Version, rollout.Options{Force: req.Msg.Force, Without: req.Msg.Without, Expect: req.Msg.ExpectedVersion})
	})
}

// whole makes a change, when those before it are made.
func (c *ctl) whole(ctx context.Context, change func(*rollout.Coordinator) (*rollout.Change, error)) (*connect.Response[fairleadv1.ChangeResponse], error) {
	done, err := c.one(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	daemon.Awake()
	ch, err := change(c.coordinator(ctx))
	if err != nil {
		return nil, rollout.Code(err)
	}
	return answer(ch), nil
}

func (s service) GetConfig(ctx context.Context, _ *connect.Request[fairleadv1.GetConfigRequest]) (*connect.Response[fairleadv1.GetConfigResponse], error) {
	text, version, err := s.coordinator(ctx).Desired(ctx)
	if err == nil && text == nil {
		err = controller.Refusal{"the store has no configuration yet; begin with `fairlead apply`"}
	}
	if err != nil {
		return nil, unread(err)
	}
	return connect.NewResponse(&fairleadv1.GetConfigResponse{Text: string(text), Version: version}), nil
}
