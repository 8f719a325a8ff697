package bench

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netns"
)

// loopback is the interface index of every network namespace's own.
const loopback = 1

// hold attaches each XDP program to the loopback, which is down, of a network
// namespace without a name, until release is called. No packet ever gets
// there. It is for the kernel's XDP dispatcher: a test run of a program that
// is attached nowhere patches it into the dispatcher and out again, and
// waits for every CPU both times, some 20 ms a run, however short the run.
func hold(programs ...*ebpf.Program) (release func(), err error) {
	var closers []func() error
	release = func() {
		for _, c := range closers {
			_ = c()
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			for _, p := range programs {
				ns, err := netns.New()
				if err != nil {
					return fmt.Errorf("make a network namespace: %w", err)
				}
				// A link does not keep its namespace and so its device alive.
				closers = append(closers, ns.Close)
				l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: loopback, Flags: link.XDPGenericMode})
				if err != nil {
					return fmt.Errorf("attach to a loopback of its own: %w", err)
				}
				closers = append(closers, l.Close)
			}
			return nil
		}()
	}()
	if err = <-done; err != nil {
		release()
		return nil, errors.Join(errors.New("hold the programs in the kernel's dispatcher"), err)
	}
	return release, nil
}
