package host

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon/member"
)

// service is an agent's API.
type service struct {
	member.Service
	h *agent
}

// GetLive is the established connections of every VIP that this server is in.
func (s service) GetLive(context.Context, *connect.Request[fairleadv1.GetLiveRequest]) (*connect.Response[fairleadv1.GetLiveResponse], error) {
	live, err := s.h.live(s.Assignment())
	if err != nil {
		return nil, member.Coded(err)
	}
	return connect.NewResponse(&fairleadv1.GetLiveResponse{Vips: live}), nil
}

// GetServing is the server's state in each VIP of schemes beamer and faild, and
// which buckets it owns connections of, where asked.
func (s service) GetServing(_ context.Context, req *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	// Before the VIPs: those of a newer version are not told under an older.
	version := s.Assignment().Version
	return connect.NewResponse(&fairleadv1.GetServingResponse{Vips: s.h.serving(req.Msg.Owned), AssignmentVersion: version}), nil
}

// awaitTime is how long a call of AwaitServing is held at most: whoever asks learns
// within it that the machine is gone.
const awaitTime = 30 * time.Second

// AwaitServing is held until there is something to say, or the agent ends.
func (s service) AwaitServing(ctx context.Context, req *connect.Request[fairleadv1.AwaitServingRequest]) (*connect.Response[fairleadv1.AwaitServingResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, awaitTime)
	defer cancel()
	defer context.AfterFunc(s.h.life, cancel)()
	seen, ended := s.h.agent.AwaitServing(ctx, req.Msg.Seen)
	r := &fairleadv1.AwaitServingResponse{Seen: seen, Parting: s.h.life.Err() != nil}
	for _, e := range ended {
		r.Ended = append(r.Ended, &fairleadv1.EndedListener{VipId: e.VIP, Detail: e.Why})
	}
	return connect.NewResponse(r), nil
}
