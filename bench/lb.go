package bench

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/viptable"
	"github.com/fairlead/fairlead/wire"
)

const (
	packetsPerRun = 16      // BENCH_PACKETS
	flowCount     = 1 << 20 // of each set of flows
	serverCount   = 100
	cookieBits    = 12
	flowBuckets   = 32768 // the default limit, 262,144 flows
	floorRows     = 65537

	sharedNow = 5_000_000 // shared ms at which the flows were stamped

	xdpPass = 2
	xdpTX   = 3
)

// Sets of flows in bench_flows: where each starts.
const (
	knownFlows  = 0 // cookies of the IPv4 VIPs
	badFlows    = flowCount
	known6Flows = 2 * flowCount
)

var (
	benchKeys = [2]cheetah.Key{{0x1111, 0x2222}, {0x3333, 0x4444}}
	hashKey   = cheetah.Key{0x5555, 0x6666}
	noVIP     = netip.MustParseAddr("192.0.2.250")
)

// balancer is the balancer's program and the floor with their maps filled.
type balancer struct {
	o      lbObjects
	random *rand.Rand
	vips   [2][viptable.Lines]lbFlVip
	seed   uint64
}

// vip is what a case needs to be different.
type vip struct {
	addr       netip.Addr
	scheme     lbFlScheme
	policy     lbFlPolicy
	forwarding lbFlForwarding
}

var vips = map[string]vip{
	"rr":         {netip.MustParseAddr("192.0.2.1"), lbFlSchemeFL_SCHEME_CHEETAH, lbFlPolicyFL_POLICY_RR, lbFlForwardingFL_FWD_IPIP},
	"wrr":        {netip.MustParseAddr("192.0.2.2"), lbFlSchemeFL_SCHEME_CHEETAH, lbFlPolicyFL_POLICY_WRR, lbFlForwardingFL_FWD_IPIP},
	"p2c":        {netip.MustParseAddr("192.0.2.3"), lbFlSchemeFL_SCHEME_CHEETAH, lbFlPolicyFL_POLICY_P2C, lbFlForwardingFL_FWD_IPIP},
	"least-conn": {netip.MustParseAddr("192.0.2.4"), lbFlSchemeFL_SCHEME_CHEETAH, lbFlPolicyFL_POLICY_LEAST_CONN, lbFlForwardingFL_FWD_IPIP},
	"hash":       {netip.MustParseAddr("192.0.2.5"), lbFlSchemeFL_SCHEME_CHEETAH, lbFlPolicyFL_POLICY_HASH, lbFlForwardingFL_FWD_IPIP},
	"stateless":  {netip.MustParseAddr("192.0.2.6"), lbFlSchemeFL_SCHEME_STATELESS, lbFlPolicyFL_POLICY_HASH, lbFlForwardingFL_FWD_IPIP},
	"gue":        {netip.MustParseAddr("192.0.2.7"), lbFlSchemeFL_SCHEME_CHEETAH, lbFlPolicyFL_POLICY_RR, lbFlForwardingFL_FWD_GUE},
	"v6":         {netip.MustParseAddr("2001:db8::1"), lbFlSchemeFL_SCHEME_CHEETAH, lbFlPolicyFL_POLICY_RR, lbFlForwardingFL_FWD_IPIP},
}

