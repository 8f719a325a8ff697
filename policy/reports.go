package policy

// LeastReported sends every new connection to the server whose last report
// was the lowest. Cheetah (NSDI'20, §4.1 and figure 8) shows why not to: all
// connections go to one server until its next report arrives. It is here to
// be compared with; the data plane does not have it.
const LeastReported = "least-reported"

// Reports remembers each server's last report, by index from 0.
type Reports struct {
	load []float64
	best int
}

// NewReports is for a number of servers that have not reported yet: load 0.
func NewReports(servers int) *Reports { return &Reports{load: make([]float64, servers)} }

// Report takes a server's new load in. Among equal servers the one chosen so
// far stays, so that nothing but reports moves the choice; else below(n), a
// random number from 0 to n-1, chooses. O(servers).
func (r *Reports) Report(server int, load float64, below func(n int) int) {
	r.load[server] = load
	least, equal, best := r.load[r.best], 1, r.best
	for i, l := range r.load {
		switch {
		case l < least:
			least, equal, best = l, 1, i
		case l == least && best != r.best:
			equal++
			if below(equal) == 0 {
				best = i
			}
		}
	}
	r.best = best
}

// Choose is the server with the lowest report.
func (r *Reports) Choose() int { return r.best }
