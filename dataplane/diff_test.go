package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/viptable"
	"github.com/fairlead/fairlead/wire"
)

// The program and its Go model are held together here: the same tables, the
// same packets, the same clock, and every step must agree in verdict, reason,
// server, output and in what is left behind.

const diffFlowBuckets = 64 // small, so that entries push each other out

// pair is the program and the model with the same tables and state.
type pair struct {
	t     *testing.T
	seed  uint64
	h     *hostile
	twin  *Twin
	state *model.State
	cpu   int
	count map[int]uint64 // packets by line
}

func newPair(t *testing.T, seed uint64) *pair {
	return newPairOf(t, seed, newHostile(rand.New(rand.NewPCG(seed, 0))))
}

func newPairOf(t *testing.T, seed uint64, h *hostile) *pair {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test runs BPF programs in the kernel: run it as root")
	}
	p := &pair{t: t, seed: seed, h: h, state: model.NewState(len(h.tables.Lines), diffFlowBuckets), count: map[int]uint64{}}
	cpu, release, err := OneCPU()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	p.cpu = cpu
	if p.twin, err = diffTwin(h.tables); err != nil {
		t.Fatal(err)
	}
	if err := p.fill(); err != nil {
		t.Fatal(err)
	}
	return p
}

// diffTwins are kept and emptied from test to test: verifying the program
// takes half a second. One for each value of the constant that varies.
var diffTwins = map[bool]*Twin{}

const diffLines, diffVIPs = 1100, 64

func diffTwin(tables *model.Tables) (*Twin, error) {
	t := diffTwins[tables.GUEChecksum6]
	if t == nil {
		var err error
		t, err = newTwin(twinSize{lines: diffLines, tableEntries: 1 << 14, flowBuckets: diffFlowBuckets, vipIDs: diffVIPs},
			func(spec *ebpf.CollectionSpec) error { return tableConstants(spec, tables) })
		if err != nil {
			return nil, err
		}
		diffTwins[tables.GUEChecksum6] = t
	}
	m := t.set.maps
	return t, errors.Join(t.set.writeAt(mapVIPs, 0, make([]byte, 2*vipHalf)), clearArray[int32](m[mapConns]),
		clearArray[lbFlBucket](m[mapFlows]), clearArray[lbFlVipCpu](m[mapVIPCPU]),
		clearArray[lbFlLine](m[mapLines]), clearArray[lbFlBound](m[lbMapAskBound]))
}

func tableConstants(spec *ebpf.CollectionSpec, t *model.Tables) error {
	l := &LB{o: Options{Source4: t.Source4, Source6: t.Source6}, asker: &asker{}}
	c, err := l.constants()
	if err != nil {
		return err
	}
	if t.GUEChecksum6 {
		c["gue6_checksum"] = uint32(1)
	}
	return setConstants(spec, c)
}

// fill writes the model's tables into half 1 of the program's.
func (p *pair) fill() error {
	const half = 1
	set, tables := p.twin.set, p.h.tables
	next := set.maps[mapTables].MaxEntries() / 2 * half
	put := func(entries []uint32) (first, size uint32, err error) {
		first, size = next, uint32(len(entries))
		next += size
		return first, size, set.writeTables(first, entries)
	}
	var keys []viptable.Key
	var entries []lbFlVip
	add := func(addr netip.Addr, port uint16, proto uint8, e lbFlVip) {
		k := viptable.Key{Addr: addr, Port: port, Proto: proto}
		e.Addr, e.Port, e.Proto, e.Used = k.Words(), k.PortBE(), proto, 1
		keys, entries = append(keys, k), append(entries, e)
	}
	byVIP := map[*model.VIP]lbFlVip{}
	for k, v := range tables.Services {
		e, err := vipEntry(v, put)
		if err != nil {
			return err
		}
		byVIP[v] = e
		add(k.Addr, k.Port, k.Proto, e)
		p.state.CPU[v.ID] = &policy.State{Random: uint64(v.ID)}
		cpus := make([]lbFlVipCpu, ebpf.MustPossibleCPU())
		for i := range cpus {
			cpus[i].Random = uint64(v.ID)
		}
		if err := set.maps[mapVIPCPU].Put(v.ID, cpus); err != nil {
			return err
		}
	}
	for k, v := range tables.Fragments {
		add(k.Addr, 0, k.Proto|protoFrag, byVIP[v])
	}
	for addr, a := range tables.Addresses {
		e := lbFlVip{Id: a.ID, Flags: uint8(lbFlVipFlagsFL_VIP_ADDRESS_ENTRY)}
		if a.ICMPEcho {
			e.Flags |= uint8(lbFlVipFlagsFL_VIP_ICMP_ECHO)
		}
		add(addr, 0, a.Proto, e)
	}
	at, seed, err := viptable.Build(keys, p.h.Rand)
	if err != nil {
		return err
	}
	for i, e := range entries {
		if err := set.writeAt(mapVIPs, half*vipHalf+int64(at[i])*128, &e); err != nil {
			return err
		}
	}
	for i, l := range tables.Lines {
		if err := p.twin.putLine(uint32(i), lineEntry(l)); err != nil {
			return err
		}
	}
	c := lbFlControl{Active: half, AskRate: tables.AskRate, ClockBase: p.h.now}
	c.VipSeed[half] = seed
	return set.writeAt(mapControl, 0, &c)
}

