package chash

import "slices"

var _ = register(KindMaglev, implementation{
	new:    func(o Options, servers []Server) (Hash, error) { return newMaglev(o, servers) },
	owners: maglevOwners,
})

// defaultMaglevRows is the paper's small table: a prime.
const defaultMaglevRows = 65537

// maglev is Maglev's table (Eisenbud et al.: Maglev: A Fast and Reliable
// Software Network Load Balancer, NSDI 2016, §3.4): servers take turns, each
// takes the first free row of its own permutation of the rows, until all are
// taken. A server of less weight has fewer turns.
//
//	cost        a look-up reads one row; a change builds the table anew, which
//	            tries about rows × ln(rows) rows: 2 ms for 65,537 and 1,000
//	            servers (8 ms for 10,000), twice that if the horizon is not empty
//	memory      2 bytes a row, whatever the number of servers
//	balance     the best of all: rows differ by one between equal weights
//	disruption  not the least: adding or removing a server also moves keys
//	            between servers that stay, since turns shift. With 65,537 rows
//	            and 100 to 1,000 servers a change of one moves 0.6 to 1 % of
//	            all keys besides: as many as three to six of 500 servers have
//	            (TestMaglevMovesOthers measures it)
//
// Track compares with the whole horizon added, exactly. But that does not make
// JET safe with it: when only a part of the horizon is added keys move that
// were not to be tracked (one of 50 added to 500 servers: 0.2 % of all), and
// when a server fails so do those 1 %.
type maglev struct {
	verbs
	flat
	rows int
}

func newMaglev(o Options, servers []Server) (*maglev, error) {
	rows, err := flatRows(o.Rows, defaultMaglevRows)
	if err != nil {
		return nil, err
	}
	if err := checkFlat(KindMaglev, len(servers), rows); err != nil {
		return nil, err
	}
	m := &maglev{verbs: newVerbs(KindMaglev, servers), rows: rows}
	m.keeper = m
	m.build(NoNode)
	return m, nil
}

func (m *maglev) apply(c change) error {
	leaving := NoNode
	if c.to == nowhere {
		leaving = c.node
	} else if err := checkFlat(KindMaglev, len(m.byName), m.rows); err != nil {
		return err
	}
	m.build(leaving)
	return nil
}

// build makes both tables, without a server that leaves.
func (m *maglev) build(leaving Node) {
	var order []Node
	for n, s := range m.servers {
		if s.place != nowhere && Node(n) != leaving {
			order = append(order, Node(n))
		}
	}
	slices.SortFunc(order, func(a, b Node) int {
		if m.before(a, b) {
			return -1
		}
		return 1
	})
	table := func(horizon bool) []int32 {
		var turns []turn
		var who []int32
		for _, n := range order {
			if s := &m.servers[n]; s.place == inWorking || horizon {
				turns = append(turns, newTurn(m.hashes[n], s.weight, m.rows))
				who = append(who, int32(n))
			}
		}
		return populate(turns, who, m.rows)
	}
	owners := table(false)
	all := owners
	if m.count[inHorizon] > 0 {
		all = table(true)
	}
	m.flat = newFlat(owners, all)
}

// maglevOwners is Compile's: s.Rows rows, whether a prime or not.
func maglevOwners(s Spec, members []weighed) ([]int32, error) {
	if err := checkFlat(KindMaglev, len(members), s.Rows); err != nil {
		return nil, err
	}
	hashes, order := make([]uint64, len(members)), make([]int32, len(members))
	for i, m := range members {
		hashes[i], order[i] = nameHash(m.Name), int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		if before(hashes[a], members[a].Name, hashes[b], members[b].Name) {
			return -1
		}
		return 1
	})
	turns := make([]turn, len(members))
	for i, m := range order {
		turns[i] = newTurn(hashes[m], members[m].Weight, s.Rows)
	}
	return populate(turns, order, s.Rows), nil
}

// turn is a server's state while a table is filled.
type turn struct {
	next, skip uint32 // permutation[j] = offset + j·skip mod rows
	weight     uint32
	credit     uint32 // of the greatest weight, which makes a turn
}

func newTurn(nameHash uint64, weight, rows int) turn {
	// The paper's offset and skip, from two hashes of the name.
	n := uint64(rows)
	t := turn{next: uint32(scale(mix(nameHash+1)>>32, n)), skip: 1, weight: uint32(weight)}
	if rows > 2 {
		t.skip = uint32(1 + scale(mix(nameHash+2)>>32, n-1))
	}
	// In a table whose size is no prime not every skip reaches every row.
	for gcd(t.skip, uint32(rows)) != 1 {
		t.skip = t.skip%uint32(rows) + 1
	}
	return t
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// populate fills the rows: each server that has a turn takes the next free
// row of its permutation. It returns each row's owner out of who, -1 for all
// if there are no servers.
func populate(turns []turn, who []int32, rows int) []int32 {
	table := slices.Repeat([]int32{-1}, rows)
	greatest := uint32(0)
	for _, t := range turns {
		greatest = max(greatest, t.weight)
	}
	if len(turns) == 0 {
		return table
	}
	taken := make([]uint64, (rows+63)/64) // a bit a row: stays in the first-level cache
	n := uint32(rows)
	for left := rows; ; {
		for i := range turns {
			t := &turns[i]
			if t.credit += t.weight; t.credit < greatest {
				continue
			}
			t.credit -= greatest
			row := t.next
			for taken[row>>6]>>(row&63)&1 != 0 {
				if row += t.skip; row >= n {
					row -= n
				}
			}
			taken[row>>6] |= 1 << (row & 63)
			table[row] = who[i]
			t.next = row
			if left--; left == 0 {
				return table
			}
		}
	}
}
