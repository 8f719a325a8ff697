package threshold

import (
	"slices"

	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/sim"
)

// The schemes whose packets go by one table: what breaks under each is counted
// side by side, since none of them has a bearing on who is out.
const (
	beamer1 = iota
	beamer3
	cookie
	schemes
)

// none ends a list.
const none = -1

// bucketed is a balancer with a table of buckets and the extension: buckets of
// servers that are out are others'. Packets of connections that were there
// come back by the chains (Beamer), or by the cookie that they carry.
type bucketed struct {
	*servers
	table   *table
	cookies *cookies
	// every is how often all servers are judged; 0: at each start and end
	// that one, and all at each look (a mean that rose may have one return).
	every sim.Time
	// gone: a connection that breaks under beamer-1 ends. Otherwise its server
	// keeps it until its time is over, so that all schemes have one load.
	gone bool

	first  []uint16 // by connection
	key    []uint64
	broken []uint8 // a bit a scheme
	// Live connections of each bucket are a list.
	head       []int32
	next, prev []int32
	bucket     []int32

	counts
}

// counts of a run.
type counts struct {
	// Broken connections by scheme; Lookups of live ones whose bucket had
	// moved; Moves of buckets; Outs of servers.
	Broken               [schemes]int64
	Lookups, Moves, Outs int64
}

func newBucketed(conns int, s *servers, t *table, k *cookies, every sim.Time) *bucketed {
	b := &bucketed{
		servers: s, table: t, cookies: k, every: every, first: make([]uint16, conns), key: make([]uint64, conns), broken: make([]uint8, conns),
		head: make([]int32, len(t.current)), next: make([]int32, conns), prev: make([]int32, conns), bucket: make([]int32, conns),
	}
	for i := range b.head {
		b.head[i] = none
	}
	return b
}

func (s *bucketed) begin(id int32, key uint64, now sim.Time) {
	b := int32(beamer.Bucket(key, len(s.table.current)))
	s.first[id], s.bucket[id], s.key[id] = s.table.current[b], b, key
	s.link(id)
	s.cookies.give(id, key, s.first[id])
	s.open(s.first[id])
	s.judgeNow(s.first[id], now)
}

func (s *bucketed) finish(id int32, now sim.Time) {
	if s.over(id) {
		return
	}
	s.unlink(id)
	s.close(s.first[id])
	s.judgeNow(s.first[id], now)
}

// over: the connection ended early.
func (s *bucketed) over(id int32) bool { return s.gone && s.broken[id]>>beamer1&1 != 0 }

func (s *bucketed) judgeNow(server uint16, now sim.Time) {
	if s.every == 0 && now >= 0 && s.judge(server) {
		s.change([]uint16{server}, now)
	}
}

func (s *bucketed) look(now sim.Time) {
	s.sample()
	if s.every == 0 || now%s.every == 0 {
		if changed := s.judgeAll(); len(changed) > 0 {
			s.change(changed, now)
		}
	}
}

// change moves buckets of servers that left or returned; the next packets of
// the buckets' connections go by the new table.
func (s *bucketed) change(changed []uint16, now sim.Time) {
	for _, n := range changed {
		if s.out[n] {
			s.Outs++
		}
	}
	for _, b := range s.table.change(changed, s.out, now) {
		s.Moves++
		for id := s.head[b]; id != none; {
			after := s.next[id]
			s.Lookups++
			if s.judgePacket(id, b); s.over(id) {
				s.unlink(id)
				s.close(s.first[id])
			}
			id = after
		}
	}
}

// judgePacket sends a packet of the connection, of bucket b, under each scheme:
// it has to come to the server that has the connection.
func (s *bucketed) judgePacket(id, b int32) {
	first, chain := s.first[id], &s.table.previous[b]
	current := s.table.current[b] == first
	for scheme, reaches := range [schemes]bool{
		beamer1: current || chain[0] == first,
		beamer3: current || slices.Contains(chain[:], first),
		cookie:  s.cookies.read(id, s.key[id]) == first,
	} {
		if !reaches && s.broken[id]>>scheme&1 == 0 {
			s.broken[id] |= 1 << scheme
			s.Broken[scheme]++
		}
	}
}

func (s *bucketed) link(id int32) {
	h := &s.head[s.bucket[id]]
	s.prev[id], s.next[id] = none, *h
	if *h != none {
		s.prev[*h] = id
	}
	*h = id
}

func (s *bucketed) unlink(id int32) {
	p, n := s.prev[id], s.next[id]
	if p == none {
		s.head[s.bucket[id]] = n
	} else {
		s.next[p] = n
	}
	if n != none {
		s.prev[n] = p
	}
}