func vipEntry(v *model.VIP, put func([]uint32) (uint32, uint32, error)) (e lbFlVip, err error) {
	policies := []string{policy.RR, policy.WRR, policy.P2C, policy.LeastConn, policy.Hash}
	e = lbFlVip{Id: v.ID, FirstLine: v.FirstLine, Slots: v.Slots, HashKey: v.HashKey, Scheme: uint8(v.Scheme),
		Epochs: v.Epochs, Shift: uint8(v.Layout.Shift())}
	for i, k := range v.Keys {
		e.Key[i] = k
	}
	for i, name := range policies {
		if name == v.Policy {
			e.Policy = uint8(i)
		}
	}
	if v.Affinity {
		e.Flags |= uint8(lbFlVipFlagsFL_VIP_AFFINITY)
	}
	if v.FragmentsByAddress {
		e.Flags |= uint8(lbFlVipFlagsFL_VIP_FRAG_ADDRESSES)
	}
	if e.NewTable, e.NewSize, err = put(v.NewTable); err != nil {
		return e, err
	}
	if e.HashTable, e.HashSize, err = put(v.HashTable); err != nil {
		return e, err
	}
	if v.Policy == policy.Hash {
		e.NewTable, e.NewSize = e.HashTable, e.HashSize
	}
	return e, nil
}

func lineEntry(l model.Line) lbFlLine {
	if l.Forwarding == model.None {
		return lbFlLine{}
	}
	flags := uint64(0)
	if l.Addr.Is6() {
		flags |= 1
	}
	if l.Unresolved {
		flags |= 2
	}
	return lbFlLine{MacDst: macWord(l.MACDst) | uint64(l.Forwarding)<<48 | flags<<56, MacSrc: macWord(l.MACSrc) | uint64(l.VLAN)<<48,
		Addr: viptable.Key{Addr: l.Addr}.Words(), Ifindex: l.Ifindex, Mtu: uint16(l.MTU)}
}

// step sends a frame both ways and compares.
func (p *pair) step(frame []byte) model.Result {
	want := p.h.tables.Process(p.state, frame, p.h.now)
	got, err := p.twin.Run(frame)
	if err == nil {
		err = p.compare(got, want)
	}
	if err != nil {
		p.t.Fatalf("seed %d, shared time %d, frame %x:\n%v\nparsed %+v\nerror in it: %v", p.seed, p.h.now, frame, err, want.Parsed, want.Parsed.Err)
	}
	return want
}

func (p *pair) compare(got TwinRun, want model.Result) error {
	switch {
	case got.Reason != want.Reason:
		return fmt.Errorf("program: %v (%s), model: %v", got.Reason, got.ActionName(), want.Reason)
	case got.Verdict() != want.Verdict:
		return fmt.Errorf("%v: program: %s, model: %v", got.Reason, got.ActionName(), want.Verdict)
	case want.Verdict == model.Send && !bytes.Equal(got.Output, want.Output):
		return fmt.Errorf("%v to slot %d: output differs\nprogram %x\nmodel   %x", want.Reason, want.Slot, got.Output, want.Output)
	case want.Verdict == model.Send && want.Ifindex > 1 != (got.Action == actRedirect):
		return fmt.Errorf("%v: interface %d by %s", want.Reason, want.Ifindex, got.ActionName())
	case want.Verdict == model.Pass && !bytes.Equal(got.Output, want.Parsed.Frame):
		return fmt.Errorf("%v: a packet that passes was changed to %x", want.Reason, got.Output)
	case !bytes.Equal(got.Ask, want.Ask) || want.Ask != nil && got.AskVIP != want.VIP.ID:
		return fmt.Errorf("%v: asked of VIP %d: program %x, model %x", want.Reason, got.AskVIP, got.Ask, want.Ask)
	}
	if want.Verdict == model.Send && want.Ifindex != 0 {
		p.count[want.Line]++
		if n, _, err := p.twin.linePackets(uint32(want.Line)); err != nil || n != p.count[want.Line] {
			return fmt.Errorf("%v: line %d has counted %d packets, want %d (%v)", want.Reason, want.Line, n, p.count[want.Line], err)
		}
	}
	return nil
}

