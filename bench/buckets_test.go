package bench

import (
	"path/filepath"
	"testing"
)

func TestMeasureBuckets(t *testing.T) {
	for _, c := range []struct {
		before, after int
		aged          bool
	}{{30, 64, false}, {30, 64, true}, {64, 63, true}} {
		m, err := measureBuckets(t.Context(), "small", filepath.Join(t.TempDir(), "delta"), 6400, c.before, c.after, c.aged, BucketsOptions{Runs: 2, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if m.Moves != m.Least || m.Moves == 0 || m.DeltaBytes == 0 || m.DeltaBytes > m.SnapshotBytes {
			t.Errorf("%d to %d servers: %+v", c.before, c.after, m)
		}
	}
}
