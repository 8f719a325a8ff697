package lb

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/scheme/rates"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Both implementations side by side: filling the program's maps from the
// model's tables, and comparing what each packet leaves behind.

const diffFlowBuckets = 16 // small, so that entries push each other out

// pair is the program and the model with the same tables and state.
type pair struct {
	t     *testing.T
	seed  uint64
	h     *hostile
	twin  *Twin
	state *model.State
	cpu   int
	count map[int]uint64 // packets by line
	kept  int            // of what other balancers told: own entries that stayed
	// counters are what VIPs had counted when the model was last read from
	// the program's maps.
	counters map[uint32]bpf.VIPCPU
}

func newPair(t *testing.T, seed uint64) *pair {
	return newPairOf(t, seed, newHostile(rand.New(rand.NewPCG(seed, 0))))
}

func newPairOf(t *testing.T, seed uint64, h *hostile) *pair {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test runs BPF programs in the kernel: run it as root")
	}
	p := &pair{t: t, seed: seed, h: h, state: model.NewState(len(h.tables.Lines), diffFlowBuckets), count: map[int]uint64{}, counters: map[uint32]bpf.VIPCPU{}}
	p.state.Sources = make(rates.Sources, diffRateSets)
	cpu, release, err := OneCPU()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	p.cpu = cpu
	if p.twin, err = diffTwin(h.tables); err != nil {
		t.Fatal(err)
	}
	for _, v := range h.tables.Services {
		p.state.CPU[v.ID] = &policy.State{Random: uint64(v.ID)}
		cpus := make([]bpf.VIPCPU, ebpf.MustPossibleCPU())
		for i := range cpus {
			cpus[i].Random = uint64(v.ID)
		}
		if err := p.twin.set.Maps[mapVIPCPU].Put(v.ID, cpus); err != nil {
			t.Fatal(err)
		}
	}
	p.fill()
	return p
}

// diffTwins are kept and emptied from test to test: verifying the program
// takes half a second. One for each value of the constants that vary.
var diffTwins = map[[2]bool]*Twin{}

const diffLines, diffVIPs, diffSeats, diffRateSets = 1100, 64, 1 << seats.MaxBits, 16

func diffTwin(tables *model.Tables) (*Twin, error) {
	key := [2]bool{tables.GUEChecksum6, tables.Steering}
	t := diffTwins[key]
	if t == nil {
		var err error
		t, err = newTwin(twinSize{lines: diffLines, tableEntries: 1 << 15, flowSets: diffFlowBuckets, vipIDs: diffVIPs, steers: diffLines, seats: diffSeats, rateSets: diffRateSets},
			func(spec *ebpf.CollectionSpec) error { return tableConstants(spec, tables) })
		if err != nil {
			return nil, err
		}
		diffTwins[key] = t
	}
	// Tests that run the program themselves count without the twin.
	var err error
	if t.counted, err = t.reasons(); err != nil {
		return nil, err
	}
	m := t.set.Maps
	return t, errors.Join(t.set.writeAt(mapVIPs, 0, make([]byte, 2*vipHalf)), clearArray[int32](m[mapConns]),
		clearArray[bpf.FlowSet](m[mapFlows]), clearArray[bpf.VIPCPU](m[mapVIPCPU]),
		clearArray[bpf.Seat](m[mapSeats]), clearArray[uint64](m[mapSeatsTaken]), clearArray[bpf.SeatAbout](m[mapSeatsAbout]),
		clearArray[bpf.RateSet](m[mapRateSources]),
		clearArray[bpf.Bound](m[bpf.LBMapAskBound]), clearArray[bpf.Bound](m[bpf.LBMapAskSources]), t.drainShared())
}

// drainShared takes what an earlier test left in the ring.
func (t *Twin) drainShared() error {
	for t.shared.AvailableBytes() > 0 {
		if _, err := t.shared.Read(); err != nil {
			return err
		}
	}
	return nil
}

