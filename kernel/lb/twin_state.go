package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/bound"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// TwinOf makes a twin of a loaded balancer: the program of this build with the
// loaded one's constants and a snapshot of its maps. Nothing pinned changes.
// The snapshot is not atomic: a packet that passes meanwhile may be in one
// map and not yet in another.
func TwinOf(s *State) (*Twin, error) {
	constants, err := s.constants()
	if err != nil {
		return nil, err
	}
	size := twinSize{lines: s.Map(mapLines).MaxEntries(), tableEntries: s.Map(mapTables).MaxEntries(),
		flowSets: s.Map(mapFlows).MaxEntries(), vipIDs: s.Map(mapVIPCPU).MaxEntries()}
	if m := s.Map(mapSteers); m != nil {
		size.steers = m.MaxEntries()
	}
	if m := s.Map(mapSeats); m != nil {
		size.seats = m.MaxEntries()
	}
	if m := s.Map(mapRateSources); m != nil {
		size.rateSets = m.MaxEntries()
	}
	t, err := newTwin(size, func(spec *ebpf.CollectionSpec) error {
		own := spec.Maps[".rodata"]
		if own == nil || int(own.ValueSize) != len(constants) {
			return fmt.Errorf("%s: the loaded program's constants are not this build's: trace with the build that loaded it", s.pinDir)
		}
		for name, v := range spec.Variables {
			if v.SectionName == ".rodata" {
				if err := v.Set(constants[v.Offset : v.Offset+v.Size()]); err != nil {
					return fmt.Errorf("constant %s: %w", name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := t.copyFrom(s); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// constants are the bytes of the loaded program's read-only data.
func (s *State) constants() ([]byte, error) {
	info, err := s.Program(progLB).Info()
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", progLB, err)
	}
	ids, ok := info.MapIDs()
	if !ok {
		return nil, errors.New("this kernel does not tell a program's maps: Linux 4.15 or later is needed")
	}
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("map %d of program %s: %w", id, progLB, err)
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			return nil, err
		}
		if info.Name == ".rodata" {
			return m.LookupBytes(uint32(0))
		}
	}
	return nil, fmt.Errorf("%s: the loaded program has no constants: another program is pinned there", s.pinDir)
}

// Tags are the kernel's digests of the loaded program and of this build's:
// equal when they are the same instructions.
func (t *Twin) Tags(s *State) (loaded, own string, err error) {
	a, err := s.Program(progLB).Info()
	if err != nil {
		return "", "", fmt.Errorf("program %s: %w", progLB, err)
	}
	b, err := t.set.Programs[progLB].Info()
	if err != nil {
		return "", "", fmt.Errorf("copy of program %s: %w", progLB, err)
	}
	return a.Tag, b.Tag, nil
}

// copyFrom fills the private maps; counters start at zero.
func (t *Twin) copyFrom(s *State) error {
	// A map that is open for reading only cannot be mapped into memory (the
	// kernel wants a shared, writable mapping): it is read by system calls.
	for _, name := range []string{mapVIPs, mapControl} {
		b, err := s.Map(name).LookupBytes(uint32(0))
		if err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
		if err := t.set.writeAt(name, 0, b); err != nil {
			return err
		}
	}
	// Whichever way a frame came, it is looked at as if it were this machine's.
	if err := t.set.writeControl(unsafe.Offsetof(bpf.Control{}.Inputs), uint32(0)); err != nil {
		return err
	}
	entries, err := batchLookup[uint64](s.Map(mapTables), mapTables, 1)
	if err != nil {
		return err
	}
	if err := t.set.writeAt(mapTables, 0, entries); err != nil {
		return err
	}
	conns, err := batchLookup[uint32](s.Map(mapConns), mapConns, 1)
	if err != nil {
		return err
	}
	b := make([]byte, len(conns)*arrayStride)
	for i, n := range conns {
		binary.NativeEndian.PutUint32(b[i*arrayStride:], n)
	}
	if err := t.set.writeAt(mapConns, 0, b); err != nil {
		return err
	}
	if err := copyArray[bpf.FlowSet](t, s, mapFlows, nil); err != nil {
		return err
	}
	if err := copyArray(t, s, mapLines, func(l *bpf.Line) bool {
		l.Packets, l.Bytes, l.Opened = 0, 0, 0
		return l.MacDst != 0
	}); err != nil {
		return err
	}
	if err := copyArray(t, s, mapVIPCPU, func(c *bpf.VIPCPU) bool {
		used := c.Next|c.Candidate != 0 || c.Random != 0
		*c = bpf.VIPCPU{Next: c.Next, Candidate: c.Candidate, Random: max(c.Random, 1)} // 0 would be seeded by chance
		return used
	}); err != nil {
		return err
	}
	for _, name := range []string{bpf.LBMapAskSources, bpf.LBMapAskBound} {
		if err := copyArray[bpf.Bound](t, s, name, nil); err != nil {
			return err
		}
	}
	if s.Map(mapTierSources) != nil {
		if err := copyArray[bpf.HostSource](t, s, mapTierSources, nil); err != nil {
			return err
		}
	}
	if err := copyArray[bpf.Steer](t, s, mapSteers, nil); err != nil {
		return err
	}
	if err := copyArray(t, s, mapRates, func(r *bpf.Rates) bool { return *r != bpf.Rates{} }); err != nil {
		return err
	}
	if err := copyArray(t, s, mapRateSources, func(b *bpf.RateSet) bool { return *b != bpf.RateSet{} }); err != nil {
		return err
	}
	return t.copySeats(s)
}

// copySeats copies what connections have seats for.
func (t *Twin) copySeats(s *State) error {
	if err := copyArray[uint64](t, s, mapSeatsTaken, func(w *uint64) bool { return *w != 0 }); err != nil {
		return err
	}
	if err := copyArray(t, s, mapSeats, func(e *bpf.Seat) bool { return e.Word != 0 }); err != nil {
		return err
	}
	return copyArray(t, s, mapSeatsAbout, func(a *bpf.SeatAbout) bool { return a.VipId != 0 })
}

// copyArray copies an array map, per CPU or not. keep changes an element on
// the way; an entry of which it keeps none is not written (it stays zero).
func copyArray[V any](t *Twin, s *State, name string, keep func(*V) bool) error {
	from, to := s.Map(name), t.set.Maps[name]
	if from == nil {
		return fmt.Errorf("%s: map %s is not pinned: restart the daemon", s.pinDir, name)
	}
	perCPU := 1
	if from.Type() == ebpf.PerCPUArray {
		perCPU = ebpf.MustPossibleCPU()
	}
	values, err := batchLookup[V](from, name, perCPU)
	if err != nil {
		return err
	}
	var keptKeys []uint32
	var kept []V
	for i := range from.MaxEntries() {
		entry, used := values[int(i)*perCPU:int(i+1)*perCPU], keep == nil
		for j := range entry {
			if keep != nil && keep(&entry[j]) {
				used = true
			}
		}
		if used {
			keptKeys, kept = append(keptKeys, i), append(kept, entry...)
		}
	}
	if len(keptKeys) == 0 {
		return nil
	}
	if _, err := to.BatchUpdate(keptKeys, kept, nil); err != nil {
		return fmt.Errorf("copy of map %s: %w", name, err)
	}
	return nil
}

// Model is the Go model over what the twin's maps hold now, with the per-CPU
// state of cpu: what it says of the next packet must be what the twin does.
func (t *Twin) Model(cpu int) (*model.Tables, *model.State, error) {
	r := &modelReader{t: t, cpu: cpu}
	m, state := r.read()
	return m, state, r.err
}

type modelReader struct {
	t       *Twin
	cpu     int
	entries []uint32 // all of `tables`, of which raw is the memory
	raw     []byte
	err     error
}

func (r *modelReader) fail(err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("read the twin's tables: %w", err)
	}
}

func (r *modelReader) read() (*model.Tables, *model.State) {
	set := r.t.set
	control, err := set.readControl()
	r.fail(err)
	r.raw = make([]byte, int(set.Maps[mapTables].MaxEntries())*arrayStride)
	r.fail(set.readAt(mapTables, 0, r.raw))
	r.entries = make([]uint32, len(r.raw)/arrayStride)
	for i := range r.entries {
		r.entries[i] = binary.NativeEndian.Uint32(r.raw[i*arrayStride:])
	}
	m := &model.Tables{Services: map[model.Key]*model.VIP{}, Addresses: map[netip.Addr]*model.Address{},
		Fragments: map[model.Key]*model.VIP{}, AskRate: control.AskRate, AskKey: r.t.askKey,
		Source4: r.t.source4, Source6: r.t.source6, GUEChecksum6: r.t.gueChecksum6, Steering: r.t.steering,
		Ingress: 1, // the loopback: a test run's frames come in there
	}
	if m.TierAddr = r.t.tierAddr; m.TierAddr.IsValid() {
		m.TierSources, err = r.t.tierSources()
		r.fail(err)
	}
	state := model.NewState(int(set.Maps[mapLines].MaxEntries()), int(set.Maps[mapFlows].MaxEntries()))
	vips, err := set.readVIPs(control.Active & 1)
	r.fail(err)
	for _, e := range vips {
		v := r.vip(e)
		switch {
		case e.Proto&bpf.ProtoFrag != 0:
			m.Fragments[model.Key{Addr: v.Addr, Proto: v.Proto}] = v
		case bpf.VIPFlags(e.Flags)&bpf.VIPAddressEntry != 0:
			m.Addresses[v.Addr] = v
		default:
			m.Services[model.Key{Addr: v.Addr, Port: v.Port, Proto: v.Proto}] = v
			state.CPU[e.Id] = r.policyState(e.Id)
		}
	}
	if control.Inputs > 0 {
		m.Inputs = r.inputs()
	}
	r.lines(m)
	r.left(state)
	return m, state
}

func (r *modelReader) inputs() map[model.Input]bool {
	inputs := map[model.Input]bool{}
	var e bpf.Input
	var nothing uint32
	entries := r.t.set.Maps[mapInputs].Iterate()
	for entries.Next(&e, &nothing) {
		inputs[model.Input{Ifindex: e.Ifindex, VLAN: uint16(e.Word), MAC: tables.LineWord(e.Word >> 16).MAC()}] = true
	}
	r.fail(entries.Err())
	return inputs
}

func (r *modelReader) vip(e bpf.VIP) *model.VIP {
	has := func(f bpf.VIPFlags) bool { return bpf.VIPFlags(e.Flags)&f != 0 }
	v := &model.VIP{ID: e.Id, Addr: tables.AddrOf(e.Addr), Port: bits.ReverseBytes16(e.Port), Proto: e.Proto &^ bpf.ProtoFrag,
		FirstLine: e.FirstLine, Slots: e.Slots, Epochs: e.Epochs, HashKey: hash.Key(e.HashKey),
		Layout: cheetah.Layout{Bits: 32 - int(e.Shift), SeatBits: int(e.SeatBits & 15), TierBits: int(e.SeatBits >> 4)},
		Tier:   uint32(e.Tier), TierOne: e.Tier == uint8(bpf.TierOne),
		OpenEpoch: int(e.OpenEpoch & 1), Scheme: vip.SchemeOf(e.Scheme).Name, Carrier: vip.CarrierOf(e.Carrier).Name,
		Policy:             string(vip.PolicyOf(e.Policy).Name),
		ICMPEcho:           has(bpf.VIPICMPEcho),
		FragmentsByAddress: has(bpf.VIPFragAddresses),
		Affinity:           has(bpf.VIPAffinity),
		Share:              has(bpf.VIPShare),
		Migrates:           has(bpf.VIPMigrates),
		TrackAll:           has(bpf.VIPTrackAll),
		Joins:              has(bpf.VIPJoin), JoinHash: e.JoinHash, Generation: e.Generation, Rates: e.Rates}
	if e.Rates != 0 {
		r.fail(r.t.set.Maps[mapRates].Lookup(e.Id, &v.Steps))
	}
	if e.Scheme == bpf.Migrates {
		v.Enters = true
		if v.Scheme = vip.Cheetah; v.Layout.SeatBits > 0 && !v.TierOne {
			v.Scheme = vip.CheetahStateful
		}
	}
	for i, k := range e.Key {
		v.Keys[i] = hash.Key(k)
	}
	if vip.SchemeOf(e.Scheme).Hops {
		v.Buckets = bucketRows{r.raw, e.HashTable, e.HashSize}
		return v
	}
	v.NewTable, v.NoNew = r.stretch(e.NewTable, e.NewSize), e.NewSize == 0
	if e.HashSize > 0 {
		v.Hash = placerOf(e, r.stretch(e.HashTable, e.HashSize))
	}
	return v
}

// placerOf is a VIP's consistent hash over its entries of `tables`.
func placerOf(e bpf.VIP, entries []uint32) model.Placer {
	if bpf.HashForm(e.HashForm) == bpf.HashAnchor {
		return &chash.AnchorTable{Entries: entries, Held: e.AnchorHeld, Track: e.AnchorTrack}
	}
	return &chash.Table{Entries: entries}
}

// stretch is a table of a VIP.
func (r *modelReader) stretch(first, size uint32) []uint32 {
	if uint64(first)+uint64(size) > uint64(len(r.entries)) {
		r.fail(fmt.Errorf("a table from %d on with %d entries lies outside of `tables`", first, size))
		return nil
	}
	return r.entries[first : first+size]
}

func (r *modelReader) policyState(id uint32) *policy.State {
	var all []bpf.VIPCPU
	if err := r.t.set.Maps[mapVIPCPU].Lookup(id, &all); err != nil {
		r.fail(err)
		return &policy.State{}
	}
	c := all[r.cpu]
	return &policy.State{Next: c.Next, Candidate: c.Candidate, Random: c.Random}
}

func (r *modelReader) lines(m *model.Tables) {
	all, err := readArray[bpf.Line](r.t, mapLines, r.cpu)
	r.fail(err)
	m.Lines = make([]model.Line, len(all))
	for i, l := range all {
		if l.MacDst == 0 {
			continue
		}
		dst, src := tables.LineWord(l.MacDst), tables.LineWord(l.MacSrc)
		m.Lines[i] = model.Line{Forwarding: vip.ForwardingOf(uint8(dst.Forwarding())).Name, Unresolved: dst.Flags()&bpf.LineUnresolved != 0,
			Closed: dst.Flags()&bpf.LineClosed != 0, Down: dst.Flags()&bpf.LineDown != 0,
			MACDst: dst.MAC(), MACSrc: src.MAC(), VLAN: src.VLAN(), Addr: tables.AddrOf(l.Addr), Ifindex: l.Ifindex, MTU: int(l.Mtu)}
		if dst.Flags()&bpf.LineSteered != 0 {
			m.Lines[i].Steer = r.t.steerRow(i)
		}
	}
}

// readArray is an array map's content; of a per-CPU one, that of cpu.
func readArray[V any](t *Twin, name string, cpu int) ([]V, error) {
	m, cpus := t.set.Maps[name], 1
	if m.Type() == ebpf.PerCPUArray {
		cpus = ebpf.MustPossibleCPU()
	} else {
		cpu = 0
	}
	values, err := batchLookup[V](m, name, cpus)
	if err != nil {
		return nil, err
	}
	if cpus == 1 {
		return values, nil
	}
	one := make([]V, len(values)/cpus)
	for i := range one {
		one[i] = values[i*cpus+cpu]
	}
	return one, nil
}

// batchLookup reads a whole array map, cpus values an entry.
func batchLookup[V any](m *ebpf.Map, name string, cpus int) ([]V, error) {
	n := int(m.MaxEntries())
	keys, values := make([]uint32, n), make([]V, n*cpus)
	var cursor ebpf.MapBatchCursor
	got, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	if got != n {
		return nil, fmt.Errorf("map %s: %d of %d entries could be read", name, got, n)
	}
	return values, nil
}

// left reads what packets left behind.
func (r *modelReader) left(state *model.State) {
	set := r.t.set
	conns, err := readArray[int32](r.t, mapConns, r.cpu)
	r.fail(err)
	copy(state.Conns, conns)
	sets, err := readArray[bpf.FlowSet](r.t, mapFlows, r.cpu)
	r.fail(err)
	for i, b := range sets {
		state.Flows.Sets[i] = setOf(b)
	}
	state.Seats, err = r.t.seats()
	r.fail(err)
	state.Sources, err = batchLookup[bpf.RateSet](set.Maps[mapRateSources], mapRateSources, 1)
	r.fail(err)
	for kind := range state.Asks {
		var all []bpf.Bound
		if err := set.Maps[bpf.LBMapAskBound].Lookup(uint32(kind), &all); err != nil {
			r.fail(err)
			continue
		}
		state.Asks[kind] = bound.Bound{Tokens: uint64(all[r.cpu].Tokens), LastMS: all[r.cpu].LastMs}
	}
	sources, err := readArray[bpf.Bound](r.t, bpf.LBMapAskSources, r.cpu)
	r.fail(err)
	for i, b := range sources {
		state.AskSources[i] = bound.Bound{Tokens: uint64(b.Tokens), LastMS: b.LastMs}
	}
}

// seats is what connections have seats for.
func (t *Twin) seats() (*seats.Table, error) {
	all := &seats.Table{}
	var errs [3]error
	all.Seats, errs[0] = batchLookup[bpf.Seat](t.set.Maps[mapSeats], mapSeats, 1)
	all.Taken, errs[1] = batchLookup[uint64](t.set.Maps[mapSeatsTaken], mapSeatsTaken, 1)
	all.About, errs[2] = batchLookup[bpf.SeatAbout](t.set.Maps[mapSeatsAbout], mapSeatsAbout, 1)
	return all, errors.Join(errs[:]...)
}

// setOf is a set of the flow table as the model holds it.
func setOf(b bpf.FlowSet) jet.FlowSet {
	to := jet.FlowSet{Tags: binary.LittleEndian.Uint64(b.Tag[:])}
	for i, e := range b.Entry {
		to.Entry[i] = jet.Entry(e)
	}
	return to
}

// readConstants keeps the constants that the model needs.
func (t *Twin) readConstants(spec *ebpf.CollectionSpec) error {
	var s4, m4, check, steering uint32
	var s6, m6, tier [2]uint64
	for name, to := range map[string]any{"source4": &s4, "source4_mask": &m4, "source6": &s6, "source6_mask": &m6, "gue6_checksum": &check, "steering": &steering, "ask_key": &t.askKey, "tier_addr": &tier} {
		if err := spec.Variables[name].Get(to); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	a4 := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, s4)))
	a6 := netip.AddrFrom16([16]byte(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, s6[0]), s6[1])))
	t.source4 = netip.PrefixFrom(a4, 32-bits.OnesCount32(m4))
	t.source6 = netip.PrefixFrom(a6, 128-bits.OnesCount64(m6[0])-bits.OnesCount64(m6[1]))
	if tier != [2]uint64{} {
		t.tierAddr = tables.AddrOf(tier)
	}
	t.gueChecksum6, t.steering = check != 0, steering != 0
	return nil
}
