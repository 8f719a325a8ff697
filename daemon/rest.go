package daemon

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What a daemon has at rest, of memory and of processors. Its start reads a file, types of
// the kernel's and an assignment, and runs a good part of the program, once; a change lets
// garbage lie.
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
	restEvery(ctx, restAfter)
	return nil
}

func restEvery(ctx context.Context, every time.Duration) {
	defer Awake()
	before, _ := heap()
	worked := work()
	for Sleep(ctx, every) {
		if made, live := heap(); ours() && made-before > live/restShare {
			debug.FreeOSMemory()
			before, _ = heap()
		}
		now := work()
		processors.settle(float64(now-worked)/float64(every), every)
		worked = now
	}
}

// A daemon waits, again and again and shortly, for a timer, a socket, a map. Where Go has
// several processors, each end of a wait has others look for work: a quarter of what a
// daemon at rest takes. So it has one at rest, and all when there is something to do.
const (
	// idleShare of a processor is a rest, busyShare is none.
	idleShare, busyShare = 0.1, 0.5
)

var processors procs

type procs struct {
	mu      sync.Mutex
	resting bool
	wanted  time.Time // when somebody wanted all
}

// Awake has this process work on all its processors until it rests again: for whoever is
// about to do what comes in parts, as when a change has come. It takes some ten
// microseconds, and next to nothing where they are there.
func Awake() {
	processors.mu.Lock()
	defer processors.mu.Unlock()
	processors.awake()
}

func (p *procs) awake() {
	p.wanted = time.Now()
	if p.resting {
		p.resting = false
		runtime.SetDefaultGOMAXPROCS()
	}
}

// settle takes how much of a processor the process worked in the time since it was called.
func (p *procs) settle(share float64, since time.Duration) {
	if _, set := os.LookupEnv("GOMAXPROCS"); set {
		return // it is whoever's who started this process
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.resting && share > busyShare:
		p.awake()
	case !p.resting && share < idleShare && time.Since(p.wanted) >= since:
		p.resting = true
		runtime.GOMAXPROCS(1)
	}
}

// work is how long this process had a processor.
func work() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // of oneself it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
