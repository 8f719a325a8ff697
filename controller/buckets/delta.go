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

// ApplyDelta is the table that Delta made delta for, beginning with t. It
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
	next := t.Clone()
	next.Generation = to
	if p.settled > 0 {
		for b := range next.Previous {
			if next.Previous[b][0] != None && next.Since[b] < p.settled {
				next.Previous[b] = NoPrevious
			}
		}
	}
	moves := r.moves(n)
	move := func(b int, s uint16) {
		if s == None || s == t.Current[b] {
			r.fail(fmt.Errorf("bucket %d moves to server %d, which has it or is none; take it again from who has it", b, s))
			return
		}
		next.set(b, p.moved(t, b, s))
	}
	moves(move)
	b := -1
	for range r.upTo(n, "other rows") {
		if b += 1 + r.upTo(n-b-2, "gap"); r.err != nil {
			break
		}
		row := Row{Current: r.u16(), Since: r.u32(), Previous: r.chain()}
		if r.err == nil {
			next.set(b, row)
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return next, next.Validate()
}

// moves reads the moves of n buckets; the caller goes through them at once.
func (r *reader) moves(n int) func(move func(b int, s uint16)) {
	count := r.upTo(n, "moves")
	switch form := r.bytes(1)[0]; {
	case r.err != nil:
		return func(func(int, uint16)) {}
	case form == 0:
		// The gaps end where the servers begin.
		at := reader{what: r.what, left: r.left}
		for range count {
			at.upTo(n-1, "gap")
		}
		if at.err != nil {
			r.fail(at.err)
		}
		gaps := reader{what: r.what, left: r.left}
		r.left = at.left
		return func(move func(int, uint16)) {
			b := -1
			for range count {
				b += 1 + gaps.upTo(n-b-2, "gap")
				s := r.u16()
				if gaps.err != nil {
					r.fail(gaps.err)
				}
				if r.err != nil {
					return
				}
				move(b, s)
			}
		}
	case form == 1:
		set := r.bytes((n + 7) / 8)
		ones := 0
		for _, o := range set {
			ones += bits.OnesCount8(o)
		}
		if ones != count || n%8 != 0 && set[len(set)-1]>>(n%8) != 0 {
			r.fail(fmt.Errorf("%d moves, but %d buckets are marked; take it again from who has it", count, ones))
		}
		servers := r.bytes(2 * count)
		return func(move func(int, uint16)) {
			if r.err != nil {
				return
			}
			for i, o := range set {
				for ; o != 0; o &= o - 1 {
					move(i*8+bits.TrailingZeros8(o), binary.BigEndian.Uint16(servers))
					servers = servers[2:]
				}
			}
		}
	default:
		r.fail(fmt.Errorf("form %d of moves: must be 0 or 1; hand in what this version wrote", form))
		return func(func(int, uint16)) {}
	}
}
