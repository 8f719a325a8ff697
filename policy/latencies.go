package policy

import "slices"

// Latencies is what a server answers probes from: the latencies of its last
// requests, by how many others were in flight when they came (NSDI'24, §4).
type Latencies struct {
	by [latencyTags]struct {
		last  [latencySamples]int64
		count int
	}
}

// Ours: requests that met more than latencyTags-1 others count as if they had
// met that many; the median is over the last latencySamples.
const (
	latencyTags    = 64
	latencySamples = 8
)

// Finished takes in a request that met so many others in flight and took so
// many ns.
func (l *Latencies) Finished(met int, latency int64) {
	b := &l.by[min(met, latencyTags-1)]
	b.last[b.count%latencySamples] = latency
	b.count++
}

// Estimate is the median latency in ns of requests that met as many others as
// are in flight now, or the number nearest to that of which there are any (the
// lower of two); 0: none has finished yet.
func (l *Latencies) Estimate(inFlight int) int64 {
	now := min(inFlight, latencyTags-1)
	for off := range latencyTags {
		for _, tag := range [2]int{now - off, now + off} {
			if tag >= 0 && tag < latencyTags && l.by[tag].count > 0 {
				return l.median(tag)
			}
		}
	}
	return 0
}

func (l *Latencies) median(tag int) int64 {
	b := &l.by[tag]
	sorted := b.last
	n := min(b.count, latencySamples)
	slices.Sort(sorted[:n])
	return sorted[(n-1)/2]
}
