package bound

import "testing"

func TestTake(t *testing.T) {
	for _, base := range []uint32{1000, 0xffff_ff00} { // the clock wraps
		var b Bound
		for _, step := range []struct {
			at, want uint32
			what     string
		}{
			{0, 10, "a second's are kept"}, {99, 0, "not yet"}, {100, 1, "ten a second"}, {350, 2, "and a half"},
			{400, 1, "the half counts"}, {100_000, 10, "no more than a second's are kept"},
		} {
			got := uint32(0)
			for b.Take(10, base+step.at) {
				got++
			}
			if got != step.want {
				t.Errorf("base %#x, at %d ms: %d tokens, want %d: %s", base, step.at, got, step.want, step.what)
			}
		}
	}
	var none Bound
	if none.Take(0, 1<<31) {
		t.Error("a rate of none allows one")
	}
}
