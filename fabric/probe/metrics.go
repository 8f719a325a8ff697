package probe

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/fabric/topology"
)

// collector turns reports into metrics, when Prometheus asks.
type collector struct {
	targets []Target
	links   []string
	report  func() ([]State, []Finding)
}

// NewCollector makes metrics of reports (Prober.Report). Labels are names of
// the fabric and numbers of paths.
func NewCollector(f *topology.Fabric, targets []Target, report func() ([]State, []Finding)) prometheus.Collector {
	return &collector{targets, f.LinkNames(), report}
}

func family(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fairlead_path_"+name, help, labels, nil)
}

var (
	mVerdict  = family("verdict", "1 for the verdict on the path: unknown, good, lost, slow or astray.", "target", "path", "verdict")
	mProbes   = family("probes_total", "Probes by outcome: answered or lost.", "target", "path", "result")
	mRTT      = family("round_trip_seconds", "Round trip of the last answered probe.", "target", "path")
	mRTTLeast = family("round_trip_least_seconds", "Least round trip since the start.", "target", "path")
	mAltered  = family("altered", "1 if packets are rewritten on the path: NAT, TTL or flow label.", "target", "path")
	mLink     = family("suspected_link", "1 for a link that explains bad paths: lost, slow, unused or altered.", "link", "kind")
	families  = []*prometheus.Desc{mVerdict, mProbes, mRTT, mRTTLeast, mAltered, mLink}
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range families {
		ch <- m
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	states, findings := c.report()
	emit := func(m *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m, kind, value, labels...)
	}
	for _, s := range states {
		target, path := c.targets[s.Target].Host, strconv.Itoa(s.Path)
		for _, v := range []Verdict{Unknown, Good, Lost, Slow, Astray} {
			emit(mVerdict, prometheus.GaugeValue, truth(s.Verdict == v), target, path, string(v))
		}
		emit(mProbes, prometheus.CounterValue, float64(s.Answered), target, path, "answered")
		emit(mProbes, prometheus.CounterValue, float64(s.Sent-s.Answered), target, path, "lost")
		emit(mRTT, prometheus.GaugeValue, s.RTTLast.Seconds(), target, path)
		emit(mRTTLeast, prometheus.GaugeValue, s.RTTMin.Seconds(), target, path)
		emit(mAltered, prometheus.GaugeValue, truth(s.Altered != ""), target, path)
	}
	type suspect struct {
		link int
		kind Kind
	}
	seen := map[suspect]bool{}
	for _, f := range findings {
		for _, l := range f.Links {
			if s := (suspect{l, f.Kind}); !seen[s] {
				seen[s] = true
				emit(mLink, prometheus.GaugeValue, 1, c.links[l], string(f.Kind))
			}
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
