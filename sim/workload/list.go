package workload

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/sim"
)

// Entry describes a workload: one of ours, or a user's file.
type Entry struct {
	Name string `json:"name"`
	// Kind is what it says: lifetimes, sizes, downtimes, service times,
	// updates, rate, attack, flow sizes, record.
	Kind   string `json:"kind"`
	About  string `json:"about,omitempty"`
	Source string `json:"source,omitempty"`
	// Use says where it is taken from: a scenario and its flag.
	Use string `json:"use,omitempty"`
	// Unit of the figures below: "ns" or "bytes"; empty: there are none.
	Unit      string     `json:"unit,omitempty"`
	Mean      float64    `json:"mean,omitempty"`
	Quantiles []Quantile `json:"quantiles,omitempty"`
	// Steps are a distribution's values, from the least on.
	Steps []Step `json:"steps,omitempty"`
	// Record is what a user's flow file or capture holds.
	Record *RecordSummary `json:"record,omitempty"`
}

// Quantile is a value that a share does not exceed.
type Quantile struct {
	Share float64 `json:"share"`
	Value int64   `json:"value"`
}

// Step is a value and its probability.
type Step struct {
	Value int64   `json:"value"`
	Share float64 `json:"share"`
}

// RecordSummary is what a user's own connections are like.
type RecordSummary struct {
	Connections int `json:"connections"`
	// Span is from the first start to the last end, in ns; Active the mean
	// number of connections that live at a time.
	Span   int64   `json:"span"`
	Active float64 `json:"active"`
	// Skipped counts packets of a capture that are of no use.
	Skipped int `json:"skipped,omitempty"`
}

// List is every workload that has a name.
func List() []Entry {
	const cheetah = "Cheetah (NSDI'20), "
	return []Entry{
		WebServer.entry("lifetimes", "--lifetimes web-server, the default but in jet"),
		Hadoop.entry("lifetimes", "--lifetimes hadoop, the default in jet"),
		Downtime.entry("downtimes", "jet: how long a failed server stays away"),
		WebServerSizes.entry("sizes", "the live schedule of lab run scaling"),
		service("constant", "each request takes the same time", cheetah+"figures 6 and 7: 7 ms", "fct --work 7ms --variation 0", Constant(7*sim.Millisecond)),
		service("exponential", "requests that know nothing of how long they have taken", "queueing theory's usual case", "fct --work 7ms --variation 1", Gamma{7 * sim.Millisecond, 1}),
		service("gaussian", "a normal distribution: 4 ms ± 1.4 ms", cheetah+"figure 8", "fct: either kind of bimodal", Gaussian{4 * sim.Millisecond, halfVariance(4 * sim.Millisecond)}),
		service("bimodal", "4 ms, one in ten 500 ms, each normally distributed", cheetah+"figure 8", "fct, figure 8", Figure8),
		{Name: "updates", Kind: "updates", About: "1.5 to 80 changes of the pool a minute, half removals, half additions: a Poisson process, or evenly",
			Source: cheetah + "section 2.1, after SilkRoad (SIGCOMM'17)", Use: "dip-updates, small-cookies, balancer-churn"},
		{Name: "sinusoid", Kind: "rate", About: "60 % of the peak for 20 s, up to the peak at 35 s and down again until 50 s",
			Source: cheetah + "figure 9", Use: "scaling, lab run scaling"},
		{Name: "syn-flood", Kind: "attack", About: "SYNs from addresses that never come again, evenly, each an entry where first packets make entries",
			Source: "Beamer (NSDI'18), evaluation: 1,000,000 a second", Use: "balancer-churn"},
		{Name: "zipf", Kind: "flow sizes", About: "packets of 1.6 M flows, the n-th largest in proportion to 1/n",
			Source: "JET (CoNEXT'21), its slides' trace benchmark", Use: "jet-trace"},
		{Name: "flow file", Kind: "record", About: "your own connections, CSV: " + strings.Join(columnNames(all), ","), Use: "--flows, --lifetimes, fairlead sim workloads FILE"},
		{Name: "pcap", Kind: "record", About: "your own connections, a capture", Use: "--flows, --lifetimes, jet-trace --pcap, fairlead sim workloads FILE"},
	}
}

// shares of the quantiles that are shown.
var shares = []float64{.1, .25, .5, .75, .9, .99, 1}

// entry describes a distribution.
func (d *Distribution) entry(kind, use string) Entry {
	e := Entry{Name: d.Name, Kind: kind, About: d.About, Source: d.Source, Use: use, Unit: "ns", Mean: d.Mean()}
	if d.Sizes {
		e.Unit = "bytes"
	}
	for _, p := range shares {
		e.Quantiles = append(e.Quantiles, Quantile{p, int64(d.Quantile(p))})
	}
	for i := range d.Len() {
		value, share := d.Step(i)
		e.Steps = append(e.Steps, Step{int64(value), share})
	}
	return e
}

// service describes a service time, with the quantiles of many draws.
func service(name, about, source, use string, s Service) Entry {
	e := Entry{Name: name, Kind: "service times", About: about, Source: source, Use: use, Unit: "ns", Mean: s.Mean()}
	r := rand.New(rand.NewPCG(1, 1))
	draws := make([]int64, 20_000)
	for i := range draws {
		draws[i] = int64(s.Draw(r))
	}
	slices.Sort(draws)
	for _, p := range shares[:len(shares)-1] { // the most has no meaning
		e.Quantiles = append(e.Quantiles, Quantile{p, draws[int(p*float64(len(draws)))]})
	}
	return e
}

// Describe finds a workload by its name, or describes a user's file: a
// distribution, a flow file or a capture.
func Describe(nameOrFile string) (*Entry, error) {
	var names []string
	for _, e := range List() {
		if e.Name == nameOrFile {
			return &e, nil
		}
		names = append(names, e.Name)
	}
	f, err := os.Open(nameOrFile)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("workload %q: neither one of %s nor a file", nameOrFile, strings.Join(names, ", "))
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	if captured(r) || formOf(r) == flowForm {
		record, err := readRecord(r, nameOrFile)
		if err != nil {
			return nil, err
		}
		return record.entry(), nil
	}
	d, err := Parse(r, nameOrFile)
	if err != nil {
		return nil, err
	}
	kind := "durations"
	if d.Sizes {
		kind = "sizes"
	}
	e := d.entry(kind, "--lifetimes "+nameOrFile)
	return &e, nil
}

func (r *Record) entry() *Entry {
	e := &Entry{Name: r.Name, Kind: "record"}
	if d := r.Lifetimes(); d != nil {
		*e = d.entry("record", "")
		e.Steps = nil // as many as connections
	}
	e.Record = &RecordSummary{len(r.Flows), int64(r.Span()), r.Active(), r.Skipped}
	return e
}