func openBalancer() (*suite, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	spec, err := loadLb()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	lines := uint32(len(vips) * serverCount)
	for name, n := range map[string]uint32{"lines": lines, "conns": lines,
		"tables": 1 << 20, "flows": flowBuckets, "bench_flows": 3 * flowCount} {
		spec.Maps[name].MaxEntries = n
	}
	source6 := words(netip.MustParseAddr("fd00:254::"))
	for name, v := range map[string]any{
		"flow_buckets": uint32(flowBuckets), "jiffy_mult": uint64(1),
		"source4": be32("10.254.0.0"), "source4_mask": be32("0.0.255.255"),
		"source6": source6, "source6_mask": words(netip.MustParseAddr("::ffff:ffff")),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	b := &balancer{random: rand.New(rand.NewPCG(1, 1))}
	if err := spec.LoadAndAssign(&b.o, nil); err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	for _, fill := range []func() error{b.fillVIPs, b.fillFlows, b.fillFloor, b.refresh} {
		if err := fill(); err != nil {
			b.o.Close()
			return nil, fmt.Errorf("fill the tables: %w", err)
		}
	}
	release, err := hold(b.o.BenchNone, b.o.BenchFloor, b.o.BenchLb)
	if err != nil {
		b.o.Close()
		return nil, err
	}
	s := b.suite()
	s.refresh = b.refresh
	s.close = func() { release(); b.o.Close() }
	return s, nil
}

func be32(s string) uint32 {
	a := netip.MustParseAddr(s).As4()
	return binary.LittleEndian.Uint32(a[:])
}

func words(a netip.Addr) [2]uint64 { return viptable.Key{Addr: a}.Words() }

// refresh sets the shared clock back to when the flows were stamped, so that
// no number of rounds makes them too old.
func (b *balancer) refresh() error {
	var c lbFlClock
	out := c
	if _, err := b.o.Clock.Run(&ebpf.RunOptions{Context: c, ContextOut: &out}); err != nil {
		return fmt.Errorf("read the kernel's clock: %w", err)
	}
	control := lbFlControl{ClockBase: sharedNow - uint32(out.Jiffies), AskRate: 100}
	control.VipSeed = [2]uint64{b.seed, b.seed}
	return b.o.Control.Set(control)
}

func (b *balancer) fillVIPs() error {
	var keys []viptable.Key
	var entries []lbFlVip
	line, row, id := uint32(0), uint32(0), uint32(1)
	for _, v := range vips {
		e := lbFlVip{Addr: words(v.addr), Proto: wire.ProtoTCP, Used: 1, Id: id, FirstLine: line,
			Slots: serverCount, Key: [2][2]uint64{benchKeys[0], benchKeys[1]}, HashKey: hashKey,
			NewTable: row, NewSize: serverCount, HashTable: row, HashSize: serverCount,
			Scheme: uint8(v.scheme), Policy: uint8(v.policy), Epochs: 3, Shift: 32 - cookieBits}
		k := viptable.Key{Addr: v.addr, Port: 80, Proto: wire.ProtoTCP}
		e.Port = k.PortBE()
		keys, entries = append(keys, k), append(entries, e)
		icmp := viptable.Key{Addr: v.addr, Proto: wire.ProtoICMP}
		if v.addr.Is6() {
			icmp.Proto = wire.ProtoICMPv6
		}
		keys = append(keys, icmp)
		entries = append(entries, lbFlVip{Addr: words(v.addr), Proto: icmp.Proto, Used: 1, Id: id + 1, Flags: 9})
		id += 2
		for i := range uint32(serverCount) {
			if err := b.o.Tables.Put(row+i, i|1<<16); err != nil {
				return err
			}
			w := lbFlLineWrite{Index: line + i, Reset: 1, Line: serverLine(i, v)}
			if _, err := b.o.LineWrite.Run(&ebpf.RunOptions{Context: w}); err != nil {
				return err
			}
		}
		line, row = line+serverCount, row+serverCount
	}
	at, seed, err := viptable.Build(keys, b.random)
	if err != nil {
		return err
	}
	for i, l := range at {
		b.vips[0][l] = entries[i]
	}
	b.seed = seed
	return b.o.Vips.Set(unsafe.Slice((*byte)(unsafe.Pointer(&b.vips)), unsafe.Sizeof(b.vips)))
}

// serverLine is the header template of server i: an IPv4 tunnel for an IPv4
// VIP, IPv6 for IPv6, leaving where test runs arrive (loopback).
func serverLine(i uint32, v vip) lbFlLine {
	l := lbFlLine{Ifindex: 1, Mtu: 1500}
	mac := [8]byte{2, 0, 0, 1, 0, byte(i), byte(v.forwarding)}
	if v.addr.Is6() {
		mac[7] = 1 // FL_LINE_IPV6
		l.Addr = words(netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)}))
	} else {
		l.Addr = words(netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}))
	}
	l.MacDst = binary.LittleEndian.Uint64(mac[:])
	l.MacSrc = binary.LittleEndian.Uint64([]byte{2, 0, 0, 2, 0, 0, 0, 0})
	return l
}

// source is flow i's client. The low four bytes of its address and the port
// are what the harness writes.
func source(family int, r uint32, i int) netip.AddrPort {
	port := uint16(1024 + i%60000)
	if family == 4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(r>>16)%223 + 1, byte(r >> 8), byte(r), byte(i)}), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 12: byte(r >> 16), 13: byte(r >> 8), 14: byte(r), 15: byte(i)}), port)
}

func (b *balancer) fillFlows() error {
	layout := cheetah.Layout{Bits: cookieBits}
	all := make([]lbBenchFlow, 3*flowCount)
	for set, family := range []int{4, 4, 6} {
		for i := range flowCount {
			src := source(family, b.random.Uint32(), i)
			epoch := b.random.Uint32N(2)
			slot := b.random.Uint32N(serverCount)
			if set*flowCount == badFlows { // a slot that no server has
				slot = serverCount + b.random.Uint32N(uint32(layout.Slots())-serverCount)
			}
			field := layout.Encode(cheetah.Hash(benchKeys[epoch], src, 80), slot, epoch)
			ecr := layout.WireTS(field, sharedNow-b.random.Uint32N(60_000))
			a := src.Addr().AsSlice()
			f := &all[set*flowCount+i]
			f.Saddr = binary.LittleEndian.Uint32(a[len(a)-4:])
			f.Sport = viptable.Key{Port: src.Port()}.PortBE()
			f.Dport = viptable.Key{Port: 80}.PortBE()
			f.Ecr = binary.BigEndian.Uint32(binary.LittleEndian.AppendUint32(nil, ecr))
		}
	}
	// The map is mapped: a copy takes milliseconds, updates take seconds.
	m, err := b.o.BenchFlows.Memory()
	if err != nil {
		return err
	}
	_, err = m.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), len(all)*int(unsafe.Sizeof(all[0]))), 0)
	return err
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
		k := floorKey{be32(v.addr.String()), viptable.Key{Port: 80}.PortBE(), wire.ProtoTCP}
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
