package ctl

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout"
)

// Desired state by files: Plan, Apply, Rollback, GetConfig.

// parse reads the text of a file.
func (c *ctl) parse(text string) (*config.Config, error) {
	if text == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("text: missing; send the content of a fairlead.yaml"))
	}
	cfg, err := config.Parse(c.o.File, []byte(text))
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	return cfg, nil
}

// answer is a change's response.
func answer(ch *rollout.Change) *connect.Response[fairleadv1.ChangeResponse] {
	r := &fairleadv1.ChangeResponse{Answered: ch.Answered(), Version: ch.To, FromVersion: ch.From, Changes: ch.Lines, Notes: ch.Notes}
	for _, d := range ch.Silent {
		r.Unanswered = append(r.Unanswered, &fairleadv1.UnansweredPeer{Name: d.Name, Api: d.API, Error: api.ErrorText(d.Err)})
	}
	return connect.NewResponse(r)
}

func (s service) Plan(ctx context.Context, req *connect.Request[fairleadv1.PlanRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	cfg, err := s.parse(req.Msg.Text)
	if err != nil {
		return nil, err
	}
	ch, err := s.coordinator(ctx, cfg).PlanFile(ctx, rollout.Options{Force: req.Msg.Force, Without: req.Msg.Without})
	var refusal controller.Refusal
	if err != nil && (ch == nil || !errors.As(err, &refusal)) {
		return nil, coded(err)
	}
	resp := answer(ch)
	resp.Msg.Refused = refusal
	return resp, nil
}

func (s service) Apply(ctx context.Context, req *connect.Request[fairleadv1.ApplyRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	cfg, err := s.parse(req.Msg.Text)
	if err != nil {
		return nil, err
	}
	done, err := s.one(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if expected := req.Msg.ExpectedVersion; expected != 0 {
		head, err := s.ledger.Head(ctx)
		if err != nil {
			return nil, coded(err)
		}
		if head.Version != expected {
			return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("expected_version: %d: version %d is in force by now; plan again", expected, head.Version))
		}
	}
	ch, err := s.coordinator(ctx, cfg).Apply(ctx, rollout.Options{Force: req.Msg.Force, Without: req.Msg.Without})
	if err != nil {
		return nil, coded(err)
	}
	return answer(ch), nil
}

func (service) Rollback(context.Context, *connect.Request[fairleadv1.RollbackRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("not yet"))
}

func (service) GetConfig(context.Context, *connect.Request[fairleadv1.GetConfigRequest]) (*connect.Response[fairleadv1.GetConfigResponse], error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("not yet"))
}
