package lb

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/scheme/seats"
)

// Move has packets of connections go to another slot of their VIP than their cookies
// say, or by their cookies again: where is asked of each, and says to which slot;
// to seats.Any: back; false: it stays. f is called with each as it is then. What is
// closed or taken by another meanwhile is left out.
func (l *LB) Move(where func(*Connection) (to uint32, moves bool), f func(*Connection)) error {
	for first, more := uint32(0), true; more; first += sweptSeats {
		var err error
		if more, err = l.moveFrom(first, where, f); err != nil {
			return err
		}
	}
	return nil
}

func (l *LB) moveFrom(first uint32, where func(*Connection) (uint32, bool), f func(*Connection)) (more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.running()
	if set == nil {
		return false, errClosed
	}
	if l.nobodySits() {
		return false, nil
	}
	t, err := set.seatTable()
	if err != nil {
		return false, err
	}
	now, err := l.sharedNow(set)
	if err != nil {
		return false, err
	}
	open, err := set.openConnections()
	if err != nil {
		return false, err
	}
	defer open.close()
	n := uint32(len(t.Seats))
	t.Each(first, min(first+sweptSeats, n), func(e seats.Entry) bool {
		c := l.connection(&e, now)
		to, moves := where(&c)
		if !moves || !move(t, &e, to) {
			return true
		}
		from := c.Slot
		e.Word = t.Word(e.Index)
		e.About.Home = t.About[e.Index].Home
		c = l.connection(&e, now)
		// Its end is going to be counted where its packets go.
		if r := l.force.ranges[c.VIP]; from < r.Size && c.Slot < r.Size {
			open.add(r.First+from, -1)
			open.add(r.First+c.Slot, 1)
		}
		f(&c)
		return true
	})
	return first+sweptSeats < n, nil
}

// seatMoves is how often a move is tried of what packets change meanwhile.
const seatMoves = 8

// move moves, or moves back, the connection of e, unless it is over or where it should be.
func move(t *seats.Table, e *seats.Entry, to uint32) bool {
	for range seatMoves {
		w := t.Word(e.Index)
		switch {
		case w.Check() != e.Word.Check(): // another's by now
			return false
		case to == seats.Any:
			if !w.Moved() {
				return false
			}
			if t.Back(e.Index, w) {
				return true
			}
		case w.State() != e.Word.State() || w.Slot() == to || w.Slot() == seats.Any:
			return false
		case w.Moved() && t.About[e.Index].Home == to:
			if t.Back(e.Index, w) {
				return true
			}
		case t.Move(e.Index, w, to):
			return true
		}
	}
	return false
}

// opens counts open connections by line, in the memory that packets write.
type opens struct{ memory []byte }

func (o *objects) openConnections() (opens, error) {
	m := o.Maps[mapConns]
	size := pages(int(m.MaxEntries()) * arrayStride)
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return opens{}, fmt.Errorf("map %s: map %d bytes of it into memory: %w", mapConns, size, err)
	}
	return opens{b}, nil
}

func (o opens) add(line uint32, n int32) {
	open := (*int32)(unsafe.Pointer(&o.memory[int(line)*arrayStride]))
	if n > 0 || atomic.LoadInt32(open) > 0 { // as a FIN sent twice
		atomic.AddInt32(open, n)
	}
}

func (o opens) close() { _ = unix.Munmap(o.memory) } // it is a mapping of ours
