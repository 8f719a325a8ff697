package workload

import (
	"fmt"

	"github.com/fairlead/fairlead/sim"
)

// Flood is an attack by SYNs from addresses that never come again: each makes
// an entry wherever connections are remembered by their first packet. SYNs
// come evenly, so that how many there were by a time needs no counting
// (Beamer's evaluation: 1,000,000 a second on two balancers).
type Flood struct {
	// PerSecond is the number of SYNs a second, 0 to MaxFlood.
	PerSecond float64
}

// MaxFlood is more than a 100 Gbit/s link carries.
const MaxFlood = 200e6

// Check says what is wrong with the rate.
func (f Flood) Check() error {
	if !(f.PerSecond >= 0 && f.PerSecond <= MaxFlood) {
		return fmt.Errorf("%v SYNs a second: must be 0 (no flood) to %.0f", f.PerSecond, MaxFlood)
	}
	return nil
}

// Sent is the number of SYNs from time 0 to a time, not including it.
func (f Flood) Sent(before sim.Time) uint64 {
	return uint64(f.PerSecond * (float64(max(0, before)) / float64(sim.Second)))
}

// At is when SYN number n (from 0) comes.
func (f Flood) At(n uint64) sim.Time {
	return sim.Time(float64(n) / f.PerSecond * float64(sim.Second))
}

// FloodKey is the key of SYN number n, in no relation to those of connections.
func FloodKey(seed, n uint64) uint64 {
	return sim.SplitMix(sim.SplitMix(seed^0xf100d5eed) ^ sim.SplitMix(n+0x9e3779b97f4a7c15))
}
