package proof

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
)

func (o *Options) result(f *found) *sim.Result {
	r := &sim.Result{
		Scenario: "proof",
		Source:   "Cheetah (NSDI'20), Theorem 1 and App. A",
		Machine:  sim.ThisMachine(),
		Seeds:    f.seeds,
		Parameters: []sim.Parameter{
			{Name: "servers", Value: fmt.Sprintf("2 to %d", o.Servers)},
			{Name: "cookie values", Value: "1 to one more than servers"},
			{Name: "identifiers", Value: fmt.Sprint(o.Identifiers)},
			{Name: "histories of an identifier", Value: fmt.Sprint(histories)},
		},
		Figures: []sim.Figure{survivors(f), best(f), own(f), o.sharedFigure(f), reachFigure(f)},
	}
	var assignments, encoders, cookies int64
	for _, row := range f.counts {
		for _, c := range row {
			assignments += c.Assignments()
			encoders += c.Encoders
		}
	}
	for _, row := range f.cookie {
		for _, c := range row {
			cookies += c.Cookies
		}
	}
	r.Samples = []sim.Sample{
		{What: "ways to give cookies", Count: encoders},
		{What: "assignments (ways to give and to read them)", Count: assignments},
		{What: "real cookies given and read", Count: cookies},
	}
	r.Checks = o.checks(f, r.Figures)
	return r
}

func survivors(f *found) sim.Figure {
	return sim.Figure{
		Name: "survivors", Title: "Assignments that keep the connection on its server through every change",
		X: sim.Axis{Label: "cookie values"}, Y: sim.Axis{Label: "surviving assignments", Log: true},
		Series: countSeries(f, func(c Count) float64 { return float64(c.Survivors) }),
		Note:   "An assignment is a way to give cookies and a way to read them under the full set. None survives with fewer values than servers; with as many, k! do.",
	}
}

func best(f *found) sim.Figure {
	return sim.Figure{
		Name: "best", Title: "Servers whose connections survive under the best assignment",
		X: sim.Axis{Label: "cookie values"}, Y: sim.Axis{Label: "servers"},
		Series: countSeries(f, func(c Count) float64 { return float64(c.Best) }),
	}
}

// countSeries has a curve a pool.
func countSeries(f *found, y func(Count) float64) (all []sim.Series) {
	for _, row := range f.counts {
		s := sim.Series{Name: fmt.Sprintf("%d servers", row[0].Servers), By: sim.Ours}
		for _, c := range row {
			s.Points = append(s.Points, sim.Point{X: float64(c.Cookies), Y: sim.Value(y(c))})
		}
		all = append(all, s)
	}
	return all
}

func own(f *found) sim.Figure {
	fig := sim.Figure{
		Name: "memory", Title: "Cookie values needed with memory for each connection",
		X: sim.Axis{Label: "memory of a connection", Unit: "bits"}, Y: sim.Axis{Label: "cookie values needed"},
		Note: "At the right end is full connection tracking: the memory names the server, and one cookie value, that is no cookie, is enough.",
	}
	for i, row := range f.own {
		s := sim.Series{Name: fmt.Sprintf("%d servers", i+2), By: sim.Ours}
		for m, c := range row {
			s.Points = append(s.Points, sim.Point{X: float64(m), Y: sim.Value(float64(c))})
		}
		fig.Series = append(fig.Series, s)
	}
	return fig
}

func (o *Options) sharedFigure(f *found) sim.Figure {
	fig := sim.Figure{
		Name: "shared-memory", Title: "Memory needed beside a cookie that is too small, all connections together",
		X: sim.Axis{Label: "connections"}, Y: sim.Axis{Label: "memory needed", Unit: "bits", Decimals: 2},
		Note: "Memory that does not grow with the connections (O(1) in the theorem) is soon too little, unless there are as many cookie values as servers.",
	}
	for i, x := range o.shared() {
		s := sim.Series{Name: x.String(), By: sim.Ours}
		for r, states := range f.shared[i] {
			s.Points = append(s.Points, sim.Point{X: float64(r + 1), Y: sim.Value(math.Log2(float64(states)))})
		}
		fig.Series = append(fig.Series, s)
	}
	return fig
}

func (x sharedCase) String() string {
	if x.cookies == 1 {
		return fmt.Sprintf("%d servers, no cookie", x.servers)
	}
	return fmt.Sprintf("%d servers, %d values", x.servers, x.cookies)
}

