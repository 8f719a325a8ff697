package lb

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/scheme/seats"
)

// mostMoved is how many of those that were moved are listed.
const mostMoved = 1000

// who is whose connections are meant: of a prefix, or one.
type who struct {
	prefix netip.Prefix
	port   uint16 // 0: all
}

// whoOf reads address:port, an address or a prefix.
func whoOf(client string) (who, error) {
	if ap, err := netip.ParseAddrPort(client); err == nil && ap.Port() > 0 {
		return who{netip.PrefixFrom(ap.Addr(), ap.Addr().BitLen()), ap.Port()}, nil
	}
	if p, err := netip.ParsePrefix(client); err == nil {
		return who{p, 0}, nil
	}
	a, err := netip.ParseAddr(client)
	if err != nil {
		return who{}, wrongf("client %q: must be an address and port (203.0.113.7:4711, [2001:db8::7]:4711), an address or a prefix", client)
	}
	return who{netip.PrefixFrom(a, a.BitLen()), 0}, nil
}

func (w who) is(client netip.AddrPort) bool {
	return w.prefix.Contains(client.Addr()) && (w.port == 0 || w.port == client.Port())
}

// MoveConnections has packets of connections go to another server, and back.
func (s service) MoveConnections(ctx context.Context, req *connect.Request[fairleadv1.MoveConnectionsRequest]) (*connect.Response[fairleadv1.MoveConnectionsResponse], error) {
	r := req.Msg
	client, err := whoOf(r.Client)
	switch {
	case err != nil:
		return nil, err
	case r.Vip == "":
		return nil, wrongf("vip: missing: say of which VIP's connections")
	case r.Back == (r.Server != ""):
		return nil, wrongf("say either server, where packets are to go, or back")
	}
	a := s.Assignment()
	if a == nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s has no assignment yet", s.Name))
	}
	names := newNames(a)
	if err := names.check(&view{GetConnectionsRequest: &fairleadv1.GetConnectionsRequest{Vip: r.Vip}}); err != nil {
		return nil, err
	}
	v := &a.VIPs[slices.IndexFunc(a.VIPs, func(v controller.VIP) bool { return v.Name == r.Vip })]
	to := uint32(seats.Any)
	if !r.Back {
		if to, err = slotOf(v, r.Server); err != nil {
			return nil, err
		}
	}
	resp := &fairleadv1.MoveConnectionsResponse{}
	err = s.b.lb.Move(func(c *lb.Connection) (uint32, bool) {
		if c.VIP != v.ID || !client.is(c.Client) || ctx.Err() != nil {
			return 0, false
		}
		resp.Matched++
		return to, true
	}, func(c *lb.Connection) {
		if resp.Moved++; len(resp.Connections) < mostMoved {
			vip, server := names.of(c)
			resp.Connections = append(resp.Connections, names.message(c, vip, server))
		}
	})
	if err != nil {
		return nil, member.Coded(fmt.Errorf("move connections: %w", err))
	}
	s.Log.Info("connections moved", "vip", r.Vip, "client", r.Client, "server", r.Server, "back", r.Back, "moved", resp.Moved, "matched", resp.Matched)
	return connect.NewResponse(resp), nil
}

// slotOf is a server's slot in a VIP whose packets can go there.
func slotOf(v *controller.VIP, server string) (uint32, error) {
	var there []string
	for i := range v.Slots {
		slot := &v.Slots[i]
		switch gone := slot.State == controller.Resting; {
		case slot.Server == server && gone:
			return 0, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("server %s: it was removed from vip %s: add it again", server, v.Name))
		case slot.Server == server:
			return uint32(slot.Number), nil
		case !gone:
			there = append(there, slot.Server)
		}
	}
	return 0, connect.NewError(connect.CodeNotFound, fmt.Errorf("server %s: vip %s has none of that name; it has %s. One that is to take no new connections can be there with standby: true", server, v.Name, strings.Join(there, ", ")))
}
