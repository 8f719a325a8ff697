package model

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// What vip.JET promises: while no more is added than stood in the horizon, no
// connection leaves its server as long as that is there, though only few are
// remembered (§3, Theorem 3.1).

// flow is a connection and the server that its first packet got.
type flow struct {
	client netip.AddrPort
	proto  uint8
	slot   int
	closed bool
}

func (f *flow) open() []byte {
	if f.proto == wire.ProtoUDP {
		return wire.UDP{Src: f.client, Dst: testVIP4, Payload: wire.QUICInitial(wire.QUIC1, 1, 1200)}.Frame()
	}
	return wire.TCP{Src: f.client, Dst: testVIP4, Flags: wire.SYN}.Frame()
}

func (f *flow) data(flags uint8) []byte {
	if f.proto == wire.ProtoUDP {
		return wire.UDP{Src: f.client, Dst: testVIP4, Payload: []byte("x")}.Frame()
	}
	return wire.TCP{Src: f.client, Dst: testVIP4, Flags: wire.ACK | flags}.Frame()
}

// change is what may befall a server in one step, by what it is.
var change = map[standing][]standing{
	active:   {draining, draining, standby, absent},
	draining: {active, absent},
	standby:  {active, absent},
	absent:   {standby, warming},
	warming:  {active},
}

// Random histories of pools, under both forms of the hash, for what cheetah
// leaves to vip.JET too: a connection whose server is there stays with it.
func TestNothingMovesUnderJET(t *testing.T) {
	tracked, seen := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		scheme := rapid.SampledFrom([]vip.Scheme{vip.JET, vip.JET, vip.Cheetah}).Draw(t, "scheme")
		hash := rapid.SampledFrom([]chash.Kind{chash.KindTableHRW, chash.KindAnchor}).Draw(t, "hash")
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, 0))
		servers := make([]standing, rapid.IntRange(2, 16).Draw(t, "servers"))
		for i := range servers[1:] {
			servers[i+1] = standing(r.IntN(3))
		}
		s, now := NewState(len(servers), 1<<10), r.Uint32()
		var flows []*flow
		newcomer := false
		tables := poolOf(scheme, policy.Hash, hash, servers)
		for step := range 12 {
			// New ones, and more of those that live: also the ones that
			// were silent while the pool changed.
			for range 20 {
				f := &flow{client: client(r), proto: pick(r, uint8(wire.ProtoTCP), wire.ProtoTCP, wire.ProtoUDP)}
				if got := tables.Process(s, f.open(), now); got.Verdict == Send {
					f.slot = got.Slot
					flows = append(flows, f)
					if seen++; got.Tracked {
						tracked++
					}
					if is := servers[f.slot]; is != active && is != warming {
						t.Fatalf("seed %d step %d: a new connection goes to slot %d, which is %d", seed, step, f.slot, is)
					}
				}
			}
			for i, f := range flows {
				if f.closed || !newcomer && r.IntN(3) == 0 { // a newcomer warms up until all have spoken
					continue
				}
				flags := uint8(0)
				if r.IntN(20) == 0 && f.proto == wire.ProtoTCP {
					flags, f.closed = wire.FIN, true
				}
				if got := tables.Process(s, f.data(flags), now); got.Slot != f.slot {
					t.Fatalf("seed %d step %d, %v by %s: connection %d of slot %d goes to %d: %v, %+v %+v, servers %v",
						seed, step, scheme, hash, i, f.slot, got.Slot, got.Reason, got.Flow, got.Place, servers)
				}
			}
			now += 5_000 // 55 s in all: within every idle time
			newcomer = befalls(r, servers)
			tables = poolOf(scheme, policy.Hash, hash, servers)
			live := flows[:0]
			for _, f := range flows {
				if servers[f.slot] == active || servers[f.slot] == draining || servers[f.slot] == warming {
					live = append(live, f)
				}
			}
			flows = live
		}
		if full := s.Counters(1).FlowFull + s.Counters(2).FlowFull; full > 0 {
			t.Fatalf("seed %d: the table was full %d times, which proves nothing", seed, full)
		}
	})
	if tracked == 0 || tracked > seen*3/4 {
		t.Errorf("%d of %d connections were tracked", tracked, seen)
	}
}

