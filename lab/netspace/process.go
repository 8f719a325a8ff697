package netspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// WaitFor polls the condition until it holds or the time is over, and says
// whether it holds.
func WaitFor(limit time.Duration, condition func() bool) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// IsZombie tells whether a process has ended and only waits for its parent, or
// is not there at all. Its first thread alone may have ended: when another one
// calls execve, which then takes the first one's number.
func IsZombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The state follows the name, which is in brackets and may hold anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	state, threads := fields[0], fields[17]
	if state != "Z" && state != "X" {
		return false
	}
	if threads == "0" { // its number became another thread's while it was looked at, or nobody's
		return IsZombie(pid)
	}
	return threads == "1"
}

// network finds the network namespace of a process, given as its folder in /proc.
func network(process string, is *unix.Stat_t) bool {
	of := func(thread string) bool { return unix.Stat(filepath.Join(thread, "ns/net"), is) == nil }
	if of(process) {
		return true
	}
	// Its first thread has none any more while another one calls execve. After
	// that the other one has the first one's number.
	threads, _ := filepath.Glob(filepath.Join(process, "task/*"))
	return slices.ContainsFunc(threads, of) || of(process)
}

// ProcessStart is the start time of a process in the kernel's own unit,
// empty if there is none.
func ProcessStart(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// Field 22; the fields after the name begin with number 3.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
