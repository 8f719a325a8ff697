package bench

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

const (
	packetsPerRun = 16      // BENCH_PACKETS
	flowCount     = 1 << 20 // of each set of flows but tracked
	serverCount   = 100     // of a cheetah or stateless VIP
	cookieBits    = 12
	floorRows     = 65537

	// flowLimit is the flow table's default size (limits.flows),
	// fullFlowLimit what remembering each flow takes: a quarter full, so that
	// few share a set with more flows than it holds.
	flowLimit     = 262_144
	fullFlowLimit = 4 * flowCount

	sharedNow = 5_000_000 // shared ms at which the flows were stamped

	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

var (
	benchKeys = [2]hash.Key{{0x1111, 0x2222}, {0x3333, 0x4444}}
	hashKey   = hash.Key{0x5555, 0x6666}
	noVIP     = netip.MustParseAddr("192.0.2.250")
)

// balancer is the balancer's program and the floor with their maps filled.
type balancer struct {
	o      lbObjects
	random *rand.Rand
	vips   [2][bpf.VIPLines]bpf.VIP
	seed   uint64
	hashes hashes
	ids    map[string]uint32 // of vips, by name
	sets   []flowSet         // of bench_flows
	// flows is the flow table's memory; full and the others what it held when
	// a VIP of that name had seen its flows.
	flows  *ebpf.Memory
	tables map[string][]byte
	// What seats may be when a case begins, and what they are.
	seats, noSeats *seats.Table
	sitting        seatState
	// cpus are loops for a CPU each, over the maps that spec and shared are of.
	cpus   []*loop
	spec   *ebpf.CollectionSpec
	shared map[string]*ebpf.Map
	rest   *ebpf.Collection // what is not in o
}

func (b *balancer) close() {
	b.o.Close()
	b.rest.Close()
}

// vip is what a case needs to be different.
type vip struct {
	addr       netip.Addr
	scheme     bpf.Scheme
	policy     bpf.Policy
	forwarding bpf.Forwarding
	hash       string // in hashes
}

// steeredGUE is a forwarding and flags, as they stand in fl_line.mac_dst.
const steeredGUE = bpf.FwdGUE | bpf.LineSteered<<8

var vips = map[string]vip{
	"rr":         {netip.MustParseAddr("192.0.2.1"), bpf.SchemeCheetah, bpf.PolicyRR, bpf.FwdIPIP, "small"},
	"wrr":        {netip.MustParseAddr("192.0.2.2"), bpf.SchemeCheetah, bpf.PolicyWRR, bpf.FwdIPIP, "small"},
	"p2c":        {netip.MustParseAddr("192.0.2.3"), bpf.SchemeCheetah, bpf.PolicyP2C, bpf.FwdIPIP, "small"},
	"least-conn": {netip.MustParseAddr("192.0.2.4"), bpf.SchemeCheetah, bpf.PolicyLeastConn, bpf.FwdIPIP, "small"},
	"hash":       {netip.MustParseAddr("192.0.2.5"), bpf.SchemeCheetah, bpf.PolicyHash, bpf.FwdIPIP, "small"},
	"stateless":  {netip.MustParseAddr("192.0.2.6"), bpf.SchemeStateless, bpf.PolicyHash, bpf.FwdIPIP, "small"},
	"gue":        {netip.MustParseAddr("192.0.2.7"), bpf.SchemeCheetah, bpf.PolicyRR, bpf.FwdGUE, "small"},
	"v6":         {netip.MustParseAddr("2001:db8::1"), bpf.SchemeCheetah, bpf.PolicyRR, bpf.FwdIPIP, "small"},
	"jet":        {netip.MustParseAddr("192.0.2.8"), bpf.SchemeJet, bpf.PolicyHash, bpf.FwdIPIP, "table"},
	"anchor":     {netip.MustParseAddr("192.0.2.9"), bpf.SchemeJet, bpf.PolicyHash, bpf.FwdIPIP, "anchor"},
	"full-ct":    {netip.MustParseAddr("192.0.2.10"), bpf.SchemeFullCT, bpf.PolicyHash, bpf.FwdIPIP, "table"},

	"stateful": {netip.MustParseAddr("192.0.2.17"), bpf.SchemeCheetahStateful, bpf.PolicyRR, bpf.FwdIPIP, "small"},

	"beamer":       {netip.MustParseAddr("192.0.2.11"), bpf.SchemeBeamer, bpf.PolicyHash, bpf.FwdIPIP, "buckets"},
	"beamer-gue":   {netip.MustParseAddr("192.0.2.12"), bpf.SchemeBeamer, bpf.PolicyHash, bpf.FwdGUE, "buckets"},
	"beamer-moved": {netip.MustParseAddr("192.0.2.13"), bpf.SchemeBeamer, bpf.PolicyHash, bpf.FwdIPIP, "buckets-moved"},
	"beamer-6m":    {netip.MustParseAddr("192.0.2.14"), bpf.SchemeBeamer, bpf.PolicyHash, bpf.FwdIPIP, "buckets-6m"},
	"tier1":        {netip.MustParseAddr("192.0.2.16"), bpf.SchemeCheetah, bpf.PolicyRR, bpf.FwdIPIP, "small"},
	"gue-steered":  {netip.MustParseAddr("192.0.2.15"), bpf.SchemeCheetah, bpf.PolicyRR, steeredGUE, "small"},
	"beamer-v6":    {netip.MustParseAddr("2001:db8::2"), bpf.SchemeBeamer, bpf.PolicyHash, bpf.FwdIPIP, "buckets"},
}

// openBalancer loads the program with VIPs (of vips, by name) and a flow table
// of limit entries and fills it, bench_flows with the given sets.
func openBalancer(names []string, limit int, sets ...flowSet) (*balancer, error) {
	spec, err := loadLb()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	b, err := prepare(spec, names, limit)
	if err != nil {
		return nil, err
	}
	spec.Maps["bench_flows"].MaxEntries = uint32(len(sets) * flowCount)
	all, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	b.spec, b.shared = spec, maps.Clone(all.Maps)
	for _, own := range []string{".data.case", ".rodata"} {
		delete(b.shared, own)
	}
	b.rest = all
	if err := all.Assign(&b.o); err != nil {
		all.Close()
		return nil, fmt.Errorf("load the program: %w", err)
	}
	b.noSeats = seats.New(int(spec.Maps["seats"].MaxEntries))
	if err := b.fill(names, func() error { return b.fillFlows(sets) }, b.refresh); err != nil {
		b.close()
		return nil, err
	}
	if b.flows, err = b.o.Flows.Memory(); err != nil {
		b.close()
		return nil, fmt.Errorf("map the flow table: %w", err)
	}
	return b, nil
}

// prepare sizes the maps of a program that has the balancer's for VIPs of these names
// and a flow table of limit entries, and sets its constants.
func prepare(spec *ebpf.CollectionSpec, names []string, limit int) (b *balancer, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	h := hashes{}
	lines, entries, buckets := uint32(0), uint32(serverCount), uint32((limit+jet.Ways-1)/jet.Ways)
	steers, steering := uint32(1), uint32(0)
	for _, name := range names {
		hash := vips[name].hash
		if _, ok := h[hash]; !ok {
			if h[hash], err = makeHash(hash); err != nil {
				return nil, fmt.Errorf("make the hashes: %w", err)
			}
			entries += uint32(len(h[hash].entries)) + tables.BucketWords
		}
		if lines += h[hash].slots; vips[name].forwarding == steeredGUE {
			steers, steering = lines, 1
		}
	}
	seatsOf := uint32(1 << seats.MaxBits)
	if slices.Contains(names, "stateful") {
		seatsOf = seatCount
	}
	for name, n := range map[string]uint32{"seats": seatsOf, "seats_about": seatsOf, "seats_taken": seatsOf / 64, "lines": lines, "conns": lines, "tables": entries,
		"steers": steers, "flows": buckets} {
		spec.Maps[name].MaxEntries = n
	}
	// So that a table that was kept is put back in a millisecond.
	spec.Maps["flows"].Flags |= unix.BPF_F_MMAPABLE
	source6 := words(netip.MustParseAddr("fd00:254::"))
	err = kernel.SetConstants(spec, map[string]any{
		"seat_count": seatsOf, "flow_sets": buckets, "jiffy_mult": uint64(1), "steering": steering,
		"source4": be32("10.254.0.0"), "source4_mask": be32("0.0.255.255"),
		"source6": source6, "source6_mask": words(netip.MustParseAddr("::ffff:ffff")),
	})
	if err != nil {
		return nil, err
	}
	return &balancer{random: rand.New(rand.NewPCG(seed, 1)), hashes: h, ids: map[string]uint32{}, tables: map[string][]byte{}}, nil
}

// fill puts what all cases need into the maps, and then what more says.
func (b *balancer) fill(names []string, more ...func() error) error {
	for _, fill := range append([]func() error{func() error { return b.fillVIPs(names) }, b.fillFloor, b.fillInputs}, more...) {
		if err := fill(); err != nil {
			return fmt.Errorf("fill the tables: %w", err)
		}
	}
	return nil
}

func be32(s string) uint32 {
	a := netip.MustParseAddr(s).As4()
	return binary.LittleEndian.Uint32(a[:])
}

func words(a netip.Addr) [2]uint64 { return tables.Key{Addr: a}.Words() }

// refresh sets the shared clock back to when the flows were stamped, so that
// no number of rounds makes them too old.
func (b *balancer) refresh() error { return b.setClock(sharedNow) }

// setClock makes it that time, in shared ms.
func (b *balancer) setClock(now uint32) error {
	var c bpf.Clock
	out := c
	if _, err := b.o.Clock.Run(&ebpf.RunOptions{Context: c, ContextOut: &out}); err != nil {
		return fmt.Errorf("read the kernel's clock: %w", err)
	}
	control := bpf.Control{ClockBase: now - uint32(out.Jiffies), AskRate: 100, Inputs: 1}
	control.VipSeed = [2]uint64{b.seed, b.seed}
	return b.o.Control.Set(control)
}

func (b *balancer) fillVIPs(names []string) error {
	var keys []tables.Key
	var entries []bpf.VIP
	line, id := uint32(0), uint32(1)
	hashTables, row, err := b.fillTables()
	if err != nil {
		return err
	}
	for _, name := range names {
		v := vips[name]
		h := b.hashes[v.hash]
		e := bpf.VIP{Addr: words(v.addr), Proto: wire.ProtoTCP, Used: 1, Id: id, FirstLine: line,
			Slots: h.slots, Key: [2][2]uint64{benchKeys[0], benchKeys[1]}, HashKey: hashKey,
			NewTable: row, NewSize: serverCount, HashTable: hashTables[v.hash], HashSize: h.size, Generation: 1,
			HashForm: uint8(h.form), AnchorHeld: h.held, AnchorTrack: h.track,
			Scheme: uint8(v.scheme), Policy: uint8(v.policy), Epochs: 3, Shift: 32 - cookieBits}
		if name == "stateful" {
			e.Shift, e.SeatBits = uint8(statefulCookie.Shift()), seatBits
			e.Slots, e.NewSize = uint32(statefulCookie.Slots()), uint32(statefulCookie.Slots())
		}
		if name == "tier1" { // four bits name one of tier two, and the rest is no matter
			e.SeatBits, e.Tier = cookieBits-1-4, uint8(bpf.TierOne)
		}
		if r := choices.SchemeOf(uint8(v.scheme)); r.Foresees() && r.Finds == choices.ByHash {
			e.Flags = uint8(bpf.VIPShare) // as by default
		}
		b.ids[name] = id
		k := tables.Key{Addr: v.addr, Port: 80, Proto: wire.ProtoTCP}
		e.Port = k.PortBE()
		keys, entries = append(keys, k), append(entries, e)
		icmp := tables.Key{Addr: v.addr, Proto: wire.ProtoICMP}
		if v.addr.Is6() {
			icmp.Proto = wire.ProtoICMPv6
		}
		keys = append(keys, icmp)
		entries = append(entries, bpf.VIP{Addr: words(v.addr), Proto: icmp.Proto, Used: 1, Id: id + 1, Flags: 9})
		id += 2
		for i := range h.slots {
			w := bpf.LineWrite{Index: line + i, Reset: 1, Line: serverLine(i, v)}
			if _, err := b.o.LineWrite.Run(&ebpf.RunOptions{Context: w}); err != nil {
				return err
			}
			if v.forwarding == steeredGUE {
				if err := b.steer(line + i); err != nil {
					return err
				}
			}
		}
		line += h.slots
	}
	at, seed, err := tables.Build(keys, b.random)
	if err != nil {
		return err
	}
	for i, l := range at {
		b.vips[0][l] = entries[i]
	}
	b.seed = seed
	return b.o.Vips.Set(unsafe.Slice((*byte)(unsafe.Pointer(&b.vips)), unsafe.Sizeof(b.vips)))
}

// steer gives each part of a line's connections a source port of its own.
func (b *balancer) steer(line uint32) error {
	row := make([]uint64, b.o.Steers.ValueSize()/8)
	for i := range row {
		row[i] = uint64(1024 + i)
	}
	return b.o.Steers.Put(line, row)
}

// fillTables writes the hashes, and behind them the table from which policies
// choose. It returns where each begins.
func (b *balancer) fillTables() (hash map[string]uint32, policy uint32, err error) {
	hash = map[string]uint32{}
	var all []uint64 // an array map's elements are padded to eight bytes
	for name, h := range b.hashes {
		hash[name] = uint32(len(all))
		all = append(all, h.entries...)
		for len(all)%tables.BucketWords != 0 { // the words of a bucket share a cache line
			all = append(all, 0)
		}
		h.entries = nil // 128 MB of the largest
		b.hashes[name] = h
	}
	policy = uint32(len(all))
	for i := range uint64(serverCount) {
		all = append(all, i|1<<16)
	}
	m, err := b.o.Tables.Memory()
	if err != nil {
		return nil, 0, err
	}
	_, err = m.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), len(all)*8), 0)
	return hash, policy, err
}

