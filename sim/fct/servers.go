package fct

import "github.com/fairlead/fairlead/sim"

// none is no request.
const none = -1

// never is later than all runs' ends.
const never = sim.Time(1) << 62

// servers are queues: each does one request at a time, first come, first
// served. Two may share a core as hyper-threads do (siblings): then each is
// slower while the other works.
type servers struct {
	each []server
	// slowed is a server's speed while its sibling works, too; 1: they do not
	// share.
	slowed float64
	soonest
	next []int32 // by request: the one behind it in its queue
}

type server struct {
	head, tail int32 // requests: the one being done, the last one waiting
	open       int32 // requests here
	sibling    int32 // none: it has its core for itself
	left       sim.Time
	since      sim.Time // when left was right
	speed      float64
	busy       sim.Time // worked up to since
}

// newServers: pairs as many as more than cores there are have to share one,
// the last with the first ones.
func newServers(n, cores int, slowed float64, total int) *servers {
	s := &servers{each: make([]server, n), slowed: slowed, soonest: newSoonest(n), next: make([]int32, total)}
	for i := range s.each {
		s.each[i] = server{head: none, tail: none, sibling: none, speed: 1}
	}
	if slowed != 1 {
		for i := cores; i < min(n, 2*cores); i++ {
			s.each[i].sibling, s.each[i-cores].sibling = int32(i-cores), int32(i)
		}
	}
	return s
}

// add puts a request into a server's queue.
func (s *servers) add(now sim.Time, i int, request int32, work []sim.Time) {
	x := &s.each[i]
	x.open++
	s.next[request] = none
	if x.head != none {
		s.next[x.tail] = request
		x.tail = request
		return
	}
	x.head, x.tail = request, request
	x.since = now
	x.left = work[request]
	s.pace(now, i)
	if x.sibling != none {
		s.pace(now, int(x.sibling))
	}
}

// finish ends the request that a server works at, and begins the next one's.
func (s *servers) finish(now sim.Time, i int, work []sim.Time) (request int32) {
	x := &s.each[i]
	request = x.head
	x.open--
	x.head = s.next[request]
	x.busy += now - x.since
	x.since = now
	if x.head != none {
		x.left = work[x.head]
		s.pace(now, i)
		return request
	}
	x.left = 0
	s.set(i, never)
	if x.sibling != none {
		s.pace(now, int(x.sibling))
	}
	return request
}

// pace says when a server that works will have finished, now that it or its
// sibling has begun or ended.
func (s *servers) pace(now sim.Time, i int) {
	x := &s.each[i]
	if x.head == none {
		return
	}
	if passed := now - x.since; passed > 0 {
		x.busy += passed
		x.left = max(0, x.left-sim.Time(float64(passed)*x.speed))
		x.since = now
	}
	x.speed = 1
	if x.sibling != none && s.each[x.sibling].head != none {
		x.speed = s.slowed
		s.set(i, now+sim.Time(float64(x.left)/x.speed))
		return
	}
	s.set(i, now+x.left)
}

// busyUntil is how long a server has worked up to now.
func (s *servers) busyUntil(now sim.Time, i int) sim.Time {
	x := &s.each[i]
	if x.head == none {
		return x.busy
	}
	return x.busy + now - x.since
}

// soonest finds the earliest of n times of which one changes at a time: a tree
// whose leaves are the times and whose nodes are the earlier of two, the lower
// number where they are equal. O(log n) a change.
type soonest struct {
	times []sim.Time
	tree  []int32 // tree[1] is the root; leaves begin at len/2
}

func newSoonest(n int) soonest {
	width := 1
	for width < n {
		width *= 2
	}
	t := soonest{make([]sim.Time, width), make([]int32, 2*width)}
	for i := range width {
		t.times[i] = never
		t.tree[width+i] = int32(i)
	}
	for i := width - 1; i > 0; i-- {
		t.tree[i] = t.tree[2*i]
	}
	return t
}

func (t *soonest) set(i int, at sim.Time) {
	t.times[i] = at
	for node := (len(t.times) + i) / 2; node > 0; node /= 2 {
		a, b := t.tree[2*node], t.tree[2*node+1]
		if t.times[b] < t.times[a] {
			a = b
		}
		t.tree[node] = a
	}
}

// first is the earliest time and whose it is.
func (t *soonest) first() (at sim.Time, i int) {
	i = int(t.tree[1])
	return t.times[i], i
}
