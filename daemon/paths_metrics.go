package daemon

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Of the path service only. Labels are names of fabric.yaml.
var (
	mPlacedFlows  = gauge("path_flows", "Flows that are placed.")
	mLinkFlows    = gauge("path_link_flows", "Placed flows that pass the link, sent by the node from.", "link", "from")
	mLinkMeasured = gauge("path_link_measured_bits_per_second", "What was measured on the link; not there if nothing was.", "link", "from")
	mLinkCapacity = gauge("path_link_capacity_bits_per_second", "The link's capacity, where fabric.yaml states it.", "link")
	mPathWarnings = gauge("path_warnings", "Lines of warnings that `fairlead path load` shows.")
)

func (d *pathsDaemon) metricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), pathsCollector{d.service}, mRefused)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	return mux
}

// pathsCollector turns one GetFabric into metrics.
type pathsCollector struct{ s *pathService }

// Describe implements prometheus.Collector.
func (pathsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range []metric{mPlacedFlows, mLinkFlows, mLinkMeasured, mLinkCapacity, mPathWarnings} {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c pathsCollector) Collect(ch chan<- prometheus.Metric) {
	emit := func(m metric, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	}
	m := c.s.view().message()
	emit(mPlacedFlows, float64(m.Flows))
	warnings := len(c.s.diskWarnings())
	if w := c.s.warnings.Load(); w != nil {
		warnings += len(*w)
	}
	emit(mPathWarnings, float64(warnings))
	for _, l := range m.Links {
		if l.Capacity > 0 {
			emit(mLinkCapacity, float64(l.Capacity), l.Name)
		}
		for _, load := range l.Loads {
			emit(mLinkFlows, float64(load.Flows), l.Name, load.From)
			if load.UntilUnixMs > 0 {
				emit(mLinkMeasured, load.Measured, l.Name, load.From)
			}
		}
	}
}
