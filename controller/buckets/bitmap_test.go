package buckets

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOwnersOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "buckets")
		numbers := rapid.SliceOfNDistinct(rapid.Uint16Range(0, 20), 0, 5, rapid.ID).Draw(t, "numbers")
		owned := make([]Bitmap, len(numbers))
		for i := range owned {
			owned[i] = NewBitmap(n)
			for _, b := range rapid.SliceOf(rapid.IntRange(0, n-1)).Draw(t, "set") {
				owned[i].Set(b)
			}
			if rapid.Bool().Draw(t, "cut off") {
				owned[i] = owned[i][:len(owned[i])/2]
			} else if n%8 != 0 {
				owned[i][n/8] |= 0x80 // none of ours
			}
		}
		of := OwnersOf(n, numbers, owned)
		for b := range n {
			var want []uint16
			for i, m := range owned {
				if m.Has(b) {
					want = append(want, numbers[i])
				}
			}
			if got := of(b); !slices.Equal(got, want) {
				t.Fatalf("bucket %d of %d: %v, want %v", b, n, got, want)
			}
		}
	})
}
