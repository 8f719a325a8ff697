package swtch

import (
	"context"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon/member"
)

// service is a switch's API.
type service struct {
	member.Service
	p *plane
}

// DrainSwitch withdraws the announced routes, or announces them again.
func (s service) DrainSwitch(_ context.Context, req *connect.Request[fairleadv1.DrainSwitchRequest]) (*connect.Response[fairleadv1.DrainSwitchResponse], error) {
	changes, err := s.p.drain(!req.Msg.Undrain)
	if err != nil {
		return nil, member.Coded(err)
	}
	return connect.NewResponse(&fairleadv1.DrainSwitchResponse{Changes: changes}), nil
}

// UnlockSwitch has the switch follow its servers' health again.
func (s service) UnlockSwitch(context.Context, *connect.Request[fairleadv1.UnlockSwitchRequest]) (*connect.Response[fairleadv1.UnlockSwitchResponse], error) {
	changes, err := s.p.sw.Unlock()
	if err != nil {
		return nil, member.Coded(err)
	}
	return connect.NewResponse(&fairleadv1.UnlockSwitchResponse{Changes: changes}), nil
}