// serverLine is the header template of server i: an IPv4 tunnel for an IPv4
// VIP, IPv6 for IPv6, leaving where test runs arrive (loopback).
func serverLine(i uint32, v vip) bpf.Line {
	l := bpf.Line{Ifindex: 1, Mtu: 1500}
	mac := [8]byte{2, 0, 0, 1, byte(i >> 8), byte(i), byte(v.forwarding), byte(v.forwarding >> 8)}
	if v.addr.Is6() {
		mac[7] |= bpf.LineIPV6
		l.Addr = words(netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}))
	} else {
		l.Addr = words(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
	}
	l.MacDst = binary.LittleEndian.Uint64(mac[:])
	l.MacSrc = binary.LittleEndian.Uint64([]byte{2, 0, 0, 2, 0, 0, 0, 0})
	return l
}

// fillInputs has frames taken that are to the address of bench_write, as those
// to an interface's own are: by the cache, whichever line of it they look at.
func (b *balancer) fillInputs() error {
	lines := make([]bpf.Input, b.o.InputCache.Size()/uint32(unsafe.Sizeof(bpf.Input{})))
	for i := range lines {
		lines[i] = bpf.Input{Word: 2 << 16, Ifindex: 1}
	}
	return b.o.InputCache.Set(lines)
}

func (b *balancer) fillFloor() error {
	type floorKey struct {
		Addr        uint32
		Port, Proto uint16
	}
	for _, v := range vips {
		if v.addr.Is6() {
			continue
		}
		k := floorKey{be32(v.addr.String()), tables.Key{Port: 80}.PortBE(), wire.ProtoTCP}
		if err := b.o.FloorVips.Put(k, uint32(1)); err != nil {
			return err
		}
	}
	keys, rows := make([]uint32, floorRows), make([]uint32, floorRows)
	for i := range rows {
		keys[i], rows[i] = uint32(i), b.random.Uint32N(serverCount)
	}
	if _, err := b.o.FloorRows.BatchUpdate(keys, rows, nil); err != nil {
		return err
	}
	for i := range uint32(serverCount) {
		s := lbFloorServer{Addr: be32(fmt.Sprintf("10.1.0.%d", i+1)),
			Dst: [6]uint8{2, 0, 0, 1, 0, uint8(i)}, Src: [6]uint8{2, 0, 0, 2}}
		if err := b.o.FloorServers.Put(i, s); err != nil {
			return err
		}
	}
	return nil
}
