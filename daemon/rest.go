package daemon

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What a daemon has in memory at rest. Its start reads a file, types of the kernel's and
// an assignment, and runs a good part of the program, once; a change lets garbage lie.
const (
	// gcPercent is how much garbage may lie beside what is in use, until a rest: with half
	// of it, a balancer's part of a change took a quarter more of a processor.
	gcPercent = 100
	// restAfter is when the start is over for certain, and a change mostly.
	restAfter = 10 * time.Second
	// restShare of what is in use, as garbage made since the last rest, is worth a rest.
	restShare = 4
)

// ours: the collector is not set by whoever started this process.
func ours() bool {
	_, set := os.LookupEnv("GOGC")
	return !set
}

// thrifty sets the collector.
func thrifty() {
	if ours() {
		debug.SetGCPercent(gcPercent)
	}
}

// rest gives back what only the start needed, and whenever much was made since the last
// time, its garbage.
func (d *Daemon) rest(ctx context.Context) error {
	if !Sleep(ctx, restAfter) {
		return nil
	}
	if err := giveBack(); err != nil {
		d.Log.Debug("what only the start needed stays in memory", "error", err)
	}
	if ours() {
		restEvery(ctx, restAfter)
	}
	return nil
}

func restEvery(ctx context.Context, every time.Duration) {
	before, _ := heap()
	for Sleep(ctx, every) {
		if made, live := heap(); made-before > live/restShare {
			debug.FreeOSMemory()
			before, _ = heap()
		}
	}
}

// heap is how many octets were ever allocated, and how many the collector found in use.
func heap() (made, live uint64) {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// giveBack gives garbage back to the kernel, and the pages of the program that this
// process reads: those that it goes on reading are mapped again when it does, from the
// kernel's cache, where all stay.
func giveBack() error {
	debug.FreeOSMemory()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, m := range ownPages(smaps, exe) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %x-%x: %w", m.from, m.to, errno)
		}
	}
	return nil
}

// pages are a mapping, from its first octet to behind its last.
type pages struct{ from, to uintptr }

// ownPages are the mappings of the program at path that nobody can write and nobody has
// written (a debugger, a linker), as smaps tells: only those can be read again.
func ownPages(smaps []byte, path string) (own []pages) {
	var at pages
	readOnly := false
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			_, err := fmt.Sscanf(fields[0], "%x-%x", &at.from, &at.to)
			readOnly = err == nil && strings.HasPrefix(fields[1], "r-") && strings.HasSuffix(fields[1], "p") &&
				len(fields) == 6 && fields[5] == path
		case readOnly && len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0":
			own = append(own, at)
		}
	}
	return own
}
