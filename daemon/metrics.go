package daemon

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsHandler serves /metrics, and /ready for whoever decides if a router may
// use this machine (a BGP speaker's check): 200, or 503 with the reasons, a line
// each. Values are read when Prometheus asks, never before.
func (d *Daemon) metricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), d.refused, d.expiryCollector())
	registry.MustRegister(d.Collectors...)
	mux := http.NewServeMux()
	serving := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := d.unready(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			h(w, r)
		})
	}
	serving("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP)
	if d.NotReady == nil {
		return mux
	}
	serving("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		why, err := d.NotReady()
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case len(why) > 0:
			http.Error(w, strings.Join(why, "\n"), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ready")
		}
	})
	return mux
}

// Metric is one family: its description and how to emit it.
type Metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Counter is a family that only grows.
func Counter(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc("fairlead_"+name, help, labels, nil), prometheus.CounterValue}
}

// Gauge is a family that goes up and down.
func Gauge(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc("fairlead_"+name, help, labels, nil), prometheus.GaugeValue}
}

// Emitter emits one value of a family.
type Emitter func(m Metric, value float64, labels ...string)

// Collector has collect emit values of all its families at a time; an error is
// Prometheus's answer.
func Collector(families []Metric, collect func(Emitter) error) prometheus.Collector {
	return collector{families, collect}
}

type collector struct {
	families []Metric
	collect  func(Emitter) error
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.families {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	err := c.collect(func(m Metric, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	})
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.families[0].desc, err)
	}
}

// Truth is 1 for what is so.
func Truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
