package kernel

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// WaitForReaders returns when every packet that was in a program at the time
// of the call has left it: what a map pointed to before may be written anew.
// XDP programs run inside RCU read sections, and this membarrier is
// synchronize_rcu.
func WaitForReaders() error {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, 1 /* MEMBARRIER_CMD_GLOBAL */, 0, 0)
	if errno == 0 {
		return nil
	}
	// nohz_full refuses it. Updating the inner map of a map of maps waits for
	// the same readers.
	if err := mapOfMapsBarrier(); err != nil {
		return fmt.Errorf("wait for packets in flight: %w", err)
	}
	return nil
}

func mapOfMapsBarrier() error {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return err
	}
	defer outer.Close()
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return err
	}
	defer m.Close()
	return outer.Put(uint32(0), m)
}