func reachFigure(f *found) sim.Figure {
	fig := sim.Figure{
		Name: "policies", Title: "Cookie values needed in a pool that never changes",
		X: sim.Axis{Label: "servers"}, Y: sim.Axis{Label: "cookie values needed"},
		Note: "A hash needs none, one of two hashes needs one bit (App. B); a policy that looks at anything else may put a connection on any server, and needs a value for each.",
	}
	for p, name := range policies {
		s := sim.Series{Name: name, By: sim.Ours}
		for i, needed := range f.reach[p] {
			s.Points = append(s.Points, sim.Point{X: float64(i + 2), Y: sim.StatOf(needed, func(n int) float64 { return float64(n) })})
		}
		fig.Series = append(fig.Series, s)
	}
	return fig
}

func (o *Options) checks(f *found, figures []sim.Figure) (all []sim.Check) {
	const theorem = "at least log2 k bits"
	for i, s := range figures[0].Series {
		k := float64(i + 2)
		all = append(all, sim.NewCheck(fmt.Sprintf("cookie values of the first assignment that survives, k = %g", k), "", firstAbove(s, 0), k, k, theorem))
	}
	tooFew, permutations, sets, best := 0.0, 0.0, 0.0, 0.0
	for _, row := range f.counts {
		for _, c := range row {
			if c.Cookies < c.Servers {
				tooFew += float64(c.Survivors)
			}
			if c.Cookies == c.Servers {
				permutations = max(permutations, math.Abs(float64(c.Survivors)-math.Gamma(float64(c.Servers)+1)))
			}
			sets = max(sets, math.Abs(float64(c.FullSet-c.EverySet)))
			best = max(best, math.Abs(float64(c.Best-min(c.Cookies, c.Servers))))
		}
	}
	all = append(all,
		sim.NewCheck("assignments with fewer values than servers that survive", "", tooFew, 0, 0, "none"),
		sim.NewCheck("survivors with k values for k servers, difference from k!", "", permutations, 0, 0, ""),
		sim.NewCheck("ways to give cookies that survive the full set but not every other active set", "", sets, 0, 0, ""),
		sim.NewCheck("servers kept by the best assignment, difference from the number of values", "", best, 0, 0, ""))
	all = append(all, o.memoryChecks(f)...)
	for p, s := range figures[4].Series {
		last := s.Points[len(s.Points)-1]
		want, reported := last.X, theorem+" even without changes"
		switch policies[p] {
		case policy.Hash:
			want, reported = 1, ""
		case policy.HashBit:
			want, reported = 2, "a single bit"
		}
		all = append(all, sim.NewCheck(fmt.Sprintf("cookie values that %s needs, %g servers that never change", s.Name, last.X), "", last.Y.Mean, want, want, reported))
	}
	var wrong, shared float64
	for _, row := range f.cookie {
		for _, c := range row {
			wrong += float64(c.Wrong)
			shared += float64(c.Shared)
		}
	}
	what := fmt.Sprintf("real cookies (%d to %d bits, every slot, both epochs)", cheetah.MinBits, cheetah.MaxBits)
	return append(all,
		sim.NewCheck(what+" that lead to another slot", "", wrong, 0, 0, "0"),
		sim.NewCheck(what+" that two slots of one connection share", "", shared, 0, 0, "0"))
}

// memoryChecks: what memory a connection saves is its own bits at most, and
// shared memory grows with the connections.
func (o *Options) memoryChecks(f *found) []sim.Check {
	off, below, growth := 0.0, math.Inf(1), math.Inf(1)
	for i, row := range f.own {
		for m, c := range row {
			off = max(off, math.Abs(float64(c)-math.Ceil(float64(i+2)/float64(int(1)<<m))))
		}
	}
	for i, x := range o.shared() {
		for r, states := range f.shared[i] {
			below = min(below, math.Log2(float64(states))-float64(r+1)*math.Log2(float64(x.servers)/float64(x.cookies)))
			if r > 0 && x.cookies < x.servers {
				growth = min(growth, math.Log2(float64(states)/float64(f.shared[i][r-1])))
			}
		}
	}
	if below = math.Round(below*1e6) / 1e6; below == 0 {
		below = 0 // not minus nothing
	}
	return []sim.Check{
		sim.NewCheck("cookie values needed with m bits of memory a connection, difference from k / 2^m rounded up", "", off, 0, 0, ""),
		sim.NewCheck("shared memory above log2(k / values) bits a connection, least of all cases", "bits", below, 0, 1, ""),
		sim.NewCheck("shared memory for one more connection, least of all cases with fewer values than servers", "bits", growth, 0.01, sharedServers, "memory O(1) is not enough"),
	}
}

// firstAbove is where a curve first exceeds y; 0: nowhere.
func firstAbove(s sim.Series, y float64) float64 {
	for _, p := range s.Points {
		if p.Y.Mean > y {
			return p.X
		}
	}
	return 0
}