// befalls changes some of the servers, several at once too. What warms up is
// warm afterwards; one at least works on. newcomer: a server came that was
// not even in the horizon.
func befalls(r *rand.Rand, servers []standing) (newcomer bool) {
	for i, is := range servers {
		if is != warming && r.IntN(4) > 0 {
			continue
		}
		if servers[i] = pick(r, change[is]...); !slices.Contains(servers, active) {
			servers[i] = is
		}
		newcomer = newcomer || is == absent && servers[i] != absent
	}
	return newcomer
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// The share of connections that are tracked is that of the horizon (§3): of
// the new ones |H| / (|W| + |H|), within 2 %.
func TestTrackedShare(t *testing.T) {
	const seed, n = 11, 60000
	for _, hash := range []chash.Kind{chash.KindTableHRW, chash.KindAnchor} {
		servers := make([]standing, 50)
		for i := 45; i < 50; i++ {
			servers[i] = standby
		}
		tables, s, r := poolOf(vip.JET, policy.Hash, hash, servers), NewState(50, 1<<14), rand.New(rand.NewPCG(seed, 0))
		for range n {
			f := flow{client: client(r), proto: wire.ProtoTCP}
			tables.Process(s, f.open(), 1000)
		}
		got := float64(s.Counters(1).Tracked) / n
		rows := 0.0 // a table's share is that of its rows
		if table, ok := tables.Services[Key{testVIP4.Addr(), 80, wire.ProtoTCP}].Hash.(*chash.Table); ok {
			for _, e := range table.Entries {
				if chash.EntryTrack(e) {
					rows++
				}
			}
			rows /= float64(len(table.Entries))
			if math.Abs(rows-0.1) > 0.02 {
				t.Errorf("%s: %.4f of the rows are tracked", hash, rows)
			}
		} else {
			rows = 0.1
		}
		if math.Abs(got-rows) > 0.004 {
			t.Errorf("seed %d, %s: %.4f tracked, want %.4f", seed, hash, got, rows)
		}
	}
}

// full-ct remembers everything, jet what must be, stateless nothing; only
// what opens or goes on makes an entry.
func TestWhatMakesAnEntry(t *testing.T) {
	servers := []standing{active, active, active, standby}
	c := netip.MustParseAddrPort("203.0.113.7:4711")
	icmp := wire.ICMPError{Src: c.Addr(), Dst: testVIP4.Addr(), Type: wire.ICMPUnreachable, Code: wire.ICMPFragNeeded, MTU: 1400,
		Quoted: wire.TCP{Src: testVIP4, Dst: c, Flags: wire.ACK}.Packet()}
	for name, x := range map[string]struct {
		frame []byte
		makes bool
	}{
		"SYN":      {wire.TCP{Src: c, Dst: testVIP4, Flags: wire.SYN}.Frame(), true},
		"ACK":      {wire.TCP{Src: c, Dst: testVIP4, Flags: wire.ACK}.Frame(), true},
		"FIN":      {wire.TCP{Src: c, Dst: testVIP4, Flags: wire.ACK | wire.FIN}.Frame(), false},
		"RST":      {wire.TCP{Src: c, Dst: testVIP4, Flags: wire.RST}.Frame(), false},
		"quote":    {icmp.Frame(), false},
		"datagram": {wire.UDP{Src: c, Dst: testVIP4, Payload: []byte("x")}.Frame(), true},
		"Initial":  {wire.UDP{Src: c, Dst: testVIP4, Payload: wire.QUICInitial(wire.QUIC2, 1, 1200)}.Frame(), true},
	} {
		for _, scheme := range []vip.Scheme{vip.Stateless, vip.JET, vip.FullCT} {
			tables, s := poolOf(scheme, policy.Hash, chash.KindTableHRW, servers), NewState(4, 16)
			got := tables.Process(s, x.frame, 1000)
			if got.Verdict != Send {
				t.Fatalf("%s, %v: %v", name, scheme, got.Reason)
			}
			want := x.makes && (scheme == vip.FullCT || scheme == vip.JET && got.Place.Track)
			if got.Tracked != want {
				t.Errorf("%s, %v: entry made %v, want %v", name, scheme, got.Tracked, want)
			}
		}
	}
}

// A forged FIN or RST ends nothing, also with a SYN behind it; two minutes
// behind one the next SYN of the same ports goes to another server, if that one
// drains.
func TestForgedEndsEndNothing(t *testing.T) {
	before := poolOf(vip.FullCT, policy.Hash, chash.KindTableHRW, make([]standing, 8))
	servers := make([]standing, 8)
	s, now := NewState(8, 64), uint32(1_000_000)
	f := &flow{client: netip.MustParseAddrPort("203.0.113.7:4711"), proto: wire.ProtoTCP}
	f.slot = before.Process(s, f.open(), now).Slot
	before.Process(s, f.data(0), now)
	servers[f.slot] = draining
	after := poolOf(vip.FullCT, policy.Hash, chash.KindTableHRW, servers)
	forged := after.Process(s, wire.TCP{Src: f.client, Dst: testVIP4, Flags: wire.RST}.Frame(), now)
	if forged.Slot != f.slot || forged.Flow.Now.State() != jet.Fading {
		t.Fatalf("the RST: slot %d, %+v", forged.Slot, forged.Flow)
	}
	for i := range uint32(8) {
		if got := after.Process(s, f.data(0), now+i*1024); got.Slot != f.slot {
			t.Fatalf("%d s after a forged RST: slot %d, want %d", i, got.Slot, f.slot)
		}
	}
	if got := after.Process(s, f.data(0), now+500_000); got.Slot != f.slot || got.Flow.Entry.State() != jet.Confirmed {
		t.Errorf("minutes after a forged RST: slot %d, %+v", got.Slot, got.Flow)
	}
	after.Process(s, f.data(wire.FIN), now+501_000)
	if got := after.Process(s, f.open(), now+620_000); got.Slot != f.slot || got.Flow.Now.State() != jet.Fading {
		t.Errorf("a SYN soon behind a forged FIN: slot %d, %+v", got.Slot, got.Flow)
	}
	if got := after.Process(s, f.data(0), now+620_000); got.Slot != f.slot || got.Flow.Now.State() != jet.Confirmed {
		t.Errorf("data behind both: slot %d, %+v", got.Slot, got.Flow)
	}
	after.Process(s, f.data(wire.FIN), now+621_000)
	if got := after.Process(s, f.open(), now+745_000); got.Slot == f.slot || got.Flow.Outcome != jet.Stale {
		t.Errorf("a SYN two minutes behind a FIN goes to the draining slot %d: %+v", got.Slot, got.Flow)
	}
}

// What a SYN made lapses in two minutes where a connection of before is held
// elsewhere, unless data confirms it; elsewhere it is known for two hours.
func TestOpeningsLapse(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 0))
	lapsed, stayed := 0, 0
	tables := poolOf(vip.JET, policy.Hash, chash.KindTableHRW, []standing{active, active, draining, standby})
	for range 200 {
		s, f := NewState(4, 8), &flow{client: client(r), proto: wire.ProtoTCP}
		syn := tables.Process(s, f.open(), 1000)
		if !syn.Tracked {
			continue
		}
		late := tables.Process(s, f.data(0), 131_000)
		if syn.Place.Held != syn.Slot {
			lapsed++
			if late.FlowHit || late.Slot != syn.Place.Held {
				t.Fatalf("opened on %d: two minutes later on %d, held by %d", syn.Slot, late.Slot, syn.Place.Held)
			}
		} else if stayed++; !late.FlowHit || late.Slot != syn.Slot {
			t.Fatalf("opened on %d, held there: two minutes later %+v", syn.Slot, late.Flow)
		}
	}
	if lapsed == 0 || stayed == 0 {
		t.Errorf("%d lapsed, %d stayed: proves nothing", lapsed, stayed)
	}
}

