package kernel

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// InNamespace runs f on a thread in the network namespace ns: devices are attached
// to by their index there.
func InNamespace(ns netns.NsHandle, f func() error) error {
	runtime.LockOSThread()
	here, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("network namespace: %w", err)
	}
	defer here.Close()
	if here.Equal(ns) {
		defer runtime.UnlockOSThread()
		return f()
	}
	if err := netns.Set(ns); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("network namespace: %w", err)
	}
	failed := f()
	if netns.Set(here) == nil {
		runtime.UnlockOSThread() // else the thread goes with this goroutine
	}
	return failed
}
