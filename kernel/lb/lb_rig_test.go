package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// Actions of XDP.
const (
	xdpAborted = iota
	xdpDrop
	xdpPass
	xdpTX
	xdpRedirect
)

const (
	rigLines  = 1024
	rigTables = 4096
	rigFlows  = 1024      // buckets
	rigNow    = 5_000_000 // shared ms: jiffies do not count in a rig
)

// rig is the balancer's program with tables filled by hand, packet in and
// packet out by test runs: no interface, no daemon.
type rig struct {
	t       *testing.T
	o       bpf.LBObjects
	vips    [2][bpf.VIPLines]bpf.VIP
	seed    uint64
	keys    []tables.Key
	entries []bpf.VIP
	lines   uint32 // next free
	tables  uint32
	ways    uint32 // entries of `inputs`; 0: every frame is taken
}

// rigVIP is what a test says about a VIP.
type rigVIP struct {
	addr    netip.Addr
	port    uint16
	proto   uint8
	scheme  bpf.Scheme
	policy  bpf.Policy
	flags   uint8
	bits    int
	servers []bpf.Line
	weights []uint32
	noNew   map[int]bool // slots without an entry in the policy's table and the hash
	// tracked: every connection is, as if a server on standby might take it.
	tracked bool
}

var (
	rigHash = hash.Key{0x0123456789abcdef, 0xfedcba9876543210}
	rigKeys = [2]hash.Key{{1, 2}, {3, 4}}
)

// rigObjects are kept and emptied from test to test: verifying the program
// takes most of a test's time. One for each value of the constant that varies.
var rigObjects = map[bool]*bpf.LBObjects{}

func newRig(t *testing.T) *rig { return newRigOf(t, false) }

// newRigOf is newRig with the setting gue_checksum. The rig before ends.
func newRigOf(t *testing.T, gueChecksum6 bool) *rig {
	t.Helper()
	if rigObjects[gueChecksum6] == nil {
		rigObjects[gueChecksum6] = loadRig(t, gueChecksum6)
	}
	r := &rig{t: t, lines: 1, o: *rigObjects[gueChecksum6]}
	if err := errors.Join(clearArray[bpf.Line](r.o.Lines), clearArray[int32](r.o.Conns), clearArray[uint64](r.o.Tables),
		clearArray[bpf.FlowSet](r.o.Flows), clearArray[bpf.VIPCPU](r.o.VipCpu), clearArray[bpf.Bound](r.o.AskBound), clearArray[bpf.Bound](r.o.AskSources)); err != nil {
		t.Fatal(err)
	}
	asks := r.asks()
	asks.SetDeadline(time.Now())
	for {
		if _, err := asks.Read(); err != nil {
			return r
		}
	}
}

