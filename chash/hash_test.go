package chash

import "testing"

func TestRows(t *testing.T) {
	for n, want := range map[int]int{0: 1024, 3: 1024, 4: 2048, 218: 65536, 4096: 65536} {
		if Rows(n) != want {
			t.Errorf("Rows(%d) = %d, want %d", n, Rows(n), want)
		}
	}
}

func TestNegLog2(t *testing.T) {
	for u, want := range map[uint64]uint64{1 << 63: 1 << 48, 1 << 62: 2 << 48, 0: 64 << 48, ^uint64(0): 0} {
		// 1<<63|1 is one part in 2^63 above a half, far below the unit.
		if got := negLog2(u); got > want+2 || got+2 < want {
			t.Errorf("negLog2(%#x) = %#x, want %#x", u, got, want)
		}
	}
}
