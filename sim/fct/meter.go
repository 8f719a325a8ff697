package fct

import "github.com/fairlead/fairlead/sim"

// meter measures how busy servers are over windows of time.
type meter struct {
	window, next     sim.Time
	busy             []sim.Time // at the last window's end
	variances, means float64
	windows          int
}

func newMeter(set setting) meter {
	return meter{window: set.window, next: set.window, busy: make([]sim.Time, set.servers)}
}

// take ends a window: the variance of the servers' shares over all of them. What
// is left at a run's end, shorter than a window, does not count.
func (m *meter) take(s *servers) {
	sum, squares, n := 0.0, 0.0, float64(len(m.busy))
	for i, before := range m.busy {
		m.busy[i] = s.busyUntil(m.next, i)
		share := 100 * float64(m.busy[i]-before) / float64(m.window)
		sum += share
		squares += share * share
	}
	m.variances += squares/n - sum/n*sum/n
	m.means += sum / n
	m.windows++
	m.next += m.window
}

func (m *meter) variance() float64 { return m.variances / float64(max(m.windows, 1)) }
func (m *meter) mean() float64     { return m.means / float64(max(m.windows, 1)) }