func loadRig(t *testing.T, gueChecksum6 bool) *bpf.LBObjects {
	if os.Geteuid() != 0 {
		t.Fatal("this test loads BPF programs: run it as root")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.LoadLB()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps["lines"].MaxEntries = rigLines
	spec.Maps["conns"].MaxEntries = rigLines
	spec.Maps["tables"].MaxEntries = rigTables
	spec.Maps["flows"].MaxEntries = rigFlows
	c := map[string]any{"flow_sets": uint32(rigFlows), "jiffy_mult": uint64(0), "ask_key": hostileAskKey,
		"source4": be32(netip.MustParseAddr("10.254.0.0")), "source4_mask": be32(netip.MustParseAddr("0.0.255.255")),
		"source6": words(netip.MustParseAddr("fd00:254::")), "source6_mask": words(netip.MustParseAddr("::ffff:ffff"))}
	if gueChecksum6 {
		c["gue6_checksum"] = uint32(1)
	}
	if err := kernel.SetConstants(spec, c); err != nil {
		t.Fatal(err)
	}
	o := new(bpf.LBObjects)
	if err := spec.LoadAndAssign(o, nil); err != nil {
		t.Fatalf("load: %+v", err)
	}
	return o
}

// clearArray makes every element of an array map zero, of a per-CPU one on
// every CPU.
func clearArray[V any](m *ebpf.Map) error {
	keys := make([]uint32, m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	n := len(keys)
	if m.Type() == ebpf.PerCPUArray {
		n *= ebpf.MustPossibleCPU()
	}
	_, err := m.BatchUpdate(keys, make([]V, n), nil)
	return err
}

func be32(a netip.Addr) uint32 { b := a.As4(); return binary.LittleEndian.Uint32(b[:]) }

func words(a netip.Addr) [2]uint64 {
	return tables.Key{Addr: a}.Words()
}

// server is a line's image: forwarding to addr over next hop 02::n on the
// loopback interface, where test runs arrive (so that the verdict is XDP_TX).
func server(addr string, forwarding bpf.Forwarding) bpf.Line {
	a := netip.MustParseAddr(addr)
	l := bpf.Line{Ifindex: 1, Mtu: 1500, Addr: words(a)}
	mac := [8]byte{2, 0, 0, 0, 9, a.AsSlice()[len(a.AsSlice())-1], byte(forwarding), 0}
	if a.Is6() {
		mac[7] |= bpf.LineIPV6
	}
	l.MacDst = binary.LittleEndian.Uint64(mac[:])
	src := [8]byte{2, 0, 0, 0, 0, 2} // what frames are addressed to
	l.MacSrc = binary.LittleEndian.Uint64(src[:])
	return l
}

func servers(n int, forwarding bpf.Forwarding) (s []bpf.Line) {
	for i := range n {
		s = append(s, server(fmt.Sprintf("10.1.0.%d", i+1), forwarding))
	}
	return s
}

// add puts a VIP into the table that commit builds. It returns the VIP's id.
func (r *rig) add(v rigVIP) uint32 {
	r.t.Helper()
	if v.bits == 0 {
		v.bits = 12
	}
	id := uint32(len(r.entries) + 1)
	e := bpf.VIP{
		Addr: words(v.addr), Proto: v.proto, Used: 1, Id: id,
		FirstLine: r.lines, Slots: uint32(len(v.servers)),
		Key:     [2][2]uint64{rigKeys[0], rigKeys[1]},
		HashKey: rigHash, Scheme: uint8(v.scheme), Policy: uint8(v.policy),
		Flags: v.flags, Epochs: 3, Shift: uint8(32 - v.bits),
	}
	k := tables.Key{Addr: v.addr, Port: v.port, Proto: v.proto}
	e.Port = k.PortBE()
	for i, s := range v.servers {
		r.writeLine(r.lines+uint32(i), s, true)
	}
	r.lines += uint32(len(v.servers))
	e.NewTable = r.tables
	var rows []uint32
	for i := range v.servers {
		if v.noNew[i] {
			continue
		}
		w := uint32(1)
		if v.weights != nil {
			w = v.weights[i]
		}
		r.putTable(policy.Entry(uint16(i), int(w)))
		e.NewSize++
		rows = append(rows, chash.Entry(i, i, v.tracked))
	}
	e.HashTable, e.HashSize = r.tables, uint32(len(rows))
	for _, row := range rows {
		r.putTable(row)
	}
	r.keys, r.entries = append(r.keys, k), append(r.entries, e)
	return id
}

// putTable appends to `tables`.
func (r *rig) putTable(entry uint32) {
	r.t.Helper()
	if err := r.o.Tables.Put(r.tables, uint64(entry)); err != nil {
		r.t.Fatal(err)
	}
	r.tables++
}

// drain takes a VIP's last server out of the policy's table and the hash: its
// line says so, and its rows send new connections to the first server. It
// holds what was not tracked, unless it is to be known by the flow table only.
// The returned function undoes it.
func (r *rig) drain(entry int, holds bool) (undo func()) {
	r.t.Helper()
	was := r.entries[entry]
	last := int(was.Slots) - 1
	line := was.FirstLine + uint32(last)
	open := r.line(line)
	open.Packets, open.Bytes, open.Opened = 0, 0, 0
	closed := open
	closed.MacDst |= bpf.LineClosed << 56
	rows := map[uint32]uint64{}
	for i := was.HashTable; i < was.HashTable+was.HashSize; i++ {
		var row uint64
		if err := r.o.Tables.Lookup(i, &row); err != nil {
			r.t.Fatal(err)
		}
		if rows[i] = row; chash.EntrySlot(uint32(row)) != last {
			continue
		}
		held := 0
		if holds {
			held = last
		}
		if err := r.o.Tables.Put(i, uint64(chash.Entry(0, held, true))); err != nil {
			r.t.Fatal(err)
		}
	}
	r.writeLine(line, closed, false)
	r.entries[entry].NewSize--
	r.commit()
	return func() {
		for i, row := range rows {
			if err := r.o.Tables.Put(i, row); err != nil {
				r.t.Fatal(err)
			}
		}
		r.writeLine(line, open, false)
		r.entries[entry] = was
		r.commit()
	}
}

// address adds the entry that every VIP's address has.
func (r *rig) address(a netip.Addr, flags uint8) {
	proto := uint8(wire.ProtoICMP)
	if a.Is6() {
		proto = wire.ProtoICMPv6
	}
	r.add(rigVIP{addr: a, proto: proto, flags: flags | 8})
}

func (r *rig) commit() {
	r.t.Helper()
	at, seed, err := tables.Build(r.keys, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.vips[0] = [bpf.VIPLines]bpf.VIP{}
	for i, line := range at {
		r.vips[0][line] = r.entries[i]
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&r.vips)), unsafe.Sizeof(r.vips))
	if err := r.o.Vips.Set(b); err != nil {
		r.t.Fatal(err)
	}
	r.seed = seed
	r.setClock(rigNow)
}

// setClock sets the shared clock, which stands still.
func (r *rig) setClock(ms uint32) {
	r.t.Helper()
	c := bpf.Control{ClockBase: ms, VipSeed: [2]uint64{r.seed, r.seed}, AskRate: 5, Inputs: r.ways}
	if err := r.o.Control.Set(c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) writeLine(index uint32, l bpf.Line, reset bool) {
	r.t.Helper()
	w := bpf.LineWrite{Index: index, Line: l}
	if reset {
		w.Reset = 1
	}
	if _, err := r.o.LineWrite.Run(&ebpf.RunOptions{Context: w}); err != nil {
		r.t.Fatal(err)
	}
}

// run sends one frame through the program.
func (r *rig) run(frame []byte) (action uint32, out []byte) {
	r.t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1}
	action, err := r.o.Lb.Run(&o)
	if err != nil {
		r.t.Fatalf("run %d bytes: %v", len(frame), err)
	}
	return action, o.DataOut
}

// reasons are the counters of packets, by reason.
func (r *rig) reasons() (n [bpf.ReasonCount]uint64) {
	r.t.Helper()
	for i := range n {
		var c []bpf.Count
		if err := r.o.Reasons.Lookup(uint32(i), &c); err != nil {
			r.t.Fatal(err)
		}
		for _, x := range c {
			n[i] += x.Packets
		}
	}
	return n
}

// why runs a frame and says under which reason it was counted:
// bpf.ReasonCount for a known connection.
func (r *rig) why(frame []byte) (reason bpf.Reason, action uint32, out []byte) {
	r.t.Helper()
	before := r.reasons()
	action, out = r.run(frame)
	reason = bpf.ReasonCount
	for i, n := range r.reasons() {
		switch n - before[i] {
		case 0:
		case 1:
			if reason != bpf.ReasonCount {
				r.t.Fatalf("counted twice: %d and %d", reason, i)
			}
			reason = bpf.Reason(i)
		default:
			r.t.Fatalf("reason %d counted %d times", i, n-before[i])
		}
	}
	return reason, action, out
}

func (r *rig) line(index uint32) (sum bpf.Line) {
	r.t.Helper()
	var l []bpf.Line
	if err := r.o.Lines.Lookup(index, &l); err != nil {
		r.t.Fatal(err)
	}
	sum = l[0]
	for _, x := range l[1:] {
		sum.Packets += x.Packets
		sum.Bytes += x.Bytes
		sum.Opened += x.Opened
	}
	return sum
}

func (r *rig) conns(index uint32) (n int32) {
	r.t.Helper()
	if err := r.o.Conns.Lookup(index, &n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) asks() *ringbuf.Reader {
	r.t.Helper()
	rd, err := ringbuf.NewReader(r.o.Asks)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { rd.Close() })
	return rd
}

// echo is the TSecr of a client whose server stands on slot.
func echo(bits int, epoch, slot uint32, src netip.AddrPort, dport uint16, age uint32) uint32 {
	l := cheetah.Layout{Bits: bits}
	return l.WireTS(l.Encode(hash.Tuple(rigKeys[epoch], src, dport), slot, epoch), rigNow-age)
}

// inner takes the tunnel off a frame that the program sent, and checks its
// link addresses and its checksums.
func inner(t *testing.T, out []byte, tag uint16) ([]byte, wire.Outer) {
	t.Helper()
	p := wire.Parse(out)
	if p.Err != nil {
		t.Fatalf("what came out does not parse: %v\n% x", p.Err, out)
	}
	if bad := p.ChecksumErrors(); len(bad) != 0 {
		t.Fatalf("checksums of what came out: %v\n% x", bad, out)
	}
	if p.VLAN != tag {
		t.Fatalf("tag %d, want %d", p.VLAN, tag)
	}
	in, o, err := wire.Decapsulate(p.Packet())
	if err != nil {
		t.Fatalf("no tunnel: %v\n% x", err, out)
	}
	return in, o
}
