package buckets

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
)

// predictor is how a delta says in few words what becomes of rows: those that
// move get one time, and push the server that they had onto their chain.
// Whatever is otherwise stands there in full.
type predictor struct {
	since uint32 // of all moves
	// kept: a chain that moved last before then has ended when its bucket
	// moves again.
	kept uint32
	// settled: so has one whose bucket does not move.
	settled uint32
}

func (p *predictor) moved(t *Table, b int, to uint16) Row {
	r := Row{Current: to, Previous: NoPrevious, Since: p.since}
	n := 0
	if cur := t.Current[b]; cur != None {
		r.Previous[0], n = cur, 1
	}
	if t.Since[b] < p.kept {
		return r
	}
	for _, s := range t.Previous[b] {
		if s != None && s != to && n < Chain {
			r.Previous[n] = s
			n++
		}
	}
	return r
}

func (p *predictor) stayed(t *Table, b int) Row {
	r := t.row(b)
	if r.Since < p.settled {
		r.Previous = NoPrevious
	}
	return r
}

func (t *Table) row(b int) Row { return Row{t.Current[b], t.Previous[b], t.Since[b]} }

func (t *Table) set(b int, r Row) {
	t.Current[b], t.Previous[b], t.Since[b] = r.Current, r.Previous, r.Since
}

// predict is the predictor that is right for the most rows of the way from old to
// new, if new was made by Apply.
func predict(old, new *Table) (p predictor) {
	p.kept = ^uint32(0)
	for b, cur := range new.Current {
		was, is := &old.Previous[b], &new.Previous[b]
		if cur != old.Current[b] {
			p.since = max(p.since, new.Since[b])
			if was[0] != None && is[1] != None {
				p.kept = min(p.kept, old.Since[b])
			}
		} else if was[0] != None && is[0] == None {
			p.settled = max(p.settled, old.Since[b]+1)
		}
	}
	return p
}

// Delta is what makes new of old: tables of one VIP, of which new has the
// newer generation. About two octets a move and a bit a bucket:
//
//	magic, buckets u32, old generation u32, new generation u32,
//	since u32, kept u32, settled u32 (see predictor),
//	moves: how many varint; a form octet: 0: each a gap varint, 1: one bit a
//	bucket, the lowest first; then their servers u16,
//	other rows: how many varint; each: gap varint, current u16, since u32,
//	chain length octet, servers u16
func Delta(old, new *Table) ([]byte, error) {
	if err := old.Follows(new); err != nil {
		return nil, err
	}
	if new.Generation == old.Generation {
		return nil, fmt.Errorf("buckets: generation %d: is the old one's, too; there is nothing to hand out", new.Generation)
	}
	n, p := old.Len(), predict(old, new)
	w := append([]byte(nil), deltaMagic...)
	for _, v := range []uint32{uint32(n), old.Generation, new.Generation, p.since, p.kept, p.settled} {
		w = binary.BigEndian.AppendUint32(w, v)
	}
	count := 0
	var gaps, other []byte
	others, last, lastOther := 0, -1, -1
	set, servers := make([]byte, (n+7)/8), []byte(nil)
	for b, cur := range new.Current {
		predicted := p.stayed
		if cur != old.Current[b] && cur != None {
			predicted = func(t *Table, b int) Row { return p.moved(t, b, cur) }
			if len(gaps) <= len(set) {
				gaps = binary.AppendUvarint(gaps, uint64(b-last-1))
			}
			last = b
			set[b/8] |= 1 << (b % 8)
			servers = binary.BigEndian.AppendUint16(servers, cur)
			count++
		} else if old.Previous[b][0] == None && new.Previous[b][0] == None && old.Since[b] == new.Since[b] && cur == old.Current[b] {
			continue
		}
		if r := new.row(b); r != predicted(old, b) {
			other = binary.AppendUvarint(other, uint64(b-lastOther-1))
			other = binary.BigEndian.AppendUint16(other, r.Current)
			other = appendChain(binary.BigEndian.AppendUint32(other, r.Since), r.Previous)
			lastOther = b
			others++
		}
	}
	w = binary.AppendUvarint(w, uint64(count))
	if len(gaps) <= len(set) {
		w = append(append(w, 0), gaps...)
	} else {
		w = append(append(w, 1), set...)
	}
	w = append(w, servers...)
	w = append(binary.AppendUvarint(w, uint64(others)), other...)
	return binary.BigEndian.AppendUint32(w, crc32.Checksum(w, castagnoli)), nil
}

