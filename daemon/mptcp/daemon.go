// Package mptcp is `fairlead mptcp`: the daemon that gives connections of
// Multipath TCP subflows over chosen paths. It has no API and keeps nothing: what
// there is the kernel knows, and `fairlead mptcp list` asks it.
package mptcp

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// Options is what the command line decides.
type Options struct {
	File        string // fabric.yaml
	Subflows    int    // of a connection; 0: as many as there are disjoint paths
	RandomPorts bool
	Metrics     string // address:port of the metrics page; empty: none
	Log         *slog.Logger
}

// Run is `fairlead mptcp`. It returns when ctx ends (nil) or when it cannot go on.
// Connections keep the subflows that they have.
func Run(ctx context.Context, o Options) error {
	var net *paths.Net
	var m *mptcp.Manager
	d := &daemon.Daemon{Log: o.Log, Metrics: o.Metrics}
	d.Collectors = []prometheus.Collector{daemon.Collector(families, func(emit daemon.Emitter) error { collect(emit, m.Counters()); return nil })}
	d.Read = func() (err error) {
		net, err = o.read()
		subflows := "as many as there are disjoint paths"
		if o.Subflows > 0 {
			subflows = strconv.Itoa(o.Subflows)
		}
		d.Says = []any{"file", o.File, "subflows", subflows}
		return err
	}
	d.Open = func(context.Context) (err error) {
		if m, err = mptcp.Open(mptcp.Options{Net: net, Subflows: o.Subflows, RandomPorts: o.RandomPorts, Log: o.Log}); err != nil {
			return err
		}
		d.Go(m.Run)
		return nil
	}
	d.Reload = func() (daemon.Reloaded, error) {
		net, err := o.read()
		if err != nil {
			return daemon.Reloaded{}, err
		}
		m.SetNet(net)
		return daemon.Reloaded{Changed: []string{fmt.Sprintf("%s, with %d links", o.File, len(net.Fabric().Links))}}, nil
	}
	d.Close = func() error {
		if m == nil {
			return nil
		}
		return m.Close()
	}
	return d.Run(ctx)
}

// read reads the fabric's file and its routing.
func (o *Options) read() (*paths.Net, error) {
	f, err := topology.Read(o.File)
	if err != nil {
		return nil, err
	}
	net, err := paths.New(f)
	if err == nil {
		o.warnStranger(f)
	}
	return net, err
}

// warnStranger says if this machine is none of the fabric's hosts: nothing of
// what its programs open is managed then.
func (o *Options) warnStranger(f *topology.Fabric) {
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

var (
	mConnections = daemon.Gauge("mptcp_connections", "Connections of Multipath TCP now: managed, or foreign (opened by the peer, or to hosts that are not in the fabric).", "kind")
	mSubflows    = daemon.Gauge("mptcp_subflows", "Subflows of managed connections now.")
	mCreated     = daemon.Counter("mptcp_subflows_created_total", "Subflows that were asked for.")
	mRefused     = daemon.Counter("mptcp_subflows_refused_total", "Subflows that ended before they were open.")
	mFailed      = daemon.Counter("mptcp_subflows_failed_total", "Subflows that were ended because their path did not answer.")
	mAvoided     = daemon.Gauge("mptcp_links_avoided", "Links, by direction, that are avoided now because they did not answer.")

	families = []daemon.Metric{mConnections, mSubflows, mCreated, mRefused, mFailed, mAvoided}
)

func collect(emit daemon.Emitter, n mptcp.Counters) {
	emit(mConnections, float64(n.Managed), "managed")
	emit(mConnections, float64(n.Foreign), "foreign")
	emit(mSubflows, float64(n.Subflows))
	emit(mCreated, float64(n.Created))
	emit(mRefused, float64(n.Refused))
	emit(mFailed, float64(n.Failed))
	emit(mAvoided, float64(n.Avoided))
}
