package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/version"
)

// The life of `fairlead mptcp`. It has no API: what there is the kernel knows,
// and `fairlead mptcp list` asks it.

// MPTCPOptions is what the command line decides.
type MPTCPOptions struct {
	File        string // fabric.yaml
	Subflows    int    // of a connection; 0: as many as there are disjoint paths
	RandomPorts bool
	Metrics     string // address:port of the metrics page; empty: none
	Log         *slog.Logger
}

// RunMPTCP is `fairlead mptcp`. It returns when ctx ends (nil) or when it
// cannot go on. Connections keep the subflows that they have.
func RunMPTCP(ctx context.Context, o MPTCPOptions) (err error) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	net, err := readNet(o.File)
	if err != nil {
		return err
	}
	o.warnStranger(net.Fabric())
	m, err := mptcp.Open(mptcp.Options{Net: net, Subflows: o.Subflows, RandomPorts: o.RandomPorts, Log: o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	if o.Metrics != "" {
		l, err := listenMetrics(o.Metrics, o.Log, false)
		if err != nil {
			return err
		}
		g.Go(func() error { return serve(gctx, httpServer(mptcpMetrics(m), o.Log), l) })
	}
	g.Go(func() error {
		for {
			select {
			case <-gctx.Done():
				return nil
			case <-hup:
			}
			net, err := readNet(o.File)
			if err != nil {
				o.Log.Error("fabric.yaml could not be read again; what was read before goes on", "error", err)
				continue
			}
			m.SetNet(net)
			o.warnStranger(net.Fabric())
			o.Log.Info("read fabric.yaml again", "links", len(net.Fabric().Links))
		}
	})
	g.Go(func() error {
		defer stop()
		return m.Run(gctx)
	})
	subflows := "as many as there are disjoint paths"
	if o.Subflows > 0 {
		subflows = strconv.Itoa(o.Subflows)
	}
	o.Log.Info("serving", "file", o.File, "subflows", subflows, "version", version.String())
	notifySystemd("READY=1")
	<-gctx.Done()
	notifySystemd("STOPPING=1")
	return g.Wait()
}

// warnStranger says if this machine is none of the fabric's hosts: nothing of
// what its programs open is managed then.
func (o *MPTCPOptions) warnStranger(f *topology.Fabric) {
	if mptcp.ThisHost(f) >= 0 {
		return
	}
	const most = 3
	var known []string
	for _, n := range f.Nodes {
		if n.Host && len(n.Addresses) > 0 && len(known) < most {
			known = append(known, n.Name+" "+n.Addresses[0].String())
		}
	}
	o.Log.Warn("this machine has no address of a host in fabric.yaml, so its connections stay as they are; add it to the file's hosts, or give it its address",
		"file", o.File, "hosts", strings.Join(known, ", "))
}

// readNet reads a fabric's file and its routing.
func readNet(file string) (*paths.Net, error) {
	f, err := topology.Read(file)
	if err != nil {
		return nil, err
	}
	return paths.New(f)
}

// mptcpMetrics serves /metrics.
func mptcpMetrics(m *mptcp.Manager) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		mRefused,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		mptcpCollector{m},
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	return mux
}

var (
	mMPTCPConnections = gauge("mptcp_connections", "Connections of Multipath TCP now: managed, or foreign (opened by the peer, or to hosts that are not in the fabric).", "kind")
	mMPTCPSubflows    = gauge("mptcp_subflows", "Subflows of managed connections now.")
	mMPTCPCreated     = counter("mptcp_subflows_created_total", "Subflows that were asked for.")
	mMPTCPRefused     = counter("mptcp_subflows_refused_total", "Subflows that ended before they were open.")
	mMPTCPFailed      = counter("mptcp_subflows_failed_total", "Subflows that were ended because their path did not answer.")
	mMPTCPAvoided     = gauge("mptcp_links_avoided", "Links, by direction, that are avoided now because they did not answer.")
)

type mptcpCollector struct{ m *mptcp.Manager }

func (c mptcpCollector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c mptcpCollector) Collect(out chan<- prometheus.Metric) {
	n := c.m.Counters()
	send := func(m metric, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	}
	send(mMPTCPConnections, float64(n.Managed), "managed")
	send(mMPTCPConnections, float64(n.Foreign), "foreign")
	send(mMPTCPSubflows, float64(n.Subflows))
	send(mMPTCPCreated, float64(n.Created))
	send(mMPTCPRefused, float64(n.Refused))
	send(mMPTCPFailed, float64(n.Failed))
	send(mMPTCPAvoided, float64(n.Avoided))
}
