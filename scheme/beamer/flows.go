package beamer

// FlowFresh is for how many milliseconds a flow's entry is not written again.
const FlowFresh = 1000

// Flows is a server's table of flows of UDP: whose datagrams it took, and when
// it wrote the last one down (shared ms). The program's one forgets the flow
// that was not used for longest when it is full; this one is never full.
type Flows[K comparable] map[K]uint32

// Known: the flow was not silent for longer than chainTime ms. A time in the
// future is another processor's clock.
func (f Flows[K]) Known(k K, now, chainTime uint32) bool {
	last, ok := f[k]
	return ok && (int32(now-last) < 0 || now-last <= chainTime)
}

// Take notes that a datagram of the flow was taken.
func (f Flows[K]) Take(k K, now uint32) {
	if last, ok := f[k]; !ok || now-last >= FlowFresh {
		f[k] = now
	}
}
