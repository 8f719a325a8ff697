package tables

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
)

// drawRows draws rows of n buckets, some settled, some with chains.
func drawRows(random *rand.Rand, n int, nowS uint32) (current []uint16, since []uint32, previous [][buckets.Chain]uint16) {
	current, since, previous = make([]uint16, n), make([]uint32, n), make([][buckets.Chain]uint16, n)
	for b := range n {
		current[b] = uint16(random.UintN(bpf.BucketMoved))
		previous[b] = buckets.NoPrevious
		if random.IntN(2) == 0 {
			continue
		}
		for i := range 1 + random.IntN(buckets.Chain) {
			previous[b][i] = uint16(random.UintN(buckets.None))
		}
		// Up to 24 days of the shared clock to either side can be told.
		since[b] = nowS - 2_000_000 + random.Uint32N(4_000_000)
	}
	return current, since, previous
}

// What is written reads back, whatever stood there before and wherever the
// table begins, and nothing beyond the table's own entries is touched.
func TestRowsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := rapid.OneOf(rapid.IntRange(1, 40), rapid.Just(2*rowsAtOnce+3)).Draw(t, "buckets")
		first := rapid.Uint32Range(0, 9).Draw(t, "first")
		nowMS := rapid.Uint64Range(1_700_000_000_000, 1_900_000_000_000).Draw(t, "now")
		size := BucketEntries(n)
		memory := make([]uint64, int(first)+size+5)
		for i := range memory {
			memory[i] = random.Uint64()
		}
		for range 2 {
			current, since, previous := drawRows(random, n, uint32(nowMS/1000))
			before := append([]uint64(nil), memory...)
			WriteRows(memory[first:], effective.Restore(7, current, since, previous))
			got, err := ReadRows(memory[first:], n, 7, nowMS)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, effective.Restore(7, current, since, previous)) {
				t.Fatal("the rows read back differ from those written")
			}
			for i := range memory {
				if (i < int(first) || i >= int(first)+size) && memory[i] != before[i] {
					t.Fatalf("entry %d was written: the table has entries %d to %d", i, first, int(first)+size-1)
				}
			}
		}
	})
}

// A table that does not end within the map is refused, not read.
func TestRowsOutside(t *testing.T) {
	for n := 1; n < 20; n++ {
		memory := make([]uint64, BucketEntries(n))
		if _, err := ReadRows(memory, n, 1, 0); err != nil {
			t.Errorf("%d buckets in %d entries: %v", n, len(memory), err)
		}
		for cut := 1; cut <= len(memory); cut++ {
			if _, err := ReadRows(memory[cut:], n, 1, 0); err == nil {
				t.Errorf("%d buckets were read from %d entries of %d", n, len(memory)-cut, len(memory))
			}
		}
	}
}

// The wire's time wraps every 50 days.
func TestUnixTime(t *testing.T) {
	for _, now := range []uint64{1_700_000_000_000, 400 << 32, 400<<32 - 1, 400<<32 + 999} {
		for _, ago := range []int64{0, 1, 240, 86400, -2, 2_000_000, -2_000_000} {
			s := uint32(int64(now/1000) - ago)
			if got := unixTime(WireTime(s), now); got != s {
				t.Errorf("at %d ms: %d s was read as %d", now, s, got)
			}
		}
	}
}

// WriteRows of 6.4 million buckets, half of them just moved: over rows of
// which all differ, and over rows of which none does.
func BenchmarkWriteRows(b *testing.B) {
	const n = 6_400_000
	table := func(moved uint16) *effective.Table {
		current, since, previous := make([]uint16, n), make([]uint32, n), make([][buckets.Chain]uint16, n)
		for i := range n {
			current[i], since[i], previous[i] = uint16(i/100), 1_800_000_000, buckets.NoPrevious
			if i%2 == 0 {
				previous[i][0] = uint16(i/100) + moved
			}
		}
		return effective.Restore(1, current, since, previous)
	}
	memory := make([]uint64, BucketEntries(n))
	tables := []*effective.Table{table(1), table(2)}
	for name, step := range map[string]int{"changed": 1, "same": 0} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				WriteRows(memory, tables[i*step%2])
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/table")
		})
	}
}
