package policy

import "slices"

// Latencies is what a server answers probes from: the latencies of its recent
// requests, by how many others were in flight when they came (NSDI'24, §4).
// Times are in ns.
type Latencies struct {
	by [latencyTags]struct {
		last  [latencySamples]latency
		count int
	}
}

type latency struct{ at, took int64 }

// Ours: requests that met more than latencyTags-1 others count as if they had
// met that many; the median is over the last latencySamples that are no older
// than latencyAge. Without an age, a server that was slow once would never be
// asked again, and so never be known to be fast.
const (
	latencyTags    = 64
	latencySamples = 8
	latencyAge     = 1e9
)

// Finished takes in a request that met so many others in flight, ended now
// and took so long.
func (l *Latencies) Finished(now int64, met int, took int64) {
	b := &l.by[min(met, latencyTags-1)]
	b.last[b.count%latencySamples] = latency{now, took}
	b.count++
}

// Estimate is the median latency of recent requests that met as many others as
// are in flight now, or the number nearest to that of which there are any (the
// lower of two); 0: there are none.
func (l *Latencies) Estimate(now int64, inFlight int) int64 {
	tag := min(inFlight, latencyTags-1)
	for off := range latencyTags {
		for _, near := range [2]int{tag - off, tag + off} {
			if near >= 0 && near < latencyTags && l.by[near].count > 0 {
				if m, ok := l.median(now, near); ok {
					return m
				}
			}
		}
	}
	return 0
}

func (l *Latencies) median(now int64, tag int) (m int64, ok bool) {
	b := &l.by[tag]
	var recent [latencySamples]int64
	n := 0
	for _, x := range b.last[:min(b.count, latencySamples)] {
		if now-x.at <= latencyAge {
			recent[n] = x.took
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	slices.Sort(recent[:n])
	return recent[(n-1)/2], true
}
