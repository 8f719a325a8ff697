package bench

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/wire"
)

// fig5Way is a way of a packet that figure 5 compares.
type fig5Way struct {
	name string
	vip  string // of vips
	// program is of the bench's own; "": the balancer's.
	program string
	keeps   bool       // something of each connection, so that it must see all packets
	full    bool       // its VIP is on the balancer with the large flow table
	reason  bpf.Reason // under which all its packets are counted; 0: new ones as such
}

// fig5Ways are in the order of a result: the paper's first.
var fig5Ways = []fig5Way{
	{name: "floor", vip: "rr", program: "bench_floor"},
	{name: "hash-rss", vip: "rr", program: "fig5_by_rss"},
	{name: "cheetah", vip: "rr"},
	{name: "hash-crc", vip: "rr", program: "fig5_by_crc"},
	{name: "cheetah-stateful", vip: "stateful", keeps: true},
	{name: "beamer", vip: "beamer"},
	{name: "cuckoo", vip: "rr", program: "fig5_cuckoo", keeps: true},
	{name: "hash-toeplitz", vip: "rr", program: "fig5_by_toeplitz"},
	{name: "stateless", vip: "stateless", reason: bpf.ForwardStateless},
	{name: "beamer-moved", vip: "beamer-moved"},
	{name: "jet", vip: "jet", keeps: true},
	{name: "full-ct", vip: "full-ct", keeps: true, full: true},
	{name: "bpf-hash", vip: "rr", program: "fig5_hash", keeps: true},
	{name: "bpf-lru", vip: "rr", program: "fig5_lru", keeps: true},
}

// Room of what remembers connections, as a multiple of those that are open: a third
// more where an entry goes with its connection, twice as much where it stays until it
// is pushed out. The flow table of full-ct has four times as much, as its other cases.
func roomToDelete(live int) int { return live + live/3 }
func roomToStay(live int) int   { return 2 * live }

// fig5Script is how many packets are sent at once.
const fig5Script = 1 << 18

// fig5Program is a loaded program with the harness's maps.
type fig5Program struct {
	*balancer
	c      *ebpf.Collection
	script *ebpf.Memory
	close  func()
}

// fig5Rig is all that is loaded.
type fig5Rig struct {
	by    [2]*fig5Program // [1]: with the large flow table
	run   fig5ScriptRun
	frame []byte
}

func openFig5Rig(live, cpu int) (r *fig5Rig, err error) {
	r = &fig5Rig{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.frame, r.run = fig5Frames()
	if r.by[0], err = openFig5Program([]string{"rr", "stateful", "beamer", "beamer-moved", "jet", "stateless"}, flowLimit, live, cpu); err != nil {
		return r, err
	}
	if r.by[1], err = openFig5Program([]string{"full-ct"}, 4*live, 0, cpu, "bench_lb"); err != nil {
		return r, err
	}
	return r, nil
}

func (r *fig5Rig) close() {
	for _, p := range r.by {
		if p != nil {
			p.close()
		}
	}
}

// openFig5Program loads those programs of the object that are named, none: all, with
// VIPs of these names, a flow table of limit entries, and room for so many connections
// in what else keeps them.
func openFig5Program(names []string, limit, live, cpu int, programs ...string) (*fig5Program, error) {
	spec, err := loadFig5()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	b, err := prepare(spec, names, limit)
	if err != nil {
		return nil, err
	}
	buckets := max(roomToDelete(live)/4, 1)
	seatCount := seats.Size(roomToDelete(live))
	for name, n := range map[string]int{"fig5_script": fig5Script, "seats": seatCount, "seats_about": seatCount, "seats_taken": seatCount / 64,
		"cuckoo": buckets, "tracked_hash": max(roomToDelete(live), 1), "tracked_lru": max(roomToStay(live), 1)} {
		spec.Maps[name].MaxEntries = uint32(n)
	}
	if err := kernel.SetConstants(spec, map[string]any{"seat_count": uint32(seatCount), "cuckoo_buckets": uint32(buckets), "cuckoo_cpu": uint32(cpu)}); err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Programs, func(name string, p *ebpf.ProgramSpec) bool {
		return p.Type == ebpf.XDP && len(programs) > 0 && !slices.Contains(programs, name)
	})
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	p := &fig5Program{balancer: b, c: c, close: c.Close}
	// What fills the other cases' balancer fills this one.
	b.o.LineWrite, b.o.Clock = c.Programs["line_write"], c.Programs["clock"]
	b.o.Control, b.o.Vips, b.o.InputCache = c.Variables["control"], c.Variables["vips"], c.Variables["input_cache"]
	b.o.Tables, b.o.Steers, b.o.Reasons, b.o.VipCpu = c.Maps["tables"], c.Maps["steers"], c.Maps["reasons"], c.Maps["vip_cpu"]
	b.o.FloorVips, b.o.FloorRows, b.o.FloorServers = c.Maps["floor_vips"], c.Maps["floor_rows"], c.Maps["floor_servers"]
	toeplitzTable, crcTable := linear(toeplitz), linear(crc32c)
	err = b.fill(names, b.refresh, func() error { return c.Variables["linear_toeplitz"].Set(toeplitzTable) },
		func() error { return c.Variables["linear_crc"].Set(crcTable) },
		func() (err error) { p.script, err = c.Maps["fig5_script"].Memory(); return err })
	if err != nil {
		c.Close()
		return nil, err
	}
	var all []*ebpf.Program
	for _, q := range c.Programs {
		if q.Type() == ebpf.XDP {
			all = append(all, q)
		}
	}
	release, err := hold(all...)
	if err != nil {
		c.Close()
		return nil, err
	}
	p.close = func() { release(); c.Close() }
	return p, nil
}

