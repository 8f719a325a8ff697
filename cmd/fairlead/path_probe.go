//go:build !ctl

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/topology"
)

// maxProbed bounds the paths that one command probes: each takes a few sockets.
const maxProbed = 256

// probeFlags are `path probe`'s.
type probeFlags struct {
	file, output, plot, metrics string
	via                         []string
	ipv6, watch, rates          bool
	count                       int
	port                        uint16
	interval, timeout           time.Duration
}

func newPathProbeCommand() *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe A B",
		Short: "Probe every path between two hosts and name the bad link",
		Long: `Send probes along every path from host A, which is this machine, to host B,
measure loss, round trip and rate of each, and name the links that explain
what is wrong: packets are lost, a link is slow, a router does not use a link
any more, a TTL is rewritten, NAT is on the way.

Host B must answer: run 'fairlead path answer' there, or the agent ('fairlead
host') with fabric.yaml. Probes are UDP to port 6081; answers come back over the
same links. A path is bad after three bad probes in a row.

With --watch it goes on until it is stopped and tells each change.

Exit status 1 if a path is not as it should be.`,
		Example: `  fairlead path probe h1 h2
  fairlead path probe h1 h2 --plot fabric.svg
  fairlead path probe h1 h2 --via spine1 --count 50 -o json
  fairlead path probe h1 h2 --watch --metrics 127.0.0.1:9640`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), args[0], args[1])
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", defaultFabric, "the fabric's file")
	cli.OutputFlag(cmd, &f.output)
	flags.StringSliceVar(&f.via, "via", nil, "only paths over these nodes, in this order")
	flags.BoolVar(&f.ipv6, "ipv6", false, "probe over IPv6")
	flags.IntVar(&f.count, "count", 20, "probes for each path, 3 or more")
	flags.BoolVar(&f.watch, "watch", false, "go on until stopped")
	flags.BoolVar(&f.rates, "rates", true, "send trains as well, to find links that are slow (80 kB for each path, three times; not with --watch)")
	flags.DurationVar(&f.interval, "interval", probe.DefaultInterval, "between two probes of a path")
	flags.DurationVar(&f.timeout, "timeout", probe.DefaultTimeout, "when a probe is lost")
	flags.Uint16Var(&f.port, "port", probe.DefaultPort, "the answerers' UDP port")
	flags.StringVar(&f.plot, "plot", "", "draw the fabric with the bad links marked, as FILE.svg")
	flags.StringVar(&f.metrics, "metrics", "", "with --watch: serve Prometheus metrics at ADDRESS:PORT")
	return cmd
}

func (f *probeFlags) check() error {
	switch {
	case f.count < 3:
		return cli.Usagef("--count %d: must be 3 or more, as three probes make a verdict", f.count)
	case f.interval <= 0:
		return cli.Usagef("--interval %s: must be more than 0, such as %s", f.interval, probe.DefaultInterval)
	case f.timeout <= 0:
		return cli.Usagef("--timeout %s: must be more than 0, such as %s", f.timeout, probe.DefaultTimeout)
	case f.metrics != "" && !f.watch:
		return cli.Usagef("--metrics %s: has nobody to ask once the command has ended; add --watch", f.metrics)
	}
	if err := cli.CheckPlot(f.plot); err != nil {
		return err
	}
	return cli.CheckOutput(f.output)
}

