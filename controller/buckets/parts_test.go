package buckets

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/soak"
)

// inSmallParts runs test with tables in several parts.
func inSmallParts(t *testing.T, name string, test func(t *testing.T)) {
	was := partOf
	defer func() { partOf = was }()
	for _, partOf = range []int{8, 24} {
		t.Run(name, test)
	}
}

// TestInParts: what is done in parts is what is done at one go.
func TestInParts(t *testing.T) {
	inSmallParts(t, "deltas", TestDeltaRoundTrip)
	inSmallParts(t, "cut off", TestDeltaCutOff)
	inSmallParts(t, "hostile", TestHostileForms)
	inSmallParts(t, "whole", TestSnapshotRoundTrip)
	inSmallParts(t, "wrong rows", testWrongRows)
}

// testWrongRows: the first row that is wrong is the one that is told of.
func testWrongRows(t *testing.T) {
	servers := []Server{{Number: 1, Weight: 1}, {Number: 2, Weight: 1}}
	rapid.Check(t, func(t *rapid.T) {
		u := New(60, servers)
		wrong := rapid.SliceOfNDistinct(rapid.IntRange(0, 59), 1, 4, rapid.ID).Draw(t, "wrong")
		first := 60
		unknown := rapid.Bool().Draw(t, "unknown")
		for _, b := range wrong {
			first = min(first, b)
			if unknown {
				u.Current[b] = 9
			} else {
				u.Previous[b] = [Chain]uint16{u.Current[b], None, None}
			}
		}
		err, want := u.Validate(), validRow(first, u.Current[first], 0, u.Previous[first])
		if unknown {
			one := u.Clone()
			for _, b := range wrong {
				if b != first {
					one.Current[b] = 1
				}
			}
			err, want = u.ValidateServers(servers), one.ValidateServers(servers)
		}
		if err == nil || want == nil || err.Error() != want.Error() {
			t.Fatalf("%v, not %v", err, want)
		}
	})
}

func TestPartsOfAll(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 100} {
		seen := make([]int, n)
		stop := errors.New("stop")
		err := inParts(n, 8, func(first, end int) error {
			for i := first; i < end; i++ {
				seen[i]++
			}
			if first == 16 || first == 48 {
				return stop
			}
			return nil
		})
		if (err == stop) != (n == 100) {
			t.Errorf("%d rows: %v", n, err)
		}
		for i, times := range seen {
			if times != 1 {
				t.Errorf("%d rows: row %d was done %d times", n, i, times)
			}
		}
	}
}

// TestTakersInTurn: what a server gets comes from many others, also where those stand
// in turn in the table.
func TestTakersInTurn(t *testing.T) {
	const n = 4096
	var four, eight []Server
	for i := range uint16(8) {
		if i < 4 {
			four = append(four, Server{i, 1})
		}
		eight = append(eight, Server{i, 1})
	}
	r := soak.Rand(t)
	for name, at := range map[string]func(b int) uint16{
		"ranges": nil, "in turn": func(b int) uint16 { return uint16(b % 4) }, "anywhere": func(int) uint16 { return uint16(r.IntN(4)) },
	} {
		u := New(n, four)
		for b := range u.Current {
			if at != nil {
				u.Current[b] = at(b)
			}
		}
		from := map[[2]uint16]int{}
		for _, m := range u.Assign(eight, Options{Now: 1000, ChainTime: 240}) {
			from[[2]uint16{u.Current[m.Bucket], m.To}]++
		}
		for i := range uint16(4) {
			for to := uint16(4); to < 8; to++ {
				if got := from[[2]uint16{i, to}]; got < n/64 {
					t.Errorf("%s: server %d gets %d buckets of server %d", name, to, got, i)
				}
			}
		}
	}
}