// An entry that is not followed is written over, tracked or not: what comes
// next must not find it.
func TestStaleEntriesAreOverwritten(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 0))
	tables := poolOf(vip.JET, policy.Hash, chash.KindTableHRW, []standing{0, 0, 0, 0, 0, 0, absent}) // no horizon: nothing is tracked
	v := tables.Services[Key{testVIP4.Addr(), 80, wire.ProtoTCP}]
	for i := range 200 {
		s := NewState(7, 8)
		f := &flow{client: client(r), proto: wire.ProtoTCP}
		place := tables.Process(s, f.open(), 1000)
		s.Flows.Insert(place.Flow.X, 6, 0, pick(r, jet.New, jet.Confirmed, jet.Fading)) // a server that was removed
		again := tables.Process(s, f.open(), 1000)
		next := tables.Process(s, f.data(0), 1000)
		if again.Slot != place.Slot || next.Slot != place.Slot || !again.Tracked {
			t.Fatalf("seed %d: %d: SYN to %d, then %d; want %d (%+v)", seed, i, again.Slot, next.Slot, place.Slot, again.Flow)
		}
	}
	if n := s0(tables, v); n != 0 {
		t.Errorf("%d entries without a horizon", n)
	}
}

// A port used again stays with its server while that takes new connections:
// otherwise a forged RST and SYN would move a connection.
func TestUsedPortsStay(t *testing.T) {
	servers := []standing{active, active, active, standby}
	r, s := rand.New(rand.NewPCG(6, 0)), NewState(4, 1024)
	before, after := poolOf(vip.JET, policy.Hash, chash.KindTableHRW, servers), poolOf(vip.JET, policy.Hash, chash.KindTableHRW, make([]standing, 4))
	known := 0
	for range 200 {
		f := &flow{client: client(r), proto: wire.ProtoTCP}
		was := before.Process(s, f.open(), 1000)
		before.Process(s, f.data(0), 1000)
		rst := after.Process(s, wire.TCP{Src: f.client, Dst: testVIP4, Flags: wire.RST}.Frame(), 1000)
		syn := after.Process(s, f.open(), 2000)
		if !was.Tracked {
			continue
		}
		known++
		if rst.Slot != was.Slot || syn.Slot != was.Slot || syn.Flow.Now.State() != jet.Fading || syn.Share != nil {
			t.Fatalf("opened on slot %d; RST to %d, SYN to %d, told %v: %+v", was.Slot, rst.Slot, syn.Slot, syn.Share, syn.Flow)
		}
		if got := after.Process(s, f.data(0), 3000); got.Slot != was.Slot || got.Flow.Now.State() != jet.Confirmed {
			t.Fatalf("opened on slot %d, goes on on %d: %+v", was.Slot, got.Slot, got.Flow)
		}
	}
	if known == 0 {
		t.Error("the standby server would take none of 200 connections")
	}
}