// sameState compares what packets left behind.
func (p *pair) sameState() {
	p.t.Helper()
	set := p.twin.set
	for i, want := range p.state.Conns {
		if got, err := set.readConns(uint32(i)); err != nil || got != want {
			p.t.Fatalf("seed %d: line %d has %d open connections, model %d (%v)", p.seed, i, got, want, err)
		}
	}
	for i, want := range p.state.Flows.Buckets {
		var got lbFlBucket
		if err := set.maps[mapFlows].Lookup(uint32(i), &got); err != nil || got.Entry != want {
			p.t.Fatalf("seed %d: flows' bucket %d is %x, model %x (%v)", p.seed, i, got.Entry, want, err)
		}
	}
	for id, want := range p.state.CPU {
		var all []lbFlVipCpu
		err := set.maps[mapVIPCPU].Lookup(id, &all)
		if got := all[p.cpu]; err != nil || got.Next != want.Next || got.Candidate != want.Candidate || got.Random != want.Random {
			p.t.Fatalf("seed %d: VIP %d's policy has %+v, model %+v (%v)", p.seed, id, got, want, err)
		}
	}
}

// Thousands of packets, good and hostile, against many random tables.
func TestProgramAgreesWithModel(t *testing.T) {
	seen := map[model.Reason]int{}
	packets := 0
	for seed := uint64(1); seed <= 12; seed++ {
		p := newPair(t, seed)
		for n := range 2500 {
			if n == 1250 {
				// From here on with the tables and the state that are read
				// back from the program's maps, as trace does.
				var err error
				if p.h.tables, p.state, err = p.twin.Model(p.cpu); err != nil {
					t.Fatal(err)
				}
			}
			seen[p.step(p.h.frame()).Reason]++
			packets++
			if p.h.IntN(4) == 0 { // half a second to three days pass
				p.h.now += 1 << p.h.IntN(28)
				if err := p.twin.SetClock(p.h.now); err != nil {
					t.Fatal(err)
				}
			}
		}
		p.sameState()
	}
	t.Logf("%d packets, seeds 1-12: %v", packets, seen)
	for r := model.PassNotIP; r <= model.Known; r++ {
		// A test run has room enough for every header.
		if seen[r] == 0 && r != model.DropHeadroom {
			t.Errorf("no packet came to %v: the generator is too tame", r)
		}
	}
}

// Frames of each kind, cut at every byte and with every header byte changed
// to the values that trip parsers.
func TestEveryByteCutAndChanged(t *testing.T) {
	for seed := uint64(20); seed < 24; seed++ {
		p := newPair(t, seed)
		for range 25 {
			f := p.h.good()
			if len(f) > 400 {
				f = f[:400]
			}
			for n := 14; n <= len(f); n++ {
				p.step(f[:n])
			}
			for i := 12; i < min(len(f), 120); i++ {
				for _, b := range []byte{0, 1, 4, 0x45, 0x7f, 0x80, 0xff, f[i] ^ 1, f[i] + 1} {
					changed := bytes.Clone(f)
					changed[i] = b
					p.step(changed)
				}
			}
		}
		p.sameState()
	}
}

// Cookies of every value, up to the width of 13 bits (TestEveryCookieValue
// runs the widest through the program alone).
func TestEveryCookie(t *testing.T) {
	for seed := uint64(40); seed < 41; seed++ {
		p := newPair(t, seed)
		widths := map[int]bool{}
		for range 200 {
			v := p.h.service()
			if v.Scheme != model.Cheetah || v.Proto != wire.ProtoTCP || v.Layout.Bits > 13 || widths[v.Layout.Bits] {
				continue
			}
			widths[v.Layout.Bits] = true
			src := netip.AddrPortFrom(p.h.address(v.Addr.Is6(), 3), 40000)
			known := 0
			for field := range uint32(1) << v.Layout.Bits {
				r := p.step(wire.TCP{Src: src, Dst: netip.AddrPortFrom(v.Addr, max(v.Port, 1)), Flags: wire.ACK,
					Options: wire.Timestamp(1, v.Layout.WireTS(field, p.h.now))}.Frame())
				if r.Cookie == nil || r.Cookie.Field != field && r.Cookie.Field != (field-1)&(1<<v.Layout.Bits-1) {
					t.Fatalf("seed %d: field %#x decoded to %+v", seed, field, r.Cookie)
				}
				if r.Reason == model.Known {
					known++
				}
			}
			if known > 2*int(v.Slots) {
				t.Errorf("seed %d: %d of %d cookies name one of %d slots", seed, known, 1<<v.Layout.Bits, v.Slots)
			}
		}
		p.sameState()
	}
}

// The reasons of the model are the header's, in order.
func TestReasonsAreTheHeaders(t *testing.T) {
	header, err := os.ReadFile("../bpf/include/fairlead.h")
	if err != nil {
		t.Fatal(err)
	}
	list := string(header)
	list = list[strings.Index(list, "#define FL_REASONS(X)"):]
	list = list[:strings.Index(list, "enum fl_reason")]
	n := 0
	for _, line := range strings.Split(list, "\n")[1:] {
		_, rest, ok := strings.Cut(line, "X(")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, ")")
		if got := model.Reason(n).String(); got != name {
			t.Errorf("reason %d is %s in the header, %s in the model", n, name, got)
		}
		n++
	}
	if model.Reason(n) != model.Known || lbFlReason(n) != lbFlReasonFL_REASON_COUNT {
		t.Errorf("%d reasons in the header, %d in the model, %d in the program", n, model.Known, lbFlReasonFL_REASON_COUNT)
	}
}
