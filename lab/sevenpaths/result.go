package sevenpaths

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/fairlead/fairlead/lab/experiment"
)

// Result is what came out.
type Result struct {
	experiment.Head
	Rate    int64      `json:"rate_bits"` // of a link
	OneLink []Baseline `json:"one_link"`
	Runs    []Point    `json:"runs"`
	// ExpectedAllAtRandom is the probability that seven subflows at random
	// use all seven links.
	ExpectedAllAtRandom float64 `json:"expected_all_at_random"`
}

// Baseline is what TCP gets over one link of a testbed.
type Baseline struct {
	Testbed string  `json:"testbed"`
	Goodput float64 `json:"goodput_bits"`
}

// Point is some connections with the same number of subflows.
type Point struct {
	Testbed  string `json:"testbed"` // seven-links or two-links
	Ports    string `json:"ports"`   // chosen or random
	Subflows int    `json:"subflows"`
	Links    int    `json:"links"` // that are counted
	// AllUsed is the number of connections that used all links.
	AllUsed int `json:"all_used"`
	// Ratio is the median goodput in units of TCP's over one link.
	Ratio       float64  `json:"ratio"`
	Least       float64  `json:"least_ratio"`
	MeanUsed    float64  `json:"mean_used"` // links
	Connections []OneRun `json:"connections"`
}

// OneRun is one connection.
type OneRun struct {
	Goodput float64   `json:"goodput_bits"`
	Ratio   float64   `json:"ratio"`
	Used    int       `json:"used"`   // links that carried a subflow
	Shares  []float64 `json:"shares"` // of each link's rate
}

// sum fills in what follows from the runs.
func (p *Point) sum() {
	var ratios []float64
	p.Least = math.Inf(1)
	for _, r := range p.Connections {
		ratios = append(ratios, r.Ratio)
		p.Least = min(p.Least, r.Ratio)
		p.MeanUsed += float64(r.Used) / float64(len(p.Connections))
		if r.Used == p.Links {
			p.AllUsed++
		}
	}
	p.Ratio = median(ratios)
}

func (p *Point) line() string {
	return fmt.Sprintf("%s, %s ports, %d subflows: %.2f × one link (least %.2f), %.1f of %d links used, all in %d of %d runs",
		p.Testbed, p.Ports, p.Subflows, p.Ratio, p.Least, p.MeanUsed, p.Links, p.AllUsed, len(p.Connections))
}

// judge holds the figures against what the issue asks for. What random ports
// get is there to compare with, and not judged.
func (r *Result) judge() {
	fail := func(format string, args ...any) { r.Verdict = append(r.Verdict, fmt.Sprintf(format, args...)) }
	for i := range r.Runs {
		p := &r.Runs[i]
		if p.Ports != "chosen" || p.Subflows != p.Links {
			continue
		}
		if p.AllUsed < len(p.Connections) {
			fail("%s: all %d links carried a subflow in %d of %d runs, want all", p.Testbed, p.Links, p.AllUsed, len(p.Connections))
		}
		least := leastOfSeven
		if p.Testbed == nameOfTwo {
			least = leastOfTwo
		}
		if !(p.Ratio >= least) {
			fail("%s: goodput %.2f × one link with %d subflows, want %.1f", p.Testbed, p.Ratio, p.Subflows, least)
		}
	}
}

// PrintResult prints it for people.
func (r *Result) PrintResult(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "TESTBED\tPORTS\tSUBFLOWS\tRUNS\tMEDIAN × ONE LINK\tLEAST\tLINKS USED\tALL USED\t")
	for _, p := range r.Runs {
		all := "-" // fewer subflows than links
		if p.Subflows >= p.Links {
			all = fmt.Sprintf("%d of %d", p.AllUsed, len(p.Connections))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.2f\t%.2f\t%.1f of %d\t%s\t\n", p.Testbed, p.Ports, p.Subflows, len(p.Connections), p.Ratio, p.Least, p.MeanUsed, p.Links, all)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, b := range r.OneLink {
		fmt.Fprintf(w, "%s: TCP gets %.2f Mbit/s over one link of %g Mbit/s\n", b.Testbed, b.Goodput/1e6, float64(r.Rate)/1e6)
	}
	verdict := "all is as it must be"
	if len(r.Verdict) > 0 {
		verdict = "not as it must be: " + strings.Join(r.Verdict, "; ")
	}
	_, err := fmt.Fprintf(w, "at random, seven subflows use all seven links in %.2f %% of runs\nseed %d, kernel %s, %.0f s\n%s\n", 100*r.ExpectedAllAtRandom, r.Seed, r.Kernel, r.Seconds, verdict)
	return err
}
