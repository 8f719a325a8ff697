package router

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/daemon"
)

// service is the router's part of the API; it answers UNIMPLEMENTED to
// all else.
type service struct {
	fairleadv1connect.UnimplementedFairleadHandler
	d *server
}

func (d *server) handler() http.Handler {
	_, h := fairleadv1connect.NewFairleadHandler(service{d: d}, d.Guard(), daemon.WholeJSON())
	return h
}

func (s service) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	status, err := s.d.status()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(status), nil
}

// Reload has the file read again.
func (s service) Reload(context.Context, *connect.Request[fairleadv1.ReloadRequest]) (*connect.Response[fairleadv1.ReloadResponse], error) {
	return s.d.AnswerReload()
}

// maxAddresses is how many addresses one GetRoutes may ask for.
const maxAddresses = 1024

func (s service) GetRoutes(_ context.Context, req *connect.Request[fairleadv1.GetRoutesRequest]) (*connect.Response[fairleadv1.GetRoutesResponse], error) {
	if n := len(req.Msg.Addresses); n > maxAddresses {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d addresses: at most %d in one call", n, maxAddresses))
	}
	var addresses []netip.Addr
	for _, text := range req.Msg.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("addresses: %q is no IP address, such as 10.1.1.2 or 2001:db8::2", text))
		}
		addresses = append(addresses, a.Unmap())
	}
	view := s.d.follower.View()
	return connect.NewResponse(&fairleadv1.GetRoutesResponse{Routes: routesTo(&view, addresses)}), nil
}

// Of a router only. A hop's labels are of the kernel's routing: as many as it
// has next hops and neighbours.
var (
	mHopPackets   = daemon.Counter("router_packets_total", "Packets forwarded by XDP, by how their next hop was chosen: selected by a digit, gone (the digit's hop does not work, so by the hash), hashed, single (there was no other).", "interface", "gateway", "port", "how")
	mHopBytes     = daemon.Counter("router_bytes_total", "Bytes of these packets, from the IP header on.", "interface", "gateway", "port")
	mHopUsable    = daemon.Gauge("router_next_hop_usable", "1 if packets go to the next hop.", "interface", "gateway", "port")
	mRouterRoutes = daemon.Gauge("router_routes", "Routes of the kernel by what is done with their packets: forward, or left to the kernel (local, unreachable, connected, beyond).", "kind", "family")
	mRouterGroups = daemon.Gauge("router_groups", "Sets of equal next hops.")
	mRouterChange = daemon.Counter("router_changes_total", "How often the kernel's routing was put in force since the daemon started.")
	mRouterError  = daemon.Gauge("router_error", "1 while the kernel's routing cannot be put in force.")

	families = append(slices.Clone(daemon.StatusMetrics), mHopPackets, mHopBytes, mHopUsable, mRouterRoutes, mRouterGroups, mRouterChange, mRouterError)
)

// collect turns one status into metrics.
func (d *server) collect(emit daemon.Emitter) error {
	s, err := d.status()
	if err != nil {
		return err
	}
	daemon.EmitStatus(emit, "router", s)
	for _, h := range s.Router.Hops {
		port := "none"
		if h.Port >= 0 {
			port = fmt.Sprint(h.Port)
		}
		for _, one := range []struct {
			how     string
			packets uint64
		}{{"selected", h.Selected}, {"gone", h.Gone}, {"hashed", h.Hashed}, {"single", h.Single}} {
			emit(mHopPackets, float64(one.packets), h.Interface, h.Gateway, port, one.how)
		}
		emit(mHopBytes, float64(h.Bytes), h.Interface, h.Gateway, port)
		emit(mHopUsable, daemon.Truth(h.Usable), h.Interface, h.Gateway, port)
	}
	for _, r := range s.Router.Routes {
		emit(mRouterRoutes, float64(r.Ipv4), r.Kind, "ipv4")
		emit(mRouterRoutes, float64(r.Ipv6), r.Kind, "ipv6")
	}
	emit(mRouterGroups, float64(s.Router.Groups))
	emit(mRouterChange, float64(s.Router.Changes))
	emit(mRouterError, daemon.Truth(s.Router.Error != ""))
	return nil
}