func (f *probeFlags) run(ctx context.Context, w io.Writer, a, b string) error {
	fabric, err := topology.Read(f.file)
	if err != nil {
		return err
	}
	targets, from, err := f.targets(fabric, a, b)
	if err != nil {
		return err
	}
	p, err := probe.New(probe.Config{
		Fabric: fabric, From: from, IPv6: f.ipv6, Targets: targets, Port: f.port,
		Interval: f.interval, Timeout: f.timeout, Walk: time.Second,
	})
	if err != nil {
		return err
	}
	view := &probeView{fabric: fabric, from: from, targets: targets, links: fabric.LinkNames()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	if f.watch {
		err = f.follow(ctx, w, p, view)
	} else {
		err = f.once(ctx, w, p, view)
	}
	cancel()
	<-done
	return err
}

// targets are B with the paths to it, and A's name.
func (f *probeFlags) targets(fabric *topology.Fabric, a, b string) ([]probe.Target, string, error) {
	n, err := paths.New(fabric)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", f.file, err)
	}
	src, err := n.Place(a)
	if err != nil {
		return nil, "", err
	}
	dst, err := n.Place(b)
	if err != nil {
		return nil, "", err
	}
	if !fabric.Nodes[dst.Node].Host {
		return nil, "", fmt.Errorf("%s is a router, which answers no probes; name a host behind it", b)
	}
	var rules paths.Rules
	for _, name := range f.via {
		via, err := n.Node(name)
		if err != nil {
			return nil, "", fmt.Errorf("--via: %w", err)
		}
		rules.Via = append(rules.Via, via)
	}
	routes, err := n.Routes(src, dst, rules)
	if err != nil {
		return nil, "", err
	}
	if routes.Count() > maxProbed {
		return nil, "", fmt.Errorf("%s to %s: %d paths, and at most %d are probed at once; narrow them by --via", a, b, routes.Count(), maxProbed)
	}
	t := probe.Target{Host: fabric.Nodes[dst.Node].Name, Address: dst.Addr, Paths: slices.Collect(routes.All())}
	return []probe.Target{t}, fabric.Nodes[src.Node].Name, nil
}

// once probes as often as asked, then says what was found.
func (f *probeFlags) once(ctx context.Context, w io.Writer, p *probe.Prober, view *probeView) error {
	if err := waitRounds(ctx, p, f.count); err != nil {
		return err
	}
	if f.rates {
		if err := p.Measure(ctx); err != nil {
			return err
		}
	}
	if view.take(p.Report()); view.bad() {
		// Walks need their time to tell which link it is.
		if err := waitRounds(ctx, p, p.Judged()+int(2*time.Second/f.interval)); err != nil {
			return err
		}
		view.take(p.Report())
	}
	if err := cli.PrintAs(w, f.output, view.value(), view.table); err != nil {
		return err
	}
	if err := cli.WritePlot(f.plot, view.draw); err != nil {
		return err
	}
	if view.bad() {
		return cli.ErrSilent
	}
	return nil
}

// waitRounds waits until so many probes of each path are judged.
func waitRounds(ctx context.Context, p *probe.Prober, rounds int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.Judged() < rounds {
		select {
		case <-ctx.Done():
			return errors.New("stopped before the paths were judged")
		case <-tick.C:
		}
	}
	return nil
}

// follow tells each change until ctx ends.
func (f *probeFlags) follow(ctx context.Context, w io.Writer, p *probe.Prober, view *probeView) error {
	if f.metrics != "" {
		stop, err := serveProbeMetrics(f.metrics, p, view)
		if err != nil {
			return err
		}
		defer stop()
	}
	tick := time.NewTicker(time.Second) // walks and rewriting change no verdict
	defer tick.Stop()
	for {
		if view.take(p.Report()) {
			if err := f.tell(w, view); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.Changes():
		case <-tick.C:
		}
	}
}

// tell prints what is new: a line each, or a JSON document of its own.
func (f *probeFlags) tell(w io.Writer, view *probeView) error {
	if err := cli.WritePlot(f.plot, view.draw); err != nil {
		return err
	}
	switch f.output {
	case "json":
		return json.NewEncoder(w).Encode(view.value())
	case "yaml":
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
		return cli.PrintAs(w, f.output, view.value(), nil)
	}
	return view.news(w, time.Now())
}

// serveProbeMetrics serves /metrics until stop is called.
func serveProbeMetrics(address string, p *probe.Prober, view *probeView) (stop func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, cli.Usagef("--metrics %s: %w; name a free ADDRESS:PORT of this machine", address, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(probe.NewCollector(view.fabric, view.targets, p.Report))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // it ends when it is closed
	return func() { server.Close() }, nil
}
