// Package kerneltest is what tests of several rooms of kernel/ need.
package kerneltest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// OneDescriptor leaves this process one more file to open, until undone: for tests
// that have the process to themselves (no t.Parallel).
func OneDescriptor(t *testing.T) (undo func()) {
	t.Helper()
	f, err := os.Open("/") // it gets the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	free := uint64(f.Fd())
	f.Close()
	var was, few unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	few.Cur, few.Max = free+1, was.Max
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil); err != nil {
			t.Fatal(err)
		}
	}
}