// fig5Frames is a frame, and what of it differs by kind of packet. All have one
// length: what a SYN has more of options, the others have of data.
func fig5Frames() (frame []byte, run fig5ScriptRun) {
	src := netip.MustParseAddrPort("198.51.100.1:1024")
	for kind, t := range []wire.TCP{
		kindSYN:     {Flags: wire.SYN, Options: wire.SYNOptions(1460, 1)},
		kindSegment: {Flags: wire.ACK, Options: wire.Timestamp(1, 1), Payload: make([]byte, 8)},
		kindFIN:     {Flags: wire.ACK | wire.FIN, Options: wire.Timestamp(1, 1), Payload: make([]byte, 8)},
	} {
		t.Src, t.Dst = src, netip.AddrPortFrom(vips["rr"].addr, 80)
		frame = t.Frame()
		for i := range run.Tcp[kind] {
			run.Tcp[kind][i] = binary.LittleEndian.Uint64(frame[42+8*i:])
		}
		run.AtEcr[kind] = 34 + 20 + 8
	}
	run.AtEcr[kindSYN] += 4
	run.Length = uint32(len(frame))
	run.Saddr = binary.LittleEndian.Uint32(frame[26:])
	return frame, run
}

// memory is what the maps take, as the kernel says, in bytes.
func (r *fig5Rig) memory() (sum int, err error) {
	for _, p := range r.by {
		for name, m := range p.c.Maps {
			info, err := m.Info()
			if err != nil {
				return 0, fmt.Errorf("ask about map %s: %w", name, err)
			}
			if n, ok := info.Memlock(); ok {
				sum += int(n)
			}
		}
	}
	return sum, nil
}

// load writes packets where the programs read them.
func (r *fig5Rig) load(packets []fig5ScriptPacket) error {
	for _, p := range r.by {
		if _, err := p.script.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&packets[0])), len(packets)*int(unsafe.Sizeof(packets[0]))), 0); err != nil {
			return fmt.Errorf("write the packets: %w", err)
		}
	}
	return nil
}

// of is where a way's program is, and its name there.
func (r *fig5Rig) of(w fig5Way) (*fig5Program, string) {
	p := r.by[0]
	if w.full {
		p = r.by[1]
	}
	return p, cmp.Or(w.program, "bench_lb")
}

// seen is what became of a way's packets.
type seen struct {
	counts  counts
	tracked fig5TrackedCounts
	wrong   uint64 // seats that were another's, or none
}

func (p *fig5Program) seen() (s seen, err error) {
	if s.counts, err = p.count(); err != nil {
		return s, err
	}
	if err = p.c.Variables["tracked_count"].Get(&s.tracked); err != nil {
		return s, err
	}
	for _, id := range p.ids {
		var c []bpf.VIPCPU
		if err := p.o.VipCpu.Lookup(id, &c); err != nil {
			return s, fmt.Errorf("read a VIP's counters: %w", err)
		}
		for _, x := range c {
			s.wrong += x.SeatFull + x.SeatWrong
		}
	}
	return s, nil
}

