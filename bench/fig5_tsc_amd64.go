package bench

import "time"

// readTSC is the processor's time stamp counter.
func readTSC() uint64

// tscHz measures how many of its cycles pass a second.
func tscHz() float64 {
	began, from := time.Now(), readTSC()
	time.Sleep(200 * time.Millisecond)
	cycles, took := readTSC()-from, time.Since(began)
	return float64(cycles) / took.Seconds()
}