func tableConstants(spec *ebpf.CollectionSpec, t *model.Tables) error {
	l := &LB{o: Options{Source4: t.Source4, Source6: t.Source6, Steer: t.Steering}, asker: asker{}}
	c, err := l.constants()
	if err != nil {
		return err
	}
	c["ask_key"] = t.AskKey
	if t.TierAddr.IsValid() {
		c["tier_addr"] = tablesKey(t.TierAddr)
	}
	if t.GUEChecksum6 {
		c["gue6_checksum"] = uint32(1)
	}
	return kernel.SetConstants(spec, c)
}

func tablesKey(a netip.Addr) [2]uint64 { return tables.Key{Addr: a}.Words() }

// fill writes the model's tables into half 1 of the program's.
func (p *pair) fill() {
	p.t.Helper()
	if err := errors.Join(p.twin.set.writeAt(mapVIPs, 0, make([]byte, 2*vipHalf)), p.write()); err != nil {
		p.t.Fatalf("seed %d: %v", p.seed, err)
	}
	clear(p.count)
}

func (p *pair) write() error {
	const half = 1
	set, wanted := p.twin.set, p.h.tables
	if err := set.takeTunnels(wanted.TierSources); err != nil {
		return err
	}
	next := set.Maps[mapTables].MaxEntries() / 2 * half
	put := func(entries []uint32) (first, size uint32, err error) {
		first, size = next, uint32(len(entries))
		next += size
		return first, size, set.writeTables(first, entries)
	}
	var keys []tables.Key
	var entries []bpf.VIP
	add := func(addr netip.Addr, port uint16, proto uint8, e bpf.VIP) {
		k := tables.Key{Addr: addr, Port: port, Proto: proto}
		e.Addr, e.Port, e.Proto, e.Used = k.Words(), k.PortBE(), proto, 1
		keys, entries = append(keys, k), append(entries, e)
	}
	byID := map[uint32]bpf.VIP{}
	for k, v := range wanted.Services {
		e, err := vipEntry(v, put)
		if err == nil && v.Scheme == vip.Beamer {
			e.HashForm, e.HashTable, e.HashSize = uint8(bpf.HashBuckets), next, uint32(v.Buckets.Len())
			table := bucketWordsOf(v.Buckets)
			next += uint32(len(table))
			if len(table) > 0 {
				err = set.writeAt(mapTables, int64(e.HashTable)*arrayStride, table)
			}
		}
		if err != nil {
			return err
		}
		byID[v.ID] = e
		if err := set.Maps[mapRates].Put(v.ID, v.Steps); err != nil {
			return err
		}
		add(k.Addr, k.Port, k.Proto, e)
	}
	for k, v := range wanted.Fragments {
		add(k.Addr, 0, k.Proto|bpf.ProtoFrag, byID[v.ID])
	}
	for addr, a := range wanted.Addresses {
		e := bpf.VIP{Id: a.ID, Flags: uint8(bpf.VIPAddressEntry)}
		if a.ICMPEcho {
			e.Flags |= uint8(bpf.VIPICMPEcho)
		}
		if a.Joins {
			e.Flags |= uint8(bpf.VIPJoin)
			e.HashKey, e.Scheme, e.FirstLine, e.Slots, e.Generation, e.JoinHash = a.HashKey, a.Scheme.Row().Number, a.FirstLine, a.Slots, a.Generation, a.JoinHash
		}
		add(addr, 0, a.Proto, e)
	}
	at, seed, err := tables.Build(keys, rand.New(rand.NewPCG(p.seed, 1))) // the keys come in any order
	if err != nil {
		return err
	}
	for i, e := range entries {
		if err := set.writeAt(mapVIPs, half*vipHalf+int64(at[i])*128, &e); err != nil {
			return err
		}
	}
	if err := p.writeLines(); err != nil {
		return err
	}
	c := bpf.Control{Active: half, AskRate: wanted.AskRate, ClockBase: p.h.now}
	c.VipSeed[half] = seed // as after the first assignment: the other half has none
	if err := set.writeAt(mapControl, 0, &c); err != nil {
		return err
	}
	inputs := map[bpf.Input]bool{}
	for i := range wanted.Inputs {
		inputs[input{int(i.Ifindex), i.VLAN, i.MAC}.entry()] = true
	}
	return set.writeInputs(inputs)
}