// send runs the first n packets of the script through a way, at that time of the shared
// clock (ms), of which opened are SYNs. It returns nanoseconds a packet, and which share
// of the packets of open connections found no entry of theirs.
func (r *fig5Rig) send(w fig5Way, n, opened int, now uint32) (ns, missed float64, err error) {
	p, program := r.of(w)
	before, err := p.seen()
	if err != nil {
		return 0, 0, err
	}
	if ns, err = r.time(p, program, w.vip, xdpTX, n, now); err != nil {
		return 0, 0, err
	}
	after, err := p.seen()
	if err != nil {
		return 0, 0, err
	}
	missed, err = w.judge(before, after, n, opened)
	return ns, missed, err
}

// time is the run itself: nanoseconds a packet.
func (r *fig5Rig) time(p *fig5Program, program, vip string, action uint32, n int, now uint32) (float64, error) {
	run := r.run
	daddr := vips[vip].addr.As4()
	run.Daddr = binary.LittleEndian.Uint32(daddr[:])
	run.Check = r.check(daddr)
	if vip == "stateful" {
		run.Cookie = 1
	}
	err := errors.Join(p.setClock(now), p.c.Variables["fig5_case"].Set(run), p.c.Variables["fig5_next"].Set(uint32(0)))
	if err != nil {
		return 0, err
	}
	again := false
	var d time.Duration
	err = unsignalled(func() (err error) {
		_, d, err = p.c.Programs[program].Benchmark(r.frame, n/packetsPerRun, func() { again = true })
		return err
	})
	if err != nil {
		return 0, err
	}
	if again {
		return 0, errors.New("a signal interrupted the run, which the packets of a connection do not survive")
	}
	if err := p.c.Variables["fig5_case"].Get(&run); err != nil {
		return 0, err
	}
	if got := run.Verdicts[action]; got != uint32(n) {
		return 0, fmt.Errorf("%d of %d packets had verdict %d (%v): this measures something else", got, n, action, run.Verdicts)
	}
	return float64(d.Nanoseconds()) / packetsPerRun, nil
}

// unsignalled runs f on a thread that no signal reaches: one would end a test run in
// the middle, and the library would begin it anew, with the first packets once more.
func unsignalled(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, was unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &was); err != nil {
		return fmt.Errorf("hold signals off: %w", err)
	}
	return errors.Join(f(), unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil))
}

// check is the checksum of the frame's IP header with another destination.
func (r *fig5Rig) check(daddr [4]byte) uint32 {
	h := append([]byte(nil), r.frame[14:34]...)
	h[10], h[11] = 0, 0
	copy(h[16:], daddr[:])
	sum := uint32(0)
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.LittleEndian.Uint16(h[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint32(^uint16(sum))
}

// judge holds what was counted against what the way says of itself.
func (w fig5Way) judge(before, after seen, n, opened int) (missed float64, err error) {
	rest := after.counts.since(before.counts)
	others := n - opened
	if w.program != "" {
		t := after.tracked
		if full := t.Full - before.tracked.Full; full > uint64(opened/100) {
			return 0, fmt.Errorf("%d of %d connections found no room", full, opened)
		}
		return float64(t.Missed-before.tracked.Missed) / float64(others), nil
	}
	for i, x := range rest.reasons {
		want := uint64(0)
		switch {
		case w.reason == 0 && bpf.Reason(i) == bpf.ForwardNew:
			want = uint64(opened)
		case w.reason != 0 && bpf.Reason(i) == w.reason:
			want = uint64(n)
		}
		if x != want {
			return 0, fmt.Errorf("%d packets were counted under reason %d, not %d: this measures something else", x, i, want)
		}
	}
	switch {
	case w.full:
		missed = 1 - float64(rest.hits)/float64(others)
	case w.vip == "stateful":
		missed = float64(after.wrong-before.wrong) / float64(n)
		if missed > 0.01 { // a few find their partition full
			return 0, fmt.Errorf("%.3f of the packets found no seat of theirs: this measures something else", missed)
		}
	}
	return max(missed, 0), nil
}

// lastCPU is the one that pin chooses.
func lastCPU() (int, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return 0, fmt.Errorf("read the CPU affinity: %w", err)
	}
	last := -1
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			last = cpu
		}
	}
	return last, nil
}
