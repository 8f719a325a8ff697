package chash

import "fmt"

// flat is a Hash's table of rows: a handle, and above it whether the horizon
// would change the row. Two bytes a row, so that it stays in the second-level
// cache.
type flat []uint16

const (
	flatNone  = 0x7fff
	flatTrack = 0x8000
)

// newFlat joins the owners by the working set and by working set and horizon.
func newFlat(owners, all []int32) flat {
	f := make(flat, len(owners))
	for r, n := range owners {
		f[r] = flatNone
		if n >= 0 {
			f[r] = uint16(n)
		}
		if n != all[r] {
			f[r] |= flatTrack
		}
	}
	return f
}

// Lookup implements Hash.
func (f flat) Lookup(key uint64) Node {
	n, _ := f.Track(key)
	return n
}

// Track implements Hash.
func (f flat) Track(key uint64) (Node, bool) {
	e := f[scale(key>>32, uint64(len(f)))]
	n := Node(e & flatNone)
	if n == flatNone {
		n = NoNode
	}
	return n, e&flatTrack != 0
}

// flatRows is the number of rows a Hash is to have, or the default.
func flatRows(rows, standard int) (int, error) {
	switch {
	case rows == 0:
		return standard, nil
	case rows < 2 || rows > MaxTableRows:
		return 0, fmt.Errorf("%w: %d, want 2 to %d", ErrRows, rows, MaxTableRows)
	}
	return rows, nil
}

// checkFlat refuses more servers than a table has rows or handles for.
func checkFlat(k Kind, servers, rows int) error {
	if most := min(rows, flatNone); servers > most {
		return fmt.Errorf("%w: %d servers, but %s with %d rows takes at most %d; make it with more rows, or remove a server first",
			ErrCapacity, servers, k, rows, most)
	}
	return nil
}
