package fct

import (
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/sim"
)

// reported is the authors' results by figure: what they call RSS is our hash,
// CRC hash-crc, and what goes to the least loaded server by its reports
// least-reported. Their third hash, Click's own, is not among ours.
var reported = map[string][]sim.Series{
	// Figure 6: p99 in ms at 64 servers against requests a second and server.
	byLoad: {
		points(policy.RR, loads, 43, 53, 62, 78, 129, 331),
		points(nameHash, loads, 70, 83, 103, 159, 312, 987),
		points(nameCRC, loads, 68, 81, 103, 157, 315, 977),
	},
	// Figure 7: variance in %² against servers.
	bySize: {
		points(policy.RR, sizes, 2.1, 2.1, 2.1),
		points(nameHash, sizes, 14, 19, 21),
		points(nameCRC, sizes, 15, 18, 23),
	},
	// Figure 8: p99 in ms against servers.
	byBimodal: {
		points(policy.RR, sizes, 932, 869, 1779),
		points(nameHash, sizes, 986, 930, 1814),
		points(policy.P2C, sizes, 962, 716, 983),
		points(policy.AWRR, sizes, 957, 706, 874),
		points(policy.LeastReported, sizes, 1320, 974, 4202),
	},
}

var (
	loads = []float64{100, 120, 140, 160, 180, 200}
	sizes = []float64{16, 32, 64}
)

func points(name string, xs []float64, ys ...float64) sim.Series {
	s := sim.Series{Name: name, By: sim.ByData}
	for i, x := range xs {
		s.Points = append(s.Points, sim.Point{X: x, Y: sim.Value(ys[i])})
	}
	return s
}

// valueAt is a series' mean at x; false: it has no such point.
func valueAt(all []sim.Series, name string, x float64) (float64, bool) {
	for _, s := range all {
		for _, p := range s.Points {
			if s.Name == name && p.X == x {
				return p.Y.Mean, true
			}
		}
	}
	return 0, false
}
