package imbalance

// levels holds each server's open connections, and the servers in the order of
// these: one that gains or loses a connection moves past the equal ones at
// once, so that the most and the least loaded are always known.
type levels struct {
	open  []int32
	order []uint16 // servers by open, ascending
	place []int32  // of each server in order
	// first[n] is the place of the first server with n connections or more.
	first []int32
}

func newLevels(servers int) *levels {
	l := &levels{open: make([]int32, servers), order: make([]uint16, servers), place: make([]int32, servers), first: []int32{0, int32(servers)}}
	for s := range servers {
		l.order[s], l.place[s] = uint16(s), int32(s)
	}
	return l
}

// opened counts a connection of server s.
func (l *levels) opened(s uint16) {
	n := l.open[s] + 1
	l.open[s] = n
	if int(n)+1 == len(l.first) {
		l.first = append(l.first, int32(len(l.order)))
	}
	l.first[n]--
	l.move(s, l.first[n])
}

// closed counts off a connection of server s, which has one.
func (l *levels) closed(s uint16) {
	n := l.open[s]
	l.open[s] = n - 1
	l.move(s, l.first[n])
	l.first[n]++
}

// move swaps server s with the one at a place.
func (l *levels) move(s uint16, to int32) {
	from, other := l.place[s], l.order[to]
	l.order[from], l.order[to] = other, s
	l.place[other], l.place[s] = from, to
}

// most is the number of connections of the most loaded server.
func (l *levels) most() int32 { return l.open[l.order[len(l.order)-1]] }

// idlest are the servers with the fewest connections.
func (l *levels) idlest() []uint16 { return l.order[:l.first[l.open[l.order[0]]+1]] }
