//go:build !amd64

package bench

// tscHz is 0: only amd64 has a counter of cycles that programs may read.
func tscHz() float64 { return 0 }