// ApplyDelta is the table that Delta made delta for, beginning with t, which is valid. It
// refuses one from another generation, one that runs backwards, one that is
// cut off or damaged, and rows that Validate refuses.
func (t *Table) ApplyDelta(delta []byte) (*Table, error) {
	r, err := open(delta, deltaMagic, "delta")
	if err != nil {
		return nil, err
	}
	n, from, to := int(r.u32()), r.u32(), r.u32()
	p := predictor{since: r.u32(), kept: r.u32(), settled: r.u32()}
	switch {
	case r.err != nil:
		return nil, r.err
	case n != t.Len():
		return nil, fmt.Errorf("buckets: delta: of %d buckets, the table has %d: it is another VIP's; hand in this one's", n, t.Len())
	case from != t.Generation:
		return nil, fmt.Errorf("buckets: delta: from generation %d, the table has %d; ask for a delta from %d, or the whole table", from, t.Generation, t.Generation)
	case !Newer(to, from):
		return nil, fmt.Errorf("buckets: delta: generation %d: runs backwards from %d; hand in one to a newer generation", to, from)
	}
	moves := r.moves(n)
	if r.err != nil {
		return nil, r.err
	}
	next := &Table{Generation: to, Current: make([]uint16, n), Since: make([]uint32, n), Previous: make([][Chain]uint16, n)}
	if err := inParts(n, partOf, func(first, end int) error { return p.part(t, next, &moves, first, end) }); err != nil {
		return nil, err
	}
	b := -1
	for range r.upTo(n, "other rows") {
		if b += 1 + r.upTo(n-b-2, "gap"); r.err != nil {
			break
		}
		row := Row{Current: r.u16(), Since: r.u32(), Previous: r.chain()}
		if r.err != nil {
			break
		}
		if err := validRow(b, row.Current, row.Since, row.Previous); err != nil {
			return nil, err
		}
		next.set(b, row)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if p.since == 0 { // some that moves is among other rows, or nothing moves
		return next, next.Validate()
	}
	return next, nil
}

// part makes the rows first to end-1 of next of t's, as predicted: what stays, and then
// what moves. They are valid, as t's are, unless since is 0.
func (p *predictor) part(t, next *Table, moves *moves, first, end int) error {
	copy(next.Current[first:end], t.Current[first:end])
	copy(next.Since[first:end], t.Since[first:end])
	copy(next.Previous[first:end], t.Previous[first:end])
	if p.settled > 0 {
		for b := first; b < end; b++ {
			if next.Previous[b][0] != None && next.Since[b] < p.settled {
				next.Previous[b] = NoPrevious
			}
		}
	}
	return moves.each(first, end, func(b int, s uint16) error {
		if s == None || s == t.Current[b] {
			return fmt.Errorf("buckets: delta: bucket %d moves to server %d, which has it or is none; take it again from who has it", b, s)
		}
		next.set(b, p.moved(t, b, s))
		return nil
	})
}

// moves are a delta's.
type moves struct {
	buckets []uint32 // ascending; nil: those that set marks
	set     []byte
	// before is how many move before each part of partOf buckets.
	before  []int
	servers []byte // u16 each
}

// each calls move for those of the buckets first to end-1: a part, or all.
func (m *moves) each(first, end int, move func(b int, s uint16) error) error {
	servers := m.servers[2*m.before[first/partOf]:]
	if m.set == nil {
		for _, b := range m.buckets[m.before[first/partOf]:] {
			if int(b) >= end {
				break
			}
			if err := move(int(b), binary.BigEndian.Uint16(servers)); err != nil {
				return err
			}
			servers = servers[2:]
		}
		return nil
	}
	for i, o := range m.set[first/8 : (end+7)/8] {
		for ; o != 0; o &= o - 1 {
			if err := move(first+i*8+bits.TrailingZeros8(o), binary.BigEndian.Uint16(servers)); err != nil {
				return err
			}
			servers = servers[2:]
		}
	}
	return nil
}

// moves reads the moves of n buckets.
func (r *reader) moves(n int) (m moves) {
	count := r.upTo(n, "moves")
	m.before = make([]int, (n+partOf-1)/partOf)
	switch form := r.bytes(1)[0]; {
	case r.err != nil:
	case form == 0:
		b := -1
		for part := range m.before {
			m.before[part] = count // as long as none is found
		}
		part := 0
		for i := range count {
			if b += 1 + r.upTo(n-b-2, "gap"); r.err != nil {
				return m
			}
			for ; part <= b/partOf; part++ {
				m.before[part] = i
			}
			m.buckets = append(m.buckets, uint32(b))
		}
		m.servers = r.bytes(2 * count)
	case form == 1:
		m.set = r.bytes((n + 7) / 8)
		ones := 0
		for i, o := range m.set {
			if i%(partOf/8) == 0 {
				m.before[i/(partOf/8)] = ones
			}
			ones += bits.OnesCount8(o)
		}
		if ones != count || n%8 != 0 && m.set[len(m.set)-1]>>(n%8) != 0 {
			r.fail(fmt.Errorf("%d moves, but %d buckets are marked; take it again from who has it", count, ones))
		}
		m.servers = r.bytes(2 * count)
	default:
		r.fail(fmt.Errorf("form %d of moves: must be 0 or 1; hand in what this version wrote", form))
	}
	return m
}
