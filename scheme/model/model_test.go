package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// What the papers promise, on the model; kernel/lb's differential tests hold
// the program to it.

var (
	testVIP4 = netip.MustParseAddrPort("192.0.2.10:80")
	testKeys = [2]hash.Key{{1, 2}, {3, 4}}
)

// standing of a server in a pool.
type standing int

const (
	active standing = iota
	draining
	standby
	warming // active, but was not in the horizon before
	absent
)

// pool is a VIP of the given policy over n servers, of which those in
// drained take nothing new.
func pool(scheme vip.Scheme, pol string, n int, drained ...int) *Tables {
	servers := make([]standing, n)
	for _, s := range drained {
		servers[s] = draining
	}
	return poolOf(scheme, pol, chash.KindTableHRW, servers)
}

func poolOf(scheme vip.Scheme, pol string, kind chash.Kind, servers []standing) *Tables {
	n := len(servers)
	v := &VIP{ID: 1, Addr: testVIP4.Addr(), Port: 80, Proto: wire.ProtoTCP, Slots: uint32(n), Keys: testKeys, Epochs: 1,
		HashKey: hash.Key{5, 6}, Layout: cheetah.Layout{Bits: 12}, Scheme: scheme, Policy: pol, ICMPEcho: true, Share: true, NoNew: true}
	udp := *v
	udp.ID, udp.Proto = 2, wire.ProtoUDP
	t := &Tables{Services: map[Key]*VIP{{v.Addr, 80, v.Proto}: v, {v.Addr, 80, udp.Proto}: &udp}, Addresses: map[netip.Addr]*Address{v.Addr: v},
		Lines: make([]Line, n), Source4: netip.MustParsePrefix("10.88.0.0/16"), Source6: netip.MustParsePrefix("fd88::/64"), AskRate: 10}
	var members []policy.Member
	var rows []chash.Member
	var buckets []chash.BucketState
	for s, is := range servers {
		t.Lines[s] = Line{Forwarding: vip.IPIP, Addr: netip.AddrFrom4([4]byte{10, 0, byte(s >> 8), byte(s)}), Ifindex: 2, MTU: 1480,
			Closed: is != active && is != warming}
		if is == absent {
			t.Lines[s] = Line{}
		}
		name := fmt.Sprint("s", s)
		if is == active || is == warming {
			members = append(members, policy.Member{Slot: uint16(s), Weight: 1, Name: name})
			v.NoNew, udp.NoNew = false, false
		}
		m := map[standing][3]int{active: {1, 1, 1}, draining: {0, 1, 1}, standby: {0, 0, 1}, warming: {1, 0, 1}}[is]
		if is != absent {
			rows = append(rows, chash.Member{Name: name, Number: s, New: m[0], Held: m[1], Horizon: m[2]})
		}
		buckets = append(buckets, map[standing]chash.BucketState{active: chash.Working, draining: chash.Draining, standby: chash.Horizon,
			warming: chash.Horizon, absent: chash.Unused}[is])
	}
	v.NewTable = policy.Table(pol, members)
	var err error
	if kind == chash.KindAnchor {
		v.Hash, err = chash.NewAnchorTable(64, buckets)
	} else {
		v.Hash, err = chash.Compile(chash.Spec{Kind: kind, Rows: 1024, Capacity: 64}, rows)
	}
	if err != nil {
		panic(err)
	}
	udp.Hash = v.Hash
	return t
}

// conn is a client's connection: what it echoes is what its server stamped.
type conn struct {
	client netip.AddrPort
	slot   int
	epoch  uint32
	sent   uint32
}

func (c conn) ack(t *Tables) []byte {
	v := t.Services[Key{testVIP4.Addr(), 80, wire.ProtoTCP}]
	ts := v.Layout.Stamp(v.Keys[c.epoch], c.epoch, c.client, 80, uint32(c.slot), c.sent)
	return wire.TCP{Src: c.client, Dst: testVIP4, Flags: wire.ACK, Options: wire.Timestamp(1, ts)}.Frame()
}

func syn(client netip.AddrPort) []byte {
	return wire.TCP{Src: client, Dst: testVIP4, Flags: wire.SYN, Options: wire.SYNOptions(1460, 1)}.Frame()
}

func client(r *rand.Rand) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, byte(r.Uint32()), byte(r.Uint32())}), uint16(1024+r.IntN(60000)))
}