// writeLines writes all server lines, counters at 0.
func (p *pair) writeLines() error {
	n, cpus := diffLines, ebpf.MustPossibleCPU()
	keys, lines, rows := make([]uint32, n), make([]bpf.Line, n*cpus), make([]bpf.Steer, n)
	for i := range keys {
		keys[i] = uint32(i)
		if i < len(p.h.tables.Lines) {
			for cpu := range cpus {
				lines[i*cpus+cpu] = lineEntry(p.h.tables.Lines[i])
			}
			rows[i] = steerRow(p.h.tables.Lines[i].Steer)
		}
	}
	_, err := p.twin.set.Maps[mapLines].BatchUpdate(keys, lines, nil)
	if err == nil {
		_, err = p.twin.set.Maps[mapSteers].BatchUpdate(keys, rows, nil)
	}
	return err
}

func steerRow(from *model.Steer) (row bpf.Steer) {
	if from != nil {
		for i, e := range from {
			row.Entry[i] = steerWord(steer.Entry(e))
		}
	}
	return row
}

func vipEntry(v *model.VIP, put func([]uint32) (uint32, uint32, error)) (e bpf.VIP, err error) {
	policies := []string{policy.RR, policy.WRR, policy.P2C, policy.LeastConn, policy.Hash}
	e = bpf.VIP{Id: v.ID, Carrier: v.Carrier.Row().Number, FirstLine: v.FirstLine, Slots: v.Slots, HashKey: v.HashKey, Scheme: v.Scheme.Row().Number,
		Epochs: v.Epochs, Shift: uint8(v.Layout.Shift()), Generation: v.Generation,
		SeatBits: uint8(v.Layout.SeatBits | v.Layout.TierBits<<4), OpenEpoch: uint8(v.OpenEpoch), Tier: uint8(v.Tier), Rates: v.Rates}
	if v.TierOne {
		e.Tier = uint8(bpf.TierOne)
	}
	for i, k := range v.Keys {
		e.Key[i] = k
	}
	for i, name := range policies {
		if name == v.Policy {
			e.Policy = uint8(i)
		}
	}
	if v.Affinity {
		e.Flags |= uint8(bpf.VIPAffinity)
	}
	if v.FragmentsByAddress {
		e.Flags |= uint8(bpf.VIPFragAddresses)
	}
	if v.Share {
		e.Flags |= uint8(bpf.VIPShare)
	}
	if v.Migrates {
		e.Flags |= uint8(bpf.VIPMigrates)
	}
	if v.Enters {
		e.Scheme = bpf.Migrates
	}
	if v.TrackAll {
		e.Flags |= uint8(bpf.VIPTrackAll)
	}
	if e.NewTable, e.NewSize, err = put(v.NewTable); err != nil {
		return e, err
	}
	var entries []uint32
	switch h := v.Hash.(type) {
	case *chash.Table:
		entries = h.Entries
	case *chash.AnchorTable:
		entries, e.HashForm, e.AnchorHeld, e.AnchorTrack = h.Entries, uint8(bpf.HashAnchor), h.Held, h.Track
	}
	if e.HashTable, e.HashSize, err = put(entries); err != nil {
		return e, err
	}
	if v.Policy == policy.Hash {
		e.NewTable, e.NewSize = e.HashTable, e.HashSize
	}
	if v.NoNew {
		e.NewSize = 0
	}
	return e, nil
}

