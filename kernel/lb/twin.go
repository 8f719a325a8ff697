package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/model"
)

// XDP actions, as a test run returns them.
const (
	actAborted = iota
	actDrop
	actPass
	actTX
	actRedirect
)

// Twin is the balancer's XDP program with maps of its own, at a clock that
// stands still: what it is given changes nothing outside, and gives the same
// result every time. `fairlead trace` runs packets through it, and the
// differential tests hold it against scheme/model. Not for concurrent use;
// its per-CPU state is that of the CPU it runs on, so callers that run more
// than one packet lock themselves to a CPU.
type Twin struct {
	set          *objects
	asks, shared *ringbuf.Reader
	// counted is what stood in `reasons` after the last packet: by reason,
	// then by CPU.
	counted []bpf.Count

	// Constants of the program.
	source4, source6 netip.Prefix
	gueChecksum6     bool
	steering         bool
	tierAddr         netip.Addr
	askKey           hash.Key
}

// twinSize is what the maps hold; zero fields are 1.
type twinSize struct{ lines, tableEntries, flowSets, vipIDs, steers, seats, rateSets uint32 }

// newTwin loads the program of this build with the given constants, in which
// the clock's are replaced.
func newTwin(size twinSize, constants func(*ebpf.CollectionSpec) error) (*Twin, error) {
	spec, err := bpf.LoadLB()
	if err != nil {
		return nil, fmt.Errorf("read the balancer's programs: %w", err)
	}
	for name := range spec.Programs {
		if name != progLB && name != progFlowWrite && name != progFlowSweep {
			delete(spec.Programs, name)
		}
	}
	for name, n := range map[string]uint32{mapLines: size.lines, mapConns: size.lines, mapTables: size.tableEntries,
		mapFlows: size.flowSets, mapVIPCPU: size.vipIDs, mapSteers: size.steers, mapRateSources: size.rateSets} {
		spec.Maps[name].MaxEntries = max(n, 1)
	}
	sizeSeats(spec, max(size.seats, 1))
	if err := constants(spec); err != nil {
		return nil, err
	}
	// shared ms = jiffies * 0 + clock_base: SetClock decides alone.
	if err := kernel.SetConstants(spec, map[string]any{"jiffy_mult": uint64(0), "flow_sets": max(size.flowSets, 1), "seat_count": max(size.seats, 1), "rate_sets": max(size.rateSets, 1)}); err != nil {
		return nil, err
	}
	t := &Twin{}
	if err := t.readConstants(spec); err != nil {
		return nil, err
	}
	set, err := kernel.Load(spec, "a copy of the balancer's program", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	t.set = &objects{Set: set}
	for name, r := range map[string]**ringbuf.Reader{mapAsks: &t.asks, mapShared: &t.shared} {
		if *r, err = ringbuf.NewReader(t.set.Maps[name]); err != nil {
			t.Close()
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return t, nil
}

// Close frees the copy.
func (t *Twin) Close() {
	for _, r := range []*ringbuf.Reader{t.asks, t.shared} {
		if r != nil {
			r.Close()
		}
	}
	t.set.close()
}

// SetClock makes the shared clock stand at ms.
func (t *Twin) SetClock(ms uint32) error {
	c, err := t.set.readControl()
	if err != nil {
		return err
	}
	c.ClockBase = ms
	return t.set.writeAt(mapControl, 0, &c)
}

// TwinRun is what the program did with one frame.
type TwinRun struct {
	Action uint32 // XDP action
	Output []byte
	// Reason is the reason that was counted, bpf.Known where none was.
	Reason bpf.Reason
	// Bytes is what was counted under it.
	Bytes uint64
	// Ask is the packet that went to the ring for all servers.
	Ask    []byte
	AskVIP uint32
	// Share is the flow that the other balancers are told; nil: none.
	Share *model.Shared
	// Took is the kernel's own measure of the run.
	Took time.Duration
}

// Verdict is the action in the model's words.
func (r TwinRun) Verdict() model.Verdict {
	switch r.Action {
	case actPass:
		return model.Pass
	case actTX, actRedirect:
		return model.Send
	}
	return model.Drop
}

// ActionName is the action's name.
func (r TwinRun) ActionName() string {
	if int(r.Action) < len(actionNames) {
		return actionNames[r.Action]
	}
	return fmt.Sprint("action ", r.Action)
}

var actionNames = [...]string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}

// A test run takes a whole Ethernet header, and keeps what does not fit one
// page (4,096 less 256 headroom and 320 behind) where the program cannot see
// it.
const (
	minRun = 14
	maxRun = 3500
)

// Run sends a frame (14 to 3,500 bytes) through the program. Its state goes
// on from packet to packet.
func (t *Twin) Run(frame []byte) (TwinRun, error) {
	var r TwinRun
	if len(frame) < minRun || len(frame) > maxRun {
		return r, fmt.Errorf("a frame of %d bytes: the kernel's test run takes %d to %d", len(frame), minRun, maxRun)
	}
	out := make([]byte, len(frame)+512)
	o := &ebpf.RunOptions{Data: frame, DataOut: out}
	action, err := t.set.Programs[progLB].Run(o)
	if err != nil {
		return r, fmt.Errorf("test run of %d bytes: %w", len(frame), err)
	}
	r.Action, r.Output = action, o.DataOut
	if err := t.takeReason(&r); err != nil {
		return r, err
	}
	if err := t.takeAsk(&r); err != nil {
		return r, err
	}
	return r, t.takeShare(&r)
}

// reasons is all that was ever counted, by reason and CPU.
func (t *Twin) reasons() ([]bpf.Count, error) {
	m := t.set.Maps[mapReasons]
	keys, now := make([]uint32, m.MaxEntries()), make([]bpf.Count, int(m.MaxEntries())*ebpf.MustPossibleCPU())
	var cursor ebpf.MapBatchCursor
	if _, err := m.BatchLookup(&cursor, keys, now, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("map %s: %w", mapReasons, err)
	}
	return now, nil
}

// takeReason reads what was counted since the last time.
func (t *Twin) takeReason(r *TwinRun) error {
	now, err := t.reasons()
	if err != nil {
		return err
	}
	cpus := ebpf.MustPossibleCPU()
	if t.counted == nil {
		t.counted = make([]bpf.Count, len(now))
	}
	r.Reason = bpf.Known
	for i, c := range now {
		before := t.counted[i]
		if c.Packets == before.Packets {
			continue
		}
		if r.Reason != bpf.Known || c.Packets != before.Packets+1 {
			return fmt.Errorf("a packet was counted more than once: under %v and %v", model.ReasonName(r.Reason), model.ReasonName(bpf.Reason(i/cpus)))
		}
		r.Reason, r.Bytes = bpf.Reason(i/cpus), c.Bytes-before.Bytes
	}
	t.counted = now
	return nil
}

func (t *Twin) takeAsk(r *TwinRun) error {
	if r.Reason != bpf.AskRST && r.Reason != bpf.AskICMP {
		return nil
	}
	t.asks.SetDeadline(time.Now().Add(time.Second))
	record, err := t.asks.Read()
	if err != nil {
		return fmt.Errorf("%v was counted, but nothing is in the ring: %w", model.ReasonName(r.Reason), err)
	}
	var ask bpf.Ask
	if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &ask); err != nil {
		return fmt.Errorf("map %s: %w", mapAsks, err)
	}
	if int(ask.Length) > len(ask.Packet) {
		return errors.New("an asked packet is longer than its record")
	}
	r.Ask, r.AskVIP = ask.Packet[:ask.Length], ask.VipId
	return nil
}

func (t *Twin) takeShare(r *TwinRun) error {
	if t.shared.AvailableBytes() == 0 {
		return nil
	}
	record, err := t.shared.Read()
	if err != nil {
		return fmt.Errorf("map %s: %w", mapShared, err)
	}
	var s bpf.Shared
	if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &s); err != nil {
		return fmt.Errorf("map %s: %w", mapShared, err)
	}
	if t.shared.AvailableBytes() != 0 {
		return errors.New("one packet told the other balancers of two flows")
	}
	r.Share = &model.Shared{X: s.X, Slot: int(s.Slot), State: jet.State(s.State), TCP: s.Tcp != 0, VIP: s.VipId}
	return nil
}

// OneCPU keeps the calling goroutine on the processor that it runs on, whose
// per-CPU state its packets then meet, until release is called.
func OneCPU() (cpu int, release func(), err error) {
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err = unix.SchedGetaffinity(0, &before); err == nil {
		for !before.IsSet(cpu) {
			cpu++
		}
		one.Set(cpu)
		err = unix.SchedSetaffinity(0, &one)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return 0, nil, fmt.Errorf("stay on one processor: %w", err)
	}
	return cpu, func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}, nil
}
