package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Stat sums samples up: mean, sample deviation (n-1; 0 for one sample), least
// and most.
type Stat struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	Samples   int     `json:"samples"`
}

// NewStat sums samples up.
func NewStat(samples []float64) Stat {
	n := float64(len(samples))
	if n == 0 {
		return Stat{}
	}
	s := Stat{Min: slices.Min(samples), Max: slices.Max(samples), Samples: len(samples)}
	for _, x := range samples {
		s.Mean += x / n
	}
	if n > 1 {
		for _, x := range samples {
			s.Deviation += (x - s.Mean) * (x - s.Mean) / (n - 1)
		}
		s.Deviation = math.Sqrt(s.Deviation)
	}
	return s
}

// StatOf is NewStat of what a function says of each of a list.
func StatOf[T any](list []T, of func(T) float64) Stat {
	samples := make([]float64, len(list))
	for i, x := range list {
		samples[i] = of(x)
	}
	return NewStat(samples)
}

// Text is mean ± deviation with a number of decimals.
func (s Stat) Text(decimals int) string {
	if s.Samples == 1 {
		return Grouped(s.Mean, decimals)
	}
	return Grouped(s.Mean, decimals) + " ±" + Grouped(s.Deviation, decimals)
}

// Grouped writes thousands apart: 1,602,007. What is rounded to nothing has no
// sign, and what is no number is a dash.
func Grouped(x float64, decimals int) string {
	if math.IsNaN(x) {
		return "–"
	}
	s := fmt.Sprintf("%.*f", decimals, x)
	if strings.Trim(s, "-0.") == "" {
		s = strings.TrimPrefix(s, "-")
	}
	end := len(s)
	if decimals > 0 {
		end -= decimals + 1
	}
	start := 0
	if strings.HasPrefix(s, "-") {
		start = 1
	}
	for i := end - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