// s0 counts what a thousand new connections leave in an empty table.
func s0(tables *Tables, v *VIP) uint64 {
	s, r := NewState(int(v.Slots), 1024), rand.New(rand.NewPCG(1, 0))
	for range 1000 {
		f := flow{client: client(r), proto: wire.ProtoTCP}
		tables.Process(s, f.open(), 1)
	}
	return s.Counters(v.ID).Tracked
}

// Where no server takes new connections, none is opened, and the ones that
// drain keep theirs.
func TestAllDraining(t *testing.T) {
	for _, hash := range []chash.Kind{chash.KindTableHRW, chash.KindAnchor} {
		r := rand.New(rand.NewPCG(9, 0))
		before, s := poolOf(vip.JET, policy.Hash, hash, make([]standing, 5)), NewState(5, 64)
		after := poolOf(vip.JET, policy.Hash, hash, []standing{draining, draining, draining, draining, draining})
		for range 100 {
			f := &flow{client: client(r), proto: wire.ProtoTCP}
			f.slot = before.Process(s, f.open(), 1000).Slot
			if got := after.Process(s, f.data(0), 2000); got.Slot != f.slot {
				t.Fatalf("%s: slot %d, want %d", hash, got.Slot, f.slot)
			}
			fresh := &flow{client: client(r), proto: wire.ProtoTCP}
			if got := after.Process(s, fresh.open(), 2000); got.Reason != bpf.DropNoServer {
				t.Fatalf("%s: a new connection: %v to %d", hash, got.Reason, got.Slot)
			}
		}
	}
}

