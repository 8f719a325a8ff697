package pcc

import (
	"testing"
)

func TestTmp(t *testing.T) {
	s := CheetahSchedule()
	names := append(Names(), "bucket")
	for _, share := range []float64{1, 0.02} {
		ts, err := s.PlayAll(t.Context(), 1, share, names)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range ts {
			t.Log(x.Scheme, x.Requests, x.Broken, x.Noticed, x.PerSecond[18:26])
		}
	}
}
