package daemon

import (
	"context"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// servesVIPs is a plane whose machine serves VIPs itself: an agent's.
type servesVIPs interface {
	// serving is the server's state in each VIP of schemes beamer and faild, and
	// which buckets it owns connections of, where asked.
	serving(owned bool) ([]*fairleadv1.ServingVIP, error)
}

// isSwitch is the plane of `fairlead switch`.
type isSwitch interface {
	drain(drained bool) (changes []string, err error)
	unlock() (changes []string, err error)
}

func (s service) GetServing(_ context.Context, req *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	p, ok := s.d.plane.(servesVIPs)
	if !ok {
		return nil, s.d.notA("a host's agent, which alone serves VIPs")
	}
	// Before the VIPs: those of a newer version are not told under an older.
	version := s.d.force.Load().Assignment.Version
	vips, err := p.serving(req.Msg.Owned)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&fairleadv1.GetServingResponse{Vips: vips, AssignmentVersion: version}), nil
}

func (s service) DrainSwitch(_ context.Context, req *connect.Request[fairleadv1.DrainSwitchRequest]) (*connect.Response[fairleadv1.DrainSwitchResponse], error) {
	p, ok := s.d.plane.(isSwitch)
	if !ok {
		return nil, s.d.notA("a switch; DrainServer drains a server")
	}
	changes, err := p.drain(!req.Msg.Undrain)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&fairleadv1.DrainSwitchResponse{Changes: changes}), nil
}

func (s service) UnlockSwitch(context.Context, *connect.Request[fairleadv1.UnlockSwitchRequest]) (*connect.Response[fairleadv1.UnlockSwitchResponse], error) {
	p, ok := s.d.plane.(isSwitch)
	if !ok {
		return nil, s.d.notA("a switch")
	}
	changes, err := p.unlock()
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(&fairleadv1.UnlockSwitchResponse{Changes: changes}), nil
}