// A connection that cannot be remembered, because its set is full, is
// opened on the server on which its next packet will look for it.
func TestRefusedOpeningsAreHeld(t *testing.T) {
	for _, hash := range []chash.Kind{chash.KindTableHRW, chash.KindAnchor} {
		for _, scheme := range []vip.Scheme{vip.JET, vip.Cheetah} {
			servers := []standing{active, active, draining, draining, standby}
			tables, r, elsewhere := poolOf(scheme, policy.Hash, hash, servers), rand.New(rand.NewPCG(4, 0)), 0
			for i := range 400 {
				f := &flow{client: client(r), proto: pick(r, uint8(wire.ProtoTCP), wire.ProtoUDP)}
				s := NewState(5, 1)
				for k := range uint64(jet.Ways) {
					s.Flows.Insert(k<<32|k, 0, 0, jet.Confirmed)
				}
				first := tables.Process(s, f.open(), 1000)
				next := tables.Process(s, f.data(0), 1000)
				if first.Verdict != Send || next.Slot != first.Slot || first.Tracked || next.Tracked {
					t.Fatalf("%v by %s, %d: opened on slot %d, goes on on slot %d: %+v", scheme, hash, i, first.Slot, next.Slot, first.Place)
				}
				if want := first.Place.Held; first.Slot != want || (first.Flow.Inserted == jet.Full) != first.Flow.Enters {
					t.Fatalf("%v by %s, %d: opened on slot %d, want %d: %+v", scheme, hash, i, first.Slot, want, first.Flow)
				}
				if first.Slot != first.Place.Slot {
					elsewhere++
				}
			}
			if elsewhere < 50 {
				t.Errorf("%v by %s: %d of 400 connections were refused where it matters; half the servers that hold drain", scheme, hash, elsewhere)
			}
			// No server takes new connections: refused or not, none is opened.
			for i := range servers {
				servers[i] = draining
			}
			s := NewState(5, 1)
			for k := range uint64(jet.Ways) {
				s.Flows.Insert(k<<32|k, 0, 0, jet.Confirmed)
			}
			f := &flow{client: client(r), proto: wire.ProtoTCP}
			if got := poolOf(scheme, policy.Hash, hash, servers).Process(s, f.open(), 1000); got.Reason != bpf.DropNoServer {
				t.Errorf("%v by %s: an opening where all drain: %v to slot %d", scheme, hash, got.Reason, got.Slot)
			}
		}
	}
}

// Where nothing holds, or what holds names no server, a refused opening goes
// where new ones go; under full-ct every packet does.
func TestRefusedAndNotHeld(t *testing.T) {
	for _, held := range []int{chash.None, 4, 1} {
		for _, scheme := range []vip.Scheme{vip.JET, vip.FullCT} {
			tables := pool(scheme, policy.Hash, 2)
			v := tables.Services[Key{testVIP4.Addr(), 80, wire.ProtoTCP}]
			v.Hash = &chash.Table{Entries: []uint32{chash.Entry(0, held, true)}}
			s := NewState(2, 1)
			for k := range uint64(jet.Ways) {
				s.Flows.Insert(k<<32|k, 0, 0, jet.Confirmed)
			}
			want := 0
			if held == 1 && scheme == vip.JET {
				want = 1
			}
			got := tables.Process(s, wire.TCP{Src: netip.MustParseAddrPort("203.0.113.7:4711"), Dst: testVIP4, Flags: wire.SYN}.Frame(), 1000)
			if got.Slot != want || got.Reason != bpf.ForwardNew || !got.Opens {
				t.Errorf("%v, held by %d: %v to slot %d, want %d", scheme, held, got.Reason, got.Slot, want)
			}
		}
	}
}

