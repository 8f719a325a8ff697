package buckets

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// partOf is how many rows are looked at in one go, of which several are under way: few
// enough that they stay in a processor's cache. A multiple of 8. Tests have it smaller.
var partOf = 1 << 14

// inParts calls f for all of n rows, size at a time, on all processors. The error is that
// of the first part that has one.
func inParts(n, size int, f func(first, end int) error) error {
	count := (n + size - 1) / size
	if count <= 1 {
		return f(0, n)
	}
	failed := make([]error, count)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), count) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				failed[i] = f(i*size, min((i+1)*size, n))
			}
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
