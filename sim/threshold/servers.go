package threshold

import (
	"math"
	"slices"
)

// servers are the connections that each server has, and which servers take
// new ones: Cheetah's extension of Beamer (§2.1). A server whose connections
// exceed (1 + threshold) × the mean is taken out; it returns when they drop
// below the mean.
type servers struct {
	threshold float64 // infinite: nobody is taken out
	conns     []int32
	total     int
	out       []bool
	active    int

	// Of the imbalance, max/mean - 1 in percent, sampled at looks.
	sum, most float64
	samples   int
}

func newServers(n int, threshold float64) *servers {
	return &servers{threshold: threshold, conns: make([]int32, n), out: make([]bool, n), active: n}
}

func (s *servers) mean() float64 { return float64(s.total) / float64(len(s.conns)) }

func (s *servers) open(server uint16) {
	s.conns[server]++
	s.total++
}

func (s *servers) close(server uint16) {
	s.conns[server]--
	s.total--
}

// judge says whether a server leaves or returns by now, and notes it. One that
// is the last stays.
func (s *servers) judge(server uint16) (changed bool) {
	switch n := float64(s.conns[server]); {
	case s.out[server] && n < s.mean():
		s.out[server] = false
		s.active++
	case !s.out[server] && n > (1+s.threshold)*s.mean() && s.active > 1:
		s.out[server] = true
		s.active--
	default:
		return false
	}
	return true
}

// sample notes the imbalance.
func (s *servers) sample() {
	if s.total == 0 {
		return
	}
	percent := 100 * (float64(slices.Max(s.conns))/s.mean() - 1)
	s.sum += percent
	s.most = max(s.most, percent)
	s.samples++
}

// imbalance is the mean of the samples in percent.
func (s *servers) imbalance() float64 { return s.sum / math.Max(1, float64(s.samples)) }

// judgeAll is judge for all servers in their order: who left or returned.
func (s *servers) judgeAll() (changed []uint16) {
	for n := range s.conns {
		if s.judge(uint16(n)) {
			changed = append(changed, uint16(n))
		}
	}
	return changed
}