func lineEntry(l model.Line) bpf.Line {
	if l.Forwarding == "" {
		return bpf.Line{}
	}
	flags := uint64(0)
	for flag, set := range map[uint64]bool{bpf.LineIPV6: l.Addr.Is6(), bpf.LineUnresolved: l.Unresolved, bpf.LineClosed: l.Closed, bpf.LineDown: l.Down, bpf.LineSteered: l.Steer != nil} {
		if set {
			flags |= flag
		}
	}
	return bpf.Line{MacDst: macWord(l.MACDst) | uint64(l.Forwarding.Row().Number)<<48 | flags<<56, MacSrc: macWord(l.MACSrc) | uint64(l.VLAN)<<48,
		Addr: tables.Key{Addr: l.Addr}.Words(), Ifindex: l.Ifindex, Mtu: uint16(l.MTU)}
}

// step sends a frame both ways and compares.
func (p *pair) step(frame []byte) model.Result {
	want := p.h.tables.Process(p.state, frame, p.h.now)
	got, err := p.twin.Run(frame)
	if err == nil {
		err = p.compare(got, want)
	}
	if err != nil {
		parsed := *want.Parsed
		parsed.Frame, parsed.Payload = nil, nil
		p.t.Fatalf("seed %d, shared time %d, frame of %d bytes %x:\n%v\nparsed %+v\nerror in it: %v",
			p.seed, p.h.now, len(frame), frame[:min(len(frame), 200)], err, parsed, want.Parsed.Err)
	}
	if want.Seat != nil && want.Seat.Opened {
		p.h.seats[want.Parsed.Source()] = want.Seat.Number
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
	case (got.Share == nil) != (want.Share == nil) || got.Share != nil && *got.Share != *want.Share:
		return fmt.Errorf("%v: other balancers are told by the program %+v, by the model %+v", want.Reason, got.Share, want.Share)
	}
	if err := p.compareFlows(); err != nil {
		return fmt.Errorf("%v: %w\n%+v %+v", want.Reason, err, want.Flow, want.Place)
	}
	if want.VIP != nil {
		if err := p.compareCounters(want.VIP.ID); err != nil {
			return fmt.Errorf("%v: %w", want.Reason, err)
		}
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
	if err := p.compareFlows(); err != nil {
		p.t.Fatalf("seed %d: %v", p.seed, err)
	}
	if err := p.compareSeats(); err != nil {
		p.t.Fatalf("seed %d: %v", p.seed, err)
	}
	for id := range p.state.CPU {
		if err := p.compareCounters(id); err != nil {
			p.t.Fatalf("seed %d: %v", p.seed, err)
		}
	}
	left, r := model.NewState(len(p.state.Conns), len(p.state.Flows.Sets)), &modelReader{t: p.twin, cpu: p.cpu}
	r.left(left)
	if r.err != nil || left.Asks != p.state.Asks || left.AskSources != p.state.AskSources {
		p.t.Fatalf("seed %d: the bounds on asks differ (%v)", p.seed, r.err)
	}
	for i, want := range p.state.Sources {
		if got := left.Sources[i]; got != want {
			p.t.Fatalf("seed %d: set %d of sources: program %x, model %x", p.seed, i, got, want)
		}
	}
}

// compareFlows compares every entry of the flow tables.
func (p *pair) compareFlows() error {
	all, err := batchLookup[bpf.FlowSet](p.twin.set.Maps[mapFlows], mapFlows, 1)
	if err != nil {
		return err
	}
	for i, want := range p.state.Flows.Sets {
		if got := setOf(all[i]); got != want {
			return fmt.Errorf("flows' bucket %d: program %x, model %x", i, got, want)
		}
	}
	return nil
}

// compareSeats compares every seat.
func (p *pair) compareSeats() error {
	got, err := p.twin.seats()
	if err != nil {
		return err
	}
	for i, want := range p.state.Seats.Seats {
		if got := got.Seats[i]; got != want {
			return fmt.Errorf("seat %d: program %x, model %x", i, got, want)
		}
	}
	for i, want := range p.state.Seats.Taken {
		if got := got.Taken[i]; got != want {
			return fmt.Errorf("seats from %d on: program has taken %064b, model %064b", i*64, got, want)
		}
	}
	for i, want := range p.state.Seats.About {
		if got := got.About[i]; got != want {
			return fmt.Errorf("about seat %d: program %+v, model %+v", i, got, want)
		}
	}
	return nil
}

// compareCounters compares what a VIP counts and its policy's state.
func (p *pair) compareCounters(id uint32) error {
	var all []bpf.VIPCPU
	if err := p.twin.set.Maps[mapVIPCPU].Lookup(id, &all); err != nil {
		return err
	}
	got, zero := all[p.cpu], p.counters[id]
	n, want := *p.state.Counters(id), bpf.VIPCPU{}
	if s := p.state.CPU[id]; s != nil {
		want.Next, want.Candidate, want.Random = s.Next, s.Candidate, s.Random
	}
	want.NewConns, want.Fallback, want.FlowHits, want.BadCookies, want.Dropped = n.NewConns, n.Fallback, n.FlowHits, n.BadCookies, n.Dropped
	want.Tracked, want.FlowFull, want.FlowReplaced = n.Tracked, n.FlowFull, n.FlowReplaced
	want.Seated, want.SeatFull, want.SeatWrong, want.Rated, want.RateLost = n.Seated, n.SeatFull, n.SeatWrong, n.Rated, n.RateLost
	// What the program had counted before the model was read from its maps.
	for _, c := range [][2]*uint64{{&got.NewConns, &zero.NewConns}, {&got.Fallback, &zero.Fallback}, {&got.FlowHits, &zero.FlowHits},
		{&got.BadCookies, &zero.BadCookies}, {&got.Dropped, &zero.Dropped}, {&got.Tracked, &zero.Tracked},
		{&got.FlowFull, &zero.FlowFull}, {&got.FlowReplaced, &zero.FlowReplaced},
		{&got.Seated, &zero.Seated}, {&got.SeatFull, &zero.SeatFull}, {&got.SeatWrong, &zero.SeatWrong},
		{&got.Rated, &zero.Rated}, {&got.RateLost, &zero.RateLost}} {
		*c[0] -= *c[1]
	}
	if got != want {
		return fmt.Errorf("VIP %d has by the program %+v, by the model %+v", id, got, want)
	}
	return nil
}

// reread takes tables and state from the program's maps, as trace does.
func (p *pair) reread() {
	p.t.Helper()
	var err error
	if p.h.tables, p.state, err = p.twin.Model(p.cpu); err != nil {
		p.t.Fatalf("seed %d: %v", p.seed, err)
	}
	for id := range p.state.CPU {
		var all []bpf.VIPCPU
		if err := p.twin.set.Maps[mapVIPCPU].Lookup(id, &all); err != nil {
			p.t.Fatal(err)
		}
		p.counters[id] = all[p.cpu]
	}
	p.h.recent = nil // they name the VIPs of before
}

// told brings flows of other balancers into both tables, and swept clears
// both, and compares.
func (p *pair) told() {
	p.t.Helper()
	unit, taken := uint16(p.h.now>>10), 0
	w := bpf.FlowWrite{Count: p.h.Uint32N(bpf.FlowWrites + 1)}
	for i := range w.Record[:w.Count] {
		r := bpf.Shared{X: p.h.Uint64(), Slot: uint16(p.h.IntN(30)), State: uint8(p.h.IntN(4)), Tcp: uint8(p.h.IntN(2)), VipId: p.h.Uint32N(20)}
		if p.h.IntN(2) == 0 {
			r.X = p.aKey()
		}
		w.Record[i] = r
		switch p.state.Flows.Told(r.X, int(r.Slot), unit, jet.State(r.State)) {
		case jet.Made, jet.Replaced:
			taken++
		case jet.Kept:
			p.kept++
		}
	}
	got, err := p.twin.set.runFlowWrite(w)
	if err == nil && got != taken {
		err = fmt.Errorf("the program took %d flows, the model %d", got, taken)
	}
	if err = errors.Join(err, p.compareFlows()); err != nil {
		p.t.Fatalf("seed %d: %d flows told: %v", p.seed, w.Count, err)
	}
}

// named is told of a connection of a VIP that migrates, and sees its packets: what opens, what
// goes on, and what is not of it.
func (p *pair) named(count func(model.Result)) {
	v := p.h.service()
	if !v.Migrates || v.Proto != wire.ProtoTCP || v.Port == 0 {
		return
	}
	client := netip.AddrPortFrom(p.h.address(v.Addr.Is6(), 3), uint16(1024+p.h.IntN(60000)))
	key := jet.Key(v.ID, hash.Flow(v.HashKey, client, v.Port, !v.Affinity && !v.FragmentsByAddress), client.Port(), v.Port)
	w := bpf.FlowWrite{Count: 1}
	w.Record[0] = bpf.Shared{X: key, Slot: uint16(p.h.Uint32N(v.Slots)), State: uint8(p.h.IntN(3)), Tcp: 1, VipId: v.ID}
	p.state.Flows.Told(key, int(w.Record[0].Slot), uint16(p.h.now>>10), jet.State(w.Record[0].State))
	if _, err := p.twin.set.runFlowWrite(w); err != nil {
		p.t.Fatal(err)
	}
	for _, flags := range []uint8{wire.ACK, wire.SYN, wire.ACK, wire.FIN | wire.ACK, wire.SYN, wire.ACK} {
		count(p.step(wire.TCP{Src: client, Dst: netip.AddrPortFrom(v.Addr, v.Port), Flags: flags, Options: wire.Timestamp(1, p.h.Uint32())}.Frame()))
	}
}

// aKey is a key of what stands somewhere in the flow table, if anything does.
func (p *pair) aKey() uint64 {
	at, way := p.h.IntN(diffFlowBuckets), p.h.IntN(jet.Ways)
	b := p.state.Flows.Sets[at]
	x := uint64(b.Entry[way])>>32<<32 | uint64(at)<<32/diffFlowBuckets | b.Tags>>(8*way)&0x7f
	if p.state.Flows.Index(x) != at {
		p.t.Fatalf("seed %d: key %x is not of bucket %d", p.seed, x, at)
	}
	return x
}

func (p *pair) swept() {
	p.t.Helper()
	s := bpf.FlowSweep{First: p.h.Uint32N(diffFlowBuckets), Count: p.h.Uint32N(diffFlowBuckets)}
	live, confirmed, expired := p.state.Flows.Sweep(int(s.First), int(s.Count), uint16(p.h.now>>10))
	err := p.twin.set.call(progFlowSweep, s, &s)
	if err == nil && (s.Used != uint32(live) || s.Confirmed != uint32(confirmed) || s.Expired != uint32(expired)) {
		err = fmt.Errorf("the program counted %d, %d, %d, the model %d, %d, %d", s.Used, s.Confirmed, s.Expired, live, confirmed, expired)
	}
	if err = errors.Join(err, p.compareFlows()); err != nil {
		p.t.Fatalf("seed %d: swept: %v", p.seed, err)
	}
}

// tick lets up to half a second, or days, pass.
func (p *pair) tick() { p.wait(1 << p.h.IntN(p.h.pace)) }

func (p *pair) wait(ms uint32) {
	p.t.Helper()
	p.h.now += ms
	if err := p.twin.SetClock(p.h.now); err != nil {
		p.t.Fatal(err)
	}
}

// linePackets is the number of packets that a line has counted.
func (t *Twin) linePackets(index uint32) (packets, bytes uint64, err error) {
	var all []bpf.Line
	if err := t.set.Maps[mapLines].Lookup(index, &all); err != nil {
		return 0, 0, fmt.Errorf("map %s: %w", mapLines, err)
	}
	for _, l := range all {
		packets, bytes = packets+l.Packets, bytes+l.Bytes
	}
	return packets, bytes, nil
}
