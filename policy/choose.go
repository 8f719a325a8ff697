package policy

import "github.com/fairlead/fairlead/hash"

// State is what a policy remembers of one VIP on one CPU (fl_vip_cpu).
type State struct {
	// Next is rr's and wrr's next entry.
	Next uint32
	// Candidate is least-conn's best entry seen so far.
	Candidate uint32
	// Random is the generator's next number; 0: not yet seeded.
	Random uint64
	// Seed gives the generator's first state (the data plane takes the
	// kernel's random numbers); nil: it starts at 0.
	Seed func() uint64
}

// Choose picks the table's entry for a new connection, exactly as
// fl_policy_choose does. open is the number of open connections of a slot at
// this balancer. false: the table is empty (policy hash has none: the VIP's
// consistent hash chooses).
//
//	rr, wrr,    the next entry; each CPU walks the table for itself
//	awrr
//	p2c         two at random, the less loaded
//	least-conn  the best seen so far and two at random, the least loaded
//
// Load is (open + 1) / weight: with open / weight alone, idle servers of all
// weights would be equal. Constant time, whatever the number of servers.
func Choose(policy string, table []uint32, s *State, open func(slot uint16) int32) (entry uint32, ok bool) {
	size := len(table)
	if size == 0 {
		return 0, false
	}
	switch policy {
	case P2C:
		r := s.random()
		entry = table[hash.Scale(uint32(r>>32), size)]
		if probe := table[hash.Scale(uint32(r), size)]; busier(entry, probe, open) {
			entry = probe
		}
	case LeastConn:
		r := s.random()
		if s.Candidate >= uint32(size) { // the table has become smaller
			s.Candidate = 0
		}
		for _, at := range []int{hash.Scale(uint32(r>>32), size), hash.Scale(uint32(r), size)} {
			if busier(table[s.Candidate], table[at], open) {
				s.Candidate = uint32(at)
			}
		}
		entry = table[s.Candidate]
	default:
		if s.Next >= uint32(size) {
			s.Next = 0
		}
		entry = table[s.Next]
		s.Next++
	}
	return entry, true
}

// busier tells whether entry a's server has more open connections per weight
// than b's.
func busier(a, b uint32, open func(slot uint16) int32) bool {
	load := func(e uint32) uint64 { return uint64(max(open(EntrySlot(e)), 0)) + 1 }
	return load(a)*uint64(EntryWeight(b)) > load(b)*uint64(EntryWeight(a))
}

// random gives the number that the call before made ready, and makes the next
// one by two multiplies (fl_random).
func (s *State) random() uint64 {
	random := s.Random
	if random == 0 && s.Seed != nil {
		random = s.Seed()
	}
	const m = 0xd6e8feb86659fd93
	x := random + 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * m
	s.Random = (x ^ x>>32) * m
	return random
}
