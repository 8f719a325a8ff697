package lb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/jet"
)

// FlowRecord is a tracked flow as balancers tell it each other.
type FlowRecord struct {
	// Key places the flow in the table, and is the same in every balancer.
	// One that Flows returns was rebuilt from a table of so many sets:
	// it fits tables of that size alone.
	Key   uint64
	VIP   uint32 // id of the VIP; 0: not known
	Slot  uint16 // 0 to 16383
	State uint8  // FlowNew and so on
}

// States of a flow (enum fl_flow_state).
const (
	FlowNew       = uint8(bpf.FlowNew)       // one packet so far
	FlowConfirmed = uint8(bpf.FlowConfirmed) // TCP: it went on
	FlowFading    = uint8(bpf.FlowFading)    // TCP: it went on, and a FIN or RST was seen
	FlowDatagram  = uint8(bpf.FlowDatagram)  // UDP: it went on
)

// FlowStats is what a sweep found in the flow table.
type FlowStats struct {
	Used      uint64 // live entries,
	Confirmed uint64 // of these, connections and flows of datagrams that went on
	Expired   uint64 // entries that were cleared
	Limit     uint64 // entries that the table has room for
}

// sweepSets is how many sets one call sweeps: about a millisecond.
const sweepSets = 1 << 14

// running is the set that packets use.
func (l *LB) running() *objects {
	if l.old != nil && l.oldReadable && !l.attached {
		return l.old
	}
	return l.set
}

// FlowWrite brings flows that other balancers told into the table, where each
// stands under the same rules as a flow of our own, as if its packet had come
// now; a live confirmed entry that names another server stays. taken is how
// many were entered; the rest met such an entry, found their set full or are
// none that there can be. FlowWrite tells no other balancer.
func (l *LB) FlowWrite(records []FlowRecord) (taken int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return 0, errClosed
	}
	return l.running().writeFlows(records)
}

func (o *objects) writeFlows(records []FlowRecord) (taken int, err error) {
	var w bpf.FlowWrite
	flush := func() error {
		if w.Count == 0 {
			return nil
		}
		n, err := o.runFlowWrite(w)
		taken += n
		w.Count = 0
		return err
	}
	for _, r := range records {
		if int(r.Slot) >= maxFlowSlots || r.State > FlowDatagram {
			continue
		}
		w.Record[w.Count] = bpf.Shared{X: r.Key, Slot: r.Slot, State: r.State}
		if w.Count++; w.Count == bpf.FlowWrites {
			if err := flush(); err != nil {
				return taken, err
			}
		}
	}
	return taken, flush()
}

// maxFlowSlots is how many slots an entry can name.
const maxFlowSlots = jet.MaxSlot + 1

func (o *objects) runFlowWrite(w bpf.FlowWrite) (taken int, err error) {
	if err := o.call(progFlowWrite, w, &w); err != nil {
		return 0, fmt.Errorf("write flows: %w", err)
	}
	return int(w.Taken), nil
}

// call runs a syscall program; out, which may be nil, is the context after it.
func (o *objects) call(program string, in, out any) error {
	p := o.Programs[program]
	if p == nil {
		return fmt.Errorf("no program %s is loaded", program)
	}
	ret, err := p.Run(&ebpf.RunOptions{Context: in, ContextOut: out})
	if err == nil && ret != 0 {
		err = fmt.Errorf("program %s returned %d", program, ret)
	}
	return err
}

// FlowSweep clears the flow table's expired entries and counts the others.
// Packets go on meanwhile. Entries expire without it, too: it only says how
// many are left, and spares packets the search for one to replace.
func (l *LB) FlowSweep(ctx context.Context) (FlowStats, error) {
	var s FlowStats
	for first := uint32(0); ; first += sweepSets {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		more, err := l.sweepFrom(first, &s)
		if err != nil || !more {
			return s, err
		}
	}
}

// sweepFrom sweeps one stretch of sets and adds to s.
func (l *LB) sweepFrom(first uint32, s *FlowStats) (more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return false, errClosed
	}
	set := l.running()
	w := bpf.FlowSweep{First: first, Count: sweepSets}
	if err := set.call(progFlowSweep, w, &w); err != nil {
		return false, fmt.Errorf("sweep flows from set %d: %w", first, err)
	}
	s.Used += uint64(w.Used)
	s.Confirmed += uint64(w.Confirmed)
	s.Expired += uint64(w.Expired)
	sets := set.Maps[mapFlows].MaxEntries()
	if sets-first > sweepSets {
		return true, nil
	}
	s.Limit = uint64(sets) * jet.Ways
	l.flowStats, l.swept = *s, time.Now()
	return false, nil
}

// sweptAfter is when Status no longer takes the last sweep's word for the use
// of the flow table.
const sweptAfter = time.Minute

// usedFlows is for Status.
func (l *LB) usedFlows() FlowStats {
	l.mu.Lock()
	s, fresh := l.flowStats, time.Since(l.swept) < sweptAfter
	l.mu.Unlock()
	if fresh {
		return s
	}
	s, err := l.FlowSweep(context.Background())
	if err != nil && !errors.Is(err, errClosed) {
		l.log.Error("count the flows", "error", err)
	}
	return s
}

// sharedBatch bounds what Shared hands over at once.
const sharedBatch = 1000

// Shared hands flows that other balancers shall know to take until ctx ends,
// as they are confirmed, close, and from time to time live on. take must not
// keep the slice; while it runs the ring fills, and what finds it full counts
// as VIPCounters.ShareLost.
func (l *LB) Shared(ctx context.Context, take func([]FlowRecord)) error {
	l.mu.Lock()
	var r *ringbuf.Reader
	err := errClosed
	if l.set != nil {
		// Also while an older set is in force: of the same layout, they have
		// the ring in common.
		r, err = ringbuf.NewReader(l.set.Maps[mapShared])
	}
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("read shared flows: %w", err)
	}
	defer r.Close()
	defer context.AfterFunc(ctx, func() { r.Close() })()
	var rec ringbuf.Record
	var batch []FlowRecord
	for {
		if err := r.ReadInto(&rec); err != nil {
			if ctx.Err() != nil && errors.Is(err, os.ErrClosed) {
				return nil
			}
			return fmt.Errorf("read shared flows: %w", err)
		}
		var s bpf.Shared
		if _, err := binary.Decode(rec.RawSample, binary.NativeEndian, &s); err != nil {
			return fmt.Errorf("read shared flows: %w", err)
		}
		batch = append(batch, FlowRecord{Key: s.X, VIP: s.VipId, Slot: s.Slot, State: s.State})
		if rec.Remaining == 0 || len(batch) == sharedBatch {
			take(batch)
			batch = batch[:0]
		}
	}
}
