package lb

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/daemon/member"
)

// service is a balancer's API.
type service struct {
	member.Service
	b *balancer
}

// ShareFlows writes connections that a peer balancer tracks into this one's
// flow table. They are not told further.
func (s service) ShareFlows(_ context.Context, req *connect.Request[fairleadv1.ShareFlowsRequest]) (*connect.Response[fairleadv1.ShareFlowsResponse], error) {
	if n := len(req.Msg.Key); n > shareBatch {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d records: at most %d in one call", n, shareBatch))
	}
	records, err := flowRecords(req.Msg.Key, req.Msg.Meta)
	if err != nil {
		return nil, err
	}
	taken, err := s.b.share.receive(records)
	if err != nil {
		return nil, member.Coded(fmt.Errorf("write flow entries: %w", err))
	}
	return connect.NewResponse(&fairleadv1.ShareFlowsResponse{Taken: uint32(taken)}), nil
}

// GetFlows is one page of this balancer's flow table.
func (s service) GetFlows(_ context.Context, req *connect.Request[fairleadv1.GetFlowsRequest]) (*connect.Response[fairleadv1.GetFlowsResponse], error) {
	s.b.share.isBack(req.Msg.From)
	records, next, sets, err := s.b.share.table.Flows(req.Msg.FirstBucket)
	if err != nil {
		return nil, member.Coded(fmt.Errorf("read flow entries: %w", err))
	}
	if first := req.Msg.FirstBucket; first >= sets {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("first_bucket %d: the table has %d sets, 0 to %d", first, sets, sets-1))
	}
	resp := &fairleadv1.GetFlowsResponse{NextBucket: next, Buckets: sets,
		Key: make([]uint64, len(records)), Meta: make([]uint32, len(records))}
	for i, r := range records {
		resp.Key[i], resp.Meta[i] = r.Key, flowMeta(r)
	}
	return connect.NewResponse(resp), nil
}