// vip.Cheetah §3.1: a connection stays with the server that its first packet got,
// whatever the pool, the policy and the balancer become meanwhile, up to the
// idle limit. vip.Stateless breaks connections under the same changes.
func TestConnectionsStay(t *testing.T) {
	broken := map[vip.Scheme]int{}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 40).Draw(t, "servers")
		pol := rapid.SampledFrom([]string{policy.RR, policy.P2C, policy.LeastConn, policy.Hash}).Draw(t, "policy")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		now := rapid.Uint32().Draw(t, "now")
		age := rapid.Int64Range(0, cheetah.Layout{Bits: 12}.IdleLimit().Milliseconds()).Draw(t, "age")
		drained := rapid.IntRange(0, n-1).Draw(t, "drained")
		for _, scheme := range []vip.Scheme{vip.Cheetah, vip.Stateless} {
			before, s := pool(scheme, pol, n), NewState(64, 16)
			// Another balancer, with another policy state, after a drain
			// and an addition.
			after, other := pool(scheme, policy.RR, n+1, drained), NewState(64, 16)
			for range 30 {
				c := conn{client: client(r), sent: now}
				first := before.Process(s, syn(c.client), now)
				if first.Verdict != Send || scheme == vip.Cheetah && first.Reason != bpf.ForwardNew {
					t.Fatalf("%v: SYN: %v %v", scheme, first.Reason, first.Verdict)
				}
				c.slot = first.Slot
				later := after.Process(other, c.ack(after), now+uint32(age))
				if later.Slot == c.slot {
					continue
				}
				broken[scheme]++
				if scheme == vip.Cheetah {
					t.Fatalf("a connection of slot %d reached %d after %d ms: %v", c.slot, later.Slot, age, later.Reason)
				}
			}
		}
	})
	if broken[vip.Stateless] == 0 {
		t.Error("stateless broke nothing: the changes are too tame to prove anything")
	}
}

// A draining server gets no new connection under any policy and scheme.
func TestDrainingTakesNothingNew(t *testing.T) {
	for _, pol := range []string{policy.RR, policy.WRR, policy.P2C, policy.LeastConn, policy.Hash} {
		tables, s := pool(vip.Cheetah, pol, 5, 1, 3), NewState(5, 16)
		r := rand.New(rand.NewPCG(1, 0))
		for range 500 {
			for _, frame := range [][]byte{syn(client(r)),
				wire.TCP{Src: client(r), Dst: testVIP4, Flags: wire.SYN}.Frame()} {
				if got := tables.Process(s, frame, 1); got.Slot == 1 || got.Slot == 3 || got.Verdict != Send {
					t.Fatalf("%s: %v to slot %d", pol, got.Reason, got.Slot)
				}
			}
		}
	}
}

// Two epochs decode at once; a rotation is two steps between which balancers
// may differ.
func TestRotationBreaksNothing(t *testing.T) {
	tables, s := pool(vip.Cheetah, policy.RR, 8), NewState(8, 16)
	v := tables.Services[Key{testVIP4.Addr(), 80, wire.ProtoTCP}]
	r := rand.New(rand.NewPCG(2, 0))
	for epochs, live := range map[uint8][]uint32{1: {0}, 3: {0, 1}, 2: {1}} {
		v.Epochs = epochs
		for _, epoch := range live {
			for slot := range 8 {
				c := conn{client: client(r), slot: slot, epoch: epoch, sent: 1000}
				if got := tables.Process(s, c.ack(tables), 2000); got.Reason != bpf.Known || got.Slot != slot {
					t.Errorf("epochs %b: cookie of parity %d for slot %d: %v, slot %d", epochs, epoch, slot, got.Reason, got.Slot)
				}
			}
		}
	}
	v.Epochs = 2
	if got := tables.Process(s, conn{client: client(r), sent: 1000}.ack(tables), 2000); got.Reason != bpf.ForwardBadCookie {
		t.Errorf("a cookie of the epoch before last: %v", got.Reason)
	}
}

// Connections are counted from SYN, FIN and RST, never below zero.
func TestConnectionsAreCounted(t *testing.T) {
	tables, s := pool(vip.Cheetah, policy.RR, 1), NewState(1, 16)
	c := conn{client: netip.MustParseAddrPort("203.0.113.7:4711"), sent: 1000}
	tables.Process(s, syn(c.client), 1000)
	if s.Conns[0] != 1 {
		t.Fatalf("after a SYN: %d open", s.Conns[0])
	}
	fin := c.ack(tables)
	fin[14+20+13] |= wire.FIN
	for range 2 {
		if got := tables.Process(s, fin, 1500); !got.Closes || s.Conns[0] != 0 {
			t.Fatalf("after a FIN: %+v, %d open", got, s.Conns[0])
		}
	}
}

// The bound on asking all servers: its rate, and as many at once.
func TestAskBound(t *testing.T) {
	tables, s := pool(vip.Cheetah, policy.RR, 3), NewState(3, 16)
	rst := wire.TCP{Src: netip.MustParseAddrPort("203.0.113.7:4711"), Dst: testVIP4, Flags: wire.RST}.Frame()
	count := func(now uint32) (n int) {
		for range 100 {
			if tables.Process(s, rst, now).Ask != nil {
				n++
			}
		}
		return n
	}
	if n := count(100_000); n != 10 {
		t.Errorf("%d at once, want 10", n)
	}
	if n := count(100_500); n != 5 {
		t.Errorf("%d after half a second, want 5", n)
	}
}
