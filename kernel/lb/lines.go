package lb

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
)

// manyLines are worth a thought of what the daemon's own note of them takes.
const manyLines = 1 << 12

// linesAtOnce is how many lines that no packet names are written by one system call.
const linesAtOnce = 512

// unreadLine is a line that no packet names, and what it is to say.
type unreadLine struct {
	line uint32
	is   writtenLine
}

// writeUnread has a line that no packet names, of a range that is not in force or freed,
// say its server, counters zero: at the latest when flushLines returns. Nobody counts in
// it meanwhile, so that it may be replaced as a whole: a range of 64,000 lines takes 125
// system calls, and as many runs of line_write would take most of the time of a change.
func (l *LB) writeUnread(line uint32, s tables.Line) error {
	if err := l.prepareSteer(line, s); err != nil {
		return err
	}
	l.unread = append(l.unread, unreadLine{line, writtenLine{server: s, image: l.image(s)}})
	if len(l.unread) < linesAtOnce {
		return nil
	}
	return l.flushLines()
}

// flushLines writes what is left of writeUnread.
func (l *LB) flushLines() error {
	unread := l.unread
	l.unread = l.unread[:0]
	if len(unread) == 0 {
		return nil
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	// As octets: of anything else the library looks at every field.
	keys, values := make([]uint32, len(unread)), make([][]byte, 0, len(unread)*cpus)
	for i := range unread {
		keys[i] = unread[i].line
		image := (*[unsafe.Sizeof(bpf.Line{})]byte)(unsafe.Pointer(&unread[i].is.image))[:]
		for range cpus {
			values = append(values, image)
		}
	}
	if _, err := l.set.Maps[mapLines].BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("%d lines from %d on: %w", len(keys), keys[0], err)
	}
	for _, u := range unread {
		l.written[u.line] = u.is
	}
	return nil
}

// lineRun is a run of line_write that is to come, and whose line it makes.
type lineRun struct {
	write  bpf.LineWrite
	server tables.Line
}

// runGathered writes the lines that packets name and that change: one by one, since
// counters stand in them, and all processors at it.
func (l *LB) runGathered() error {
	runs := l.gathered
	l.gathered = nil
	done := make([]error, len(runs))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(runs)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(runs)); i = next.Add(1) - 1 {
				done[i] = l.runLine(runs[i].write)
			}
		})
	}
	all.Wait()
	for i, r := range runs {
		if done[i] == nil {
			l.written[r.write.Index] = writtenLine{server: r.server, image: r.write.Line}
		}
	}
	return errors.Join(done...)
}
