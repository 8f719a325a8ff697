package chash

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// tableHRW is table-HRW (Mendelson et al., "Load balancing with JET", CoNEXT
// 2021, §4.2): a fixed number of rows, each of which belongs to the server
// that wins a weighted rendezvous for it (HRW: Thaler and Ravishankar, "Using
// name-based mappings to increase hit rates", IEEE/ACM ToN 1998; weights by
// Schindelhauer and Schomaker's logarithmic method, SPAA 2005), and a track
// bit a row.
//
// Racing all servers for all rows takes rows × servers hashes. Here each
// server runs through the rows in an order of its own, a permutation drawn by
// its name, and passes its k-th row at the time -ln(1-(k+½)/rows) / weight; a
// row belongs to whoever passes it first. Building lets all run until almost
// every row has been passed, which takes rows × ln(servers) steps, and asks
// about the few rows left by inverting the permutations. The result is that
// of racing everybody everywhere.
//
//	cost        look up: 1 read. Build: about 3 ms for 1,000 servers and
//	            65,536 rows. One change: about rows inversions, 0.5 ms
//	memory      24 bytes a row (two races, packed rows, rows touched) and 100
//	            a server; compiled 4 bytes a row
//	balance     share = weight's share ± 1/√(its rows), one standard deviation
//	disruption  the least there can be: a change moves only rows that the
//	            changed server wins or loses
//	order       of servers and of changes does not matter
type tableHRW struct {
	verbs
	runners []runner // by Node
	races   [inHorizon + 1]race
	entries []uint32 // Node (31 bits, all set: none) | track<<31
	touched []uint32 // rows whose owner may have changed
}

var _ = register(KindTableHRW, implementation{new: newTableHRW, compile: compileTableHRW})

func newTableHRW(o Options, servers []Server) (Hash, error) {
	rows := o.Rows
	rows = cmp.Or(rows, Rows(len(servers)+o.Horizon))
	rowBits, err := rowBitsOf(rows)
	if err != nil {
		return nil, err
	}
	if len(servers) > maxRunners {
		return nil, fmt.Errorf("%w: %d servers, %s takes at most %d", ErrCapacity, len(servers), KindTableHRW, maxRunners)
	}
	h := &tableHRW{verbs: newVerbs(KindTableHRW, servers), entries: make([]uint32, rows), touched: make([]uint32, 0, rows)}
	h.keeper = h
	h.runners = make([]runner, len(servers))
	for i, s := range servers {
		h.runners[i] = newRunner(s.Name, s.Weight, rowBits)
	}
	for _, set := range []place{inWorking, inHorizon} {
		h.races[set] = newRace(rowBits)
	}
	h.races[inWorking].in = upTo(len(servers))
	h.races[inWorking].run(h.runners, h.touchAll())
	h.pack()
	return h, nil
}

func upTo(n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = int32(i)
	}
	return s
}

func rowBitsOf(rows int) (int, error) {
	if rows < 2 || rows > MaxTableRows || rows&(rows-1) != 0 {
		return 0, fmt.Errorf("%w: %d, %s wants a power of two, 2 to %d; chash.Rows recommends one", ErrRows, rows, KindTableHRW, MaxTableRows)
	}
	return bits.TrailingZeros(uint(rows)), nil
}

// Lookup implements Hash.
func (h *tableHRW) Lookup(key uint64) Node {
	// The shift to and fro drops the track bit and makes 31 ones NoNode.
	return Node(int32(h.entries[scale(key>>32, uint64(len(h.entries)))]<<1) >> 1)
}

// Track implements Hash.
func (h *tableHRW) Track(key uint64) (n Node, track bool) {
	e := h.entries[scale(key>>32, uint64(len(h.entries)))]
	return Node(int32(e<<1) >> 1), e>>31 != 0
}

// apply carries out a change of one server, for verbs.
func (h *tableHRW) apply(c change) error {
	n := int32(c.node)
	if n >= maxRunners {
		return fmt.Errorf("%w: server %q would be one of more than %d, the most %s takes", ErrCapacity, h.Name(c.node), maxRunners, KindTableHRW)
	}
	if c.from != nowhere {
		h.touched = h.races[c.from].leave(h.runners, n, h.touched[:0])
		h.pack()
	}
	if c.to == nowhere {
		return nil
	}
	r := &h.races[c.to]
	for int(n) >= len(h.runners) {
		h.runners = append(h.runners, runner{})
	}
	h.runners[n] = newRunner(h.servers[n].name, c.weight, r.rowBits)
	h.touched = r.enter(h.runners, []int32{n}, h.touched[:0])
	h.pack()
	return nil
}

func (h *tableHRW) touchAll() []uint32 {
	h.touched = h.touched[:0]
	for row := range h.entries {
		h.touched = append(h.touched, uint32(row))
	}
	return h.touched
}

// pack renews the touched rows' entries.
func (h *tableHRW) pack() {
	w, hz := &h.races[inWorking], &h.races[inHorizon]
	for _, row := range h.touched {
		e := uint32(owner(w.best[row])) & math.MaxInt32
		if b := hz.best[row]; b != nobody && sooner(h.runners, row, b, w.best[row]) {
			e |= 1 << 31
		}
		h.entries[row] = e
	}
}

// compileTableHRW races the three sets. Members that weigh the same in all
// three, which is nearly all of them, run once.
func compileTableHRW(s Spec, members []Member) (*Table, error) {
	rowBits, err := rowBitsOf(s.Rows)
	if err != nil {
		return nil, err
	}
	// Who is in no set does not run.
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return max(m.New, m.Held, m.Horizon) == 0 })
	runners := make([]runner, len(members))
	var weight [3][]int
	var total [3]uint64 // of a set's weights
	for i := range weight {
		weight[i] = weightsOf(members, i)
	}
	var steady []int32 // alike in all sets
	steadyTotal := uint64(0)
	for i, m := range members {
		runners[i] = newRunner(m.Name, weight[2][i], rowBits)
		if m.New == m.Held && m.Held >= m.Horizon {
			steady = append(steady, int32(i))
			steadyTotal += uint64(weight[2][i])
		}
		for set := range total {
			total[set] += uint64(weight[set][i])
		}
	}
	rows := allRows(s.Rows)
	// They run for all sets if that is not much longer than each set alone
	// would take.
	shared := 2*steadyTotal >= max(total[0], total[1], total[2])
	common := newRace(rowBits)
	if shared {
		common.in = steady
		common.run(runners, rows)
		if len(steady) == len(members) {
			o := common.owners()
			return joinSets(members, o, o, o), nil
		}
	}
	var owners [3][]int32
	for set := range owners {
		var in []int32 // of this set, besides those of common
		for i := range members {
			if w := weight[set][i]; w > 0 {
				runners[i].weigh(w)
				if !shared || weight[0][i] != weight[1][i] || weight[0][i] != weight[2][i] {
					in = append(in, int32(i))
				}
			}
		}
		r := common.clone()
		if shared {
			r.enter(runners, in, nil)
		} else {
			r.in = in
			r.run(runners, rows)
		}
		owners[set] = r.owners()
	}
	return joinSets(members, owners[0], owners[1], owners[2]), nil
}

func allRows(n int) []uint32 {
	rows := make([]uint32, n)
	for i := range rows {
		rows[i] = uint32(i)
	}
	return rows
}
