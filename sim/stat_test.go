package sim

import (
	"math"
	"testing"
)

func TestStat(t *testing.T) {
	s := NewStat([]float64{1, 2, 3, 6})
	if s.Mean != 3 || s.Min != 1 || s.Max != 6 || s.Samples != 4 || s.Deviation < 2.16 || s.Deviation > 2.161 {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		stat     Stat
		decimals int
		want     string
	}{
		{Value(1602007), 0, "1,602,007"},
		{Value(-1234.5), 1, "-1,234.5"},
		{Value(-123), 0, "-123"},
		{Value(math.Copysign(0, -1)), 0, "0"},
		{Value(-0.04), 1, "0.0"},
		{Value(math.NaN()), 1, "–"},
		{NewStat([]float64{1000, 3000}), 0, "2,000 ±1,414"},
		{Stat{}, 1, "0.0 ±0.0"},
	} {
		if got := c.stat.Text(c.decimals); got != c.want {
			t.Errorf("%+v: %q, want %q", c.stat, got, c.want)
		}
	}
}
