package member

import (
	"testing"

	"pgregory.net/rapid"
)

// The median is one of the offsets and has as many on one side as on the
// other, also where the circle of 2^32 closes.
func TestMedianOffset(t *testing.T) {
	if _, ok := medianOffset(nil); ok {
		t.Fatal("a median of nothing")
	}
	rapid.Check(t, func(t *rapid.T) {
		middle := rapid.Uint32().Draw(t, "middle")
		below := rapid.SliceOfN(rapid.Uint32Range(1, 5000), 0, 4).Draw(t, "below")
		offsets := map[string]uint32{"m": middle}
		for i, d := range below {
			above := rapid.Uint32Range(1, 5000).Draw(t, "above")
			offsets[string(rune('a'+i))] = middle - d
			offsets[string(rune('A'+i))] = middle + above
		}
		if got, ok := medianOffset(offsets); !ok || got != middle {
			t.Fatalf("median of %v: %d, want %d", offsets, got, middle)
		}
	})
}