// A VIP that tracks all makes an entry for each connection that goes on or
// opens, whatever its hash says, and follows it when the hash says otherwise.
func TestTrackAll(t *testing.T) {
	for _, scheme := range []vip.Scheme{vip.JET, vip.Cheetah} {
		before := poolOf(scheme, policy.Hash, chash.KindAnchor, []standing{absent, active, active, active})
		after := poolOf(scheme, policy.Hash, chash.KindAnchor, []standing{active, active, active, active})
		for _, v := range before.Services {
			v.TrackAll = true
		}
		s, r, moves := NewState(4, 1024), rand.New(rand.NewPCG(6, 0)), 0
		for i := range 400 {
			f := &flow{client: client(r), proto: pick(r, uint8(wire.ProtoTCP), wire.ProtoUDP)}
			if got := before.Process(s, f.data(wire.FIN), 1000); got.Tracked && f.proto == wire.ProtoTCP {
				t.Fatalf("%v: a FIN made an entry", scheme)
			}
			first := pick(r, f.open(), f.data(0))
			got := before.Process(s, first, 1000)
			if !got.Tracked && f.proto == wire.ProtoTCP || got.Flow.Now == 0 {
				t.Fatalf("%v, %d: not tracked: %+v %+v", scheme, i, got.Flow, got.Place)
			}
			next := after.Process(s, f.data(0), 2000)
			if next.Slot != got.Slot {
				t.Fatalf("%v, %d: moved from slot %d to %d: %+v", scheme, i, got.Slot, next.Slot, next.Flow)
			}
			if slot, _, _ := after.Services[Key{testVIP4.Addr(), 80, f.proto}].Hash.Place(next.Hash); slot != got.Slot {
				moves++
			}
		}
		if moves == 0 {
			t.Errorf("%v: the change moves nothing, which proves nothing", scheme)
		}
	}
}

// Only a whole Initial of a known version opens a flow of UDP.
func TestInitials(t *testing.T) {
	c := netip.MustParseAddrPort("203.0.113.7:4711")
	good := func(version uint32) []byte { return wire.QUICInitial(version, 7, 1200) }
	spoil := func(b []byte, at int, x byte) []byte { b[at] = x; return b }
	for name, x := range map[string]struct {
		payload []byte
		opens   bool
	}{
		"v1": {good(wire.QUIC1), true}, "v2": {good(wire.QUIC2), true},
		"long":              {wire.QUICInitial(wire.QUIC1, 7, 1400), true},
		"short":             {wire.QUICInitial(wire.QUIC1, 7, 1199), false},
		"handshake":         {spoil(good(wire.QUIC1), 0, 0xe0), false},
		"v1's type in v2":   {spoil(good(wire.QUIC2), 0, 0xc0), false},
		"short header":      {spoil(good(wire.QUIC1), 0, 0x40), false},
		"no fixed bit":      {spoil(good(wire.QUIC1), 0, 0x80), false},
		"draft 29":          {good(0xff00001d), false},
		"version 0":         {good(0), false},
		"protected bits":    {spoil(good(wire.QUIC1), 0, 0xcf), true},
		"empty":             {nil, false},
		"one byte of these": {[]byte{0xc0}, false},
	} {
		tables, s := pool(vip.JET, policy.Hash, 4), NewState(4, 16)
		got := tables.Process(s, wire.UDP{Src: c, Dst: testVIP4, Payload: x.payload}.Frame(), 1)
		if opens := got.Reason == bpf.ForwardNew; opens != x.opens || got.Opens != x.opens {
			t.Errorf("%s: %v, opens %v, want %v", name, got.Reason, got.Opens, x.opens)
		}
	}
}

// Other balancers are told what is confirmed, and only that.
func TestShared(t *testing.T) {
	tables := poolOf(vip.JET, policy.Hash, chash.KindTableHRW, []standing{active, standby, standby, standby, standby})
	r, s := rand.New(rand.NewPCG(3, 0)), NewState(5, 1024)
	told := 0
	for range 200 {
		for _, proto := range []uint8{wire.ProtoTCP, wire.ProtoUDP} {
			f := &flow{client: client(r), proto: proto}
			first := tables.Process(s, f.open(), 1000)
			second := tables.Process(s, f.data(0), 1000)
			third := tables.Process(s, f.data(0), 1000)
			if first.Share != nil || third.Share != nil || (second.Share != nil) != first.Tracked {
				t.Fatalf("told %v %v %v, tracked %v", first.Share, second.Share, third.Share, first.Tracked)
			}
			if second.Share == nil {
				continue
			}
			told++
			want := map[uint8]jet.State{wire.ProtoTCP: jet.Confirmed, wire.ProtoUDP: jet.Datagram}[proto]
			if got := *second.Share; got != (Shared{first.Flow.X, first.Slot, want, proto == wire.ProtoTCP, got.VIP}) || got.VIP != first.VIP.ID {
				t.Fatalf("told %+v", got)
			}
		}
	}
	if told < 200 {
		t.Errorf("%d of 400 flows were told, four in five of the servers are in the horizon", told)
	}
}
