package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
)

// routerService is the router's part of the API; it answers UNIMPLEMENTED to
// all else.
type routerService struct {
	fairleadv1connect.UnimplementedFairleadHandler
	d *routerDaemon
}

// handler is the API's path and handler.
func (d *routerDaemon) handler() (string, http.Handler) {
	guard := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if p := d.phase.Load(); p != phaseServing {
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("the daemon is "+string(p.(phase))))
			}
			return next(ctx, req)
		}
	})
	return fairleadv1connect.NewFairleadHandler(routerService{d: d}, connect.WithInterceptors(guard), connect.WithReadMaxBytes(api.MaxMessage),
		connect.WithCodec(wholeJSON{"json"}), connect.WithCodec(wholeJSON{"json; charset=utf-8"}))
}

func (s routerService) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	status, err := s.d.status()
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(status), nil
}

// maxAddresses is how many addresses one GetRoutes may ask for.
const maxAddresses = 1024

func (s routerService) GetRoutes(_ context.Context, req *connect.Request[fairleadv1.GetRoutesRequest]) (*connect.Response[fairleadv1.GetRoutesResponse], error) {
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
	mHopPackets   = counter("router_packets_total", "Packets forwarded by XDP, by how their next hop was chosen: selected by a digit, gone (the digit's hop does not work, so by the hash), hashed, single (there was no other).", "interface", "gateway", "port", "how")
	mHopBytes     = counter("router_bytes_total", "Bytes of these packets, from the IP header on.", "interface", "gateway", "port")
	mHopUsable    = gauge("router_next_hop_usable", "1 if packets go to the next hop.", "interface", "gateway", "port")
	mRouterRoutes = gauge("router_routes", "Routes of the kernel by what is done with their packets: forward, or left to the kernel (local, unreachable, connected, beyond).", "kind", "family")
	mRouterGroups = gauge("router_groups", "Sets of equal next hops.")
	mRouterChange = counter("router_changes_total", "How often the kernel's routing was put in force since the daemon started.")
	mRouterError  = gauge("router_error", "1 while the kernel's routing cannot be put in force.")
)

// routerCollector turns one status into metrics.
type routerCollector struct{ d *routerDaemon }

func (d *routerDaemon) metricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), routerCollector{d}, mRefused)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	serving := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if p := d.phase.Load(); p != phaseServing {
				http.Error(w, fmt.Sprint("the daemon is ", p), http.StatusServiceUnavailable)
				return
			}
			next(w, r)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", serving(metrics.ServeHTTP))
	mux.HandleFunc("GET /ready", serving(func(w http.ResponseWriter, _ *http.Request) {
		s, err := d.status()
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case len(s.NotReady) > 0:
			http.Error(w, strings.Join(s.NotReady, "\n"), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ready")
		}
	}))
	return mux
}

// Describe implements prometheus.Collector.
func (routerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range []metric{mBuild, mWarnings, mAttached, mReasonPackets, mReasonBytes, mLimitUsed, mLimit,
		mHopPackets, mHopBytes, mHopUsable, mRouterRoutes, mRouterGroups, mRouterChange, mRouterError} {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c routerCollector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.d.status()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(mBuild.desc, err)
		return
	}
	emit := func(m metric, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	}
	emit(mBuild, 1, "router", s.Version, s.Kernel)
	emit(mWarnings, float64(len(s.Warnings)))
	for _, i := range s.Interfaces {
		emit(mAttached, truth(attached(i)), i.Name)
	}
	for _, r := range s.Reasons {
		emit(mReasonPackets, float64(r.Packets), r.Name)
		emit(mReasonBytes, float64(r.Bytes), r.Name)
	}
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
		emit(mHopUsable, truth(h.Usable), h.Interface, h.Gateway, port)
	}
	for _, r := range s.Router.Routes {
		emit(mRouterRoutes, float64(r.Ipv4), r.Kind, "ipv4")
		emit(mRouterRoutes, float64(r.Ipv6), r.Kind, "ipv6")
	}
	for _, l := range s.Limits {
		emit(mLimitUsed, float64(l.Used), l.Name)
		emit(mLimit, float64(l.Limit), l.Name)
	}
	emit(mRouterGroups, float64(s.Router.Groups))
	emit(mRouterChange, float64(s.Router.Changes))
	emit(mRouterError, truth(s.Router.Error != ""))
}
