package sim

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what a measured figure depends on.
type Machine struct {
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Go     string `json:"go"`
}

// ThisMachine is the machine that it runs on.
func ThisMachine() Machine {
	m := Machine{"unknown", runtime.GOARCH, runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	info, _ := os.ReadFile("/proc/cpuinfo") // without it, the architecture says something
	for line := range strings.Lines(string(info)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			m.CPU = strings.TrimSpace(v)
			break
		}
	}
	return m
}

func (m Machine) String() string { return "kernel " + m.Kernel + " · " + m.CPU + " · " + m.Go }

// ThreadTime is the processor time of the calling thread.
func ThreadTime() time.Duration {
	var t unix.Timespec
	// It fails for clocks that there are not; this one is as old as NPTL.
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
