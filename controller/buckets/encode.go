package buckets

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// Both forms begin with four octets that name them and their version, and end
// with the CRC-32C (Castagnoli) of all octets before it. Fixed-width integers
// are big-endian, others are varints as in encoding/binary.
const (
	tableMagic = "FLB1"
	deltaMagic = "FLD1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalText is MarshalBinary's form in base64.
func (t *Table) MarshalText() ([]byte, error) {
	b, err := t.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText reads what MarshalText wrote.
func (t *Table) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("buckets: not base64 (%w); take the table again from who has it", err)
	}
	return t.UnmarshalBinary(b)
}

// MarshalBinary is the whole table, compact: equal neighbours as one, each
// time once, and chains only of those that have one:
//
//	magic, buckets u32, generation u32,
//	current: runs of (length varint, server u16),
//	times: how many varint, each u32; runs of (length varint, index varint),
//	chains: how many varint; each: gap varint, length octet, servers u16
func (t *Table) MarshalBinary() ([]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	w := append([]byte(nil), tableMagic...)
	w = binary.BigEndian.AppendUint32(w, uint32(t.Len()))
	w = binary.BigEndian.AppendUint32(w, t.Generation)
	runs(t.Current, func(n int, s uint16) {
		w = binary.BigEndian.AppendUint16(binary.AppendUvarint(w, uint64(n)), s)
	})
	index, times := map[uint32]uint64{}, []uint32(nil)
	runs(t.Since, func(_ int, since uint32) {
		if _, ok := index[since]; !ok {
			index[since] = uint64(len(times))
			times = append(times, since)
		}
	})
	w = binary.AppendUvarint(w, uint64(len(times)))
	for _, since := range times {
		w = binary.BigEndian.AppendUint32(w, since)
	}
	runs(t.Since, func(n int, since uint32) {
		w = binary.AppendUvarint(binary.AppendUvarint(w, uint64(n)), index[since])
	})
	chained := 0
	for _, p := range t.Previous {
		if p[0] != None {
			chained++
		}
	}
	w = binary.AppendUvarint(w, uint64(chained))
	last := -1
	for b, p := range t.Previous {
		if p[0] != None {
			w = appendChain(binary.AppendUvarint(w, uint64(b-last-1)), p)
			last = b
		}
	}
	return binary.BigEndian.AppendUint32(w, crc32.Checksum(w, castagnoli)), nil
}

// UnmarshalBinary reads what MarshalBinary wrote.
func (t *Table) UnmarshalBinary(data []byte) error {
	r, err := open(data, tableMagic, "table")
	if err != nil {
		return err
	}
	n := int(r.u32())
	if n < 1 || n > Max {
		return fmt.Errorf("buckets: table: %d buckets; must be 1 to %d", n, Max)
	}
	next := &Table{Generation: r.u32(), Current: make([]uint16, n), Since: make([]uint32, n), Previous: make([][Chain]uint16, n)}
	for b := 0; b < n && r.err == nil; {
		run := r.count(n-b, "length")
		s := r.u16()
		for range run {
			next.Current[b] = s
			b++
		}
	}
	times := make([]uint32, r.count(n, "times"))
	for i := range times {
		times[i] = r.u32()
	}
	for b := 0; b < n && r.err == nil; {
		run, i := r.count(n-b, "length"), r.upTo(len(times)-1, "time's index")
		if r.err != nil {
			break
		}
		for range run {
			next.Since[b] = times[i]
			b++
		}
	}
	for b := range next.Previous {
		next.Previous[b] = NoPrevious
	}
	b := -1
	for range r.upTo(n, "chains") {
		if b += 1 + r.upTo(n-b-2, "gap"); r.err != nil {
			break
		}
		next.Previous[b] = r.chain()
	}
	if err := r.end(); err != nil {
		return err
	}
	if err := next.Validate(); err != nil {
		return err
	}
	*t = *next
	return nil
}

// Equal: t and u are the same.
func (t *Table) Equal(u *Table) bool {
	return t == u || t != nil && u != nil && t.Generation == u.Generation && slices.Equal(t.Current, u.Current) &&
		slices.Equal(t.Since, u.Since) && slices.Equal(t.Previous, u.Previous)
}

// runs calls each for every run of equal elements.
func runs[E comparable](s []E, each func(n int, e E)) {
	for from := 0; from < len(s); {
		to := from + 1
		for to < len(s) && s[to] == s[from] {
			to++
		}
		each(to-from, s[from])
		from = to
	}
}

func appendChain(w []byte, p [Chain]uint16) []byte {
	n := chainLen(p)
	w = append(w, byte(n))
	for _, s := range p[:n] {
		w = binary.BigEndian.AppendUint16(w, s)
	}
	return w
}

func chainLen(p [Chain]uint16) (n int) {
	for n < Chain && p[n] != None {
		n++
	}
	return n
}

// reader reads a form; after its first error it reads zeros.
type reader struct {
	what string
	left []byte
	err  error
}

// open checks the magic and the checksum of data.
func open(data []byte, magic, what string) (*reader, error) {
	r := &reader{what: what}
	if len(data) < len(magic)+4 {
		return nil, fmt.Errorf("buckets: %s: %d octets: cut off; take it again from who has it", what, len(data))
	}
	if got := string(data[:len(magic)]); got != magic {
		return nil, fmt.Errorf("buckets: %s: begins with %q; must be %q: hand in what this version wrote", what, got, magic)
	}
	end := len(data) - 4
	if sum, want := crc32.Checksum(data[:end], castagnoli), binary.BigEndian.Uint32(data[end:]); sum != want {
		return nil, fmt.Errorf("buckets: %s: checksum %08x, its %d octets give %08x: cut off or damaged; take it again from who has it", what, want, len(data), sum)
	}
	r.left = data[len(magic):end]
	return r, nil
}

var errShort = errors.New("ends too early; take it again from who has it")

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("buckets: %s: %w", r.what, err)
		r.left = nil
	}
}

func (r *reader) bytes(n int) []byte {
	if len(r.left) < n {
		r.fail(errShort)
		return make([]byte, n)
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.bytes(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.bytes(4)) }

// upTo is a varint of 0 to limit.
func (r *reader) upTo(limit int, what string) int {
	v, n := binary.Uvarint(r.left)
	switch {
	case r.err != nil:
		return 0
	case n <= 0:
		r.fail(errShort)
		return 0
	case v > uint64(max(limit, 0)) || limit < 0:
		r.fail(fmt.Errorf("%s %d: must be at most %d; take it again from who has it", what, v, limit))
		return 0
	}
	r.left = r.left[n:]
	return int(v)
}

// count is a varint of 1 to limit.
func (r *reader) count(limit int, what string) int {
	v := r.upTo(limit, what)
	if v == 0 {
		r.fail(fmt.Errorf("%s 0: must be 1 to %d; take it again from who has it", what, limit))
	}
	return v
}

func (r *reader) chain() [Chain]uint16 {
	p, n := NoPrevious, int(r.bytes(1)[0])
	if n > Chain {
		r.fail(fmt.Errorf("chain of %d servers: must be at most %d; take it again from who has it", n, Chain))
		return p
	}
	for i := range n {
		p[i] = r.u16()
	}
	return p
}

// end is the error so far, or that octets are left.
func (r *reader) end() error {
	if len(r.left) > 0 {
		r.fail(fmt.Errorf("%d octets too many; take it again from who has it", len(r.left)))
	}
	return r.err
}
