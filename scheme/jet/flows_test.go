package jet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/vip"
)

// A set is one cache line, and matching is exact for every pair of tags.
func TestSetIsACacheLine(t *testing.T) {
	if n := unsafe.Sizeof(FlowSet{}); n != 64 {
		t.Fatalf("a set has %d bytes, want 64", n)
	}
}

// What a warm-up outlasts is forgotten by the flow table, not before.
func TestWarmUpIsAsLong(t *testing.T) {
	for state, warmUp := range map[State]time.Duration{Confirmed: vip.DefaultWarmUp, Datagram: vip.DefaultWarmUpUDP} {
		if idle := time.Duration(state.Idle()) * Unit * time.Millisecond; warmUp > idle || idle-warmUp > 2*time.Second {
			t.Errorf("the default warm-up of %v and the %v for which %s entries are known differ", warmUp, idle, state)
		}
	}
}

func TestMatchIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b FlowSet
		x := rapid.Uint64().Draw(t, "x")
		want := [8]bool{}
		for i := range Ways {
			tag := uint64(0)
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				tag = tagOf(rapid.Uint64().Draw(t, "other"))
			case 1:
				tag = tagOf(x ^ 1) // the neighbour by which borrows betray a cheap comparison
			case 2:
				tag = tagOf(x)
			}
			b.Tags |= tag << (8 * i)
			want[i] = tag == tagOf(x)
		}
		for i, w := range want {
			if got := b.match(x)>>(8*i)&0xff == 0x80; got != w {
				t.Fatalf("tags %x, tag %x: byte %d: %v, want %v", b.Tags, tagOf(x), i, got, w)
			}
		}
	})
}

// keyIn is a random x of the given set (of n).
func keyIn(r *rand.Rand, f *Flows, set int) uint64 {
	for {
		if x := r.Uint64(); f.Index(x) == set {
			return x
		}
	}
}

// naive is the table as the contract describes it, without words of tags.
type naive struct {
	sets [][]naiveEntry // Ways each
}

type naiveEntry struct {
	used  bool
	id    uint64 // tag and fingerprint
	slot  int
	unit  uint16
	state State
}

func (e naiveEntry) old(now uint16) bool {
	return int(now-e.unit+bpf.FlowSlack) > int(idle[e.state])+bpf.FlowSlack
}

// gone: TCP's that fades is known for as long as one that lives.
func (e naiveEntry) gone(now uint16, tcp bool) bool {
	if tcp && e.state == Fading {
		e.state = Confirmed
	}
	return e.old(now)
}

func id(x uint64) uint64 { return x>>32<<8 | x&0x7f }

func newNaive(n int) *naive {
	t := &naive{}
	for range n {
		t.sets = append(t.sets, make([]naiveEntry, Ways))
	}
	return t
}

func (t *naive) set(x uint64) []naiveEntry {
	return t.sets[uint64(uint32(x))*uint64(len(t.sets))>>32]
}

func (t *naive) find(x uint64, now uint16, tcp bool) *naiveEntry {
	for i := range t.set(x) {
		if e := &t.set(x)[i]; e.used && e.id == id(x) {
			if e.gone(now, tcp) {
				return nil
			}
			return e
		}
	}
	return nil
}

func (t *naive) insert(x uint64, slot int, now uint16, s State, lru bool) Inserted {
	b, what := t.set(x), Made
	first := func(which func(naiveEntry) bool) int {
		for i, e := range b {
			if which(e) {
				return i
			}
		}
		return -1
	}
	oldest := func(which func(naiveEntry) bool) int {
		at := -1
		for i, e := range b {
			if which(e) && (at < 0 || now-e.unit+bpf.FlowSlack > now-b[at].unit+bpf.FlowSlack) {
				at = i
			}
		}
		return at
	}
	at := first(func(e naiveEntry) bool { return e.used && e.id == id(x) })
	if at < 0 {
		at = first(func(e naiveEntry) bool { return !e.used })
	}
	if at < 0 && lru {
		if at = oldest(func(naiveEntry) bool { return true }); !b[at].old(now) {
			what = Replaced
		}
	}
	old := func(e naiveEntry) bool { return e.old(now) }
	news := func(e naiveEntry) bool { return e.state == New }
	fading := func(e naiveEntry) bool { return e.state == Fading }
	several := func() bool {
		n := 0
		for _, e := range b {
			if news(e) {
				n++
			}
		}
		return n > 1
	}
	for _, next := range []struct {
		which func(naiveEntry) bool
		when  bool
	}{{old, true}, {news, several()}, {fading, true}, {news, true}} {
		if at < 0 && next.when {
			if at = oldest(next.which); at >= 0 && !b[at].old(now) {
				what = Replaced
			}
		}
	}
	if at < 0 {
		return Full
	}
	b[at] = naiveEntry{true, id(x), slot, now, s}
	return what
}

func same(f *Flows, n *naive) error {
	for i, b := range f.Sets {
		if b.Tags>>56 != 0 {
			return fmt.Errorf("set %d: the last tag is used: %x", i, b.Tags)
		}
		for j, e := range b.Entry {
			tag, want := b.Tags>>(8*j)&0xff, n.sets[i][j]
			if (tag != 0) != want.used {
				return fmt.Errorf("set %d entry %d: used %v, want %v", i, j, tag != 0, want.used)
			}
			got := naiveEntry{true, uint64(e)>>32<<8 | tag&0x7f, e.Slot(), e.Time(), e.State()}
			if tag != 0 && got != want {
				return fmt.Errorf("set %d entry %d: %+v, want %+v", i, j, got, want)
			}
		}
	}
	return nil
}

// The table does what the plain description says, step by step, full or not.
func TestTableIsThePlainOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		lru := rapid.Bool().Draw(t, "lru")
		f, n := NewFlows(3), newNaive(3)
		keys := make([]uint64, 40)
		for i := range keys {
			keys[i] = r.Uint64()
			if i > 0 && r.IntN(4) == 0 { // the same tag, or the same fingerprint
				keys[i] = pick(r, keys[i-1]^1<<(32+r.IntN(32)), keys[i-1]^1<<r.IntN(7), keys[i-1]^1<<(7+r.IntN(10)))
			}
		}
		now := uint16(r.Uint32())
		for range 400 {
			now += uint16(r.IntN(2))
			if r.IntN(30) == 0 { // seldom, or nothing would ever be full
				now += uint16(pick(r, 30, 100, 1000, 8000, 1<<16-3))
			}
			x, slot, state := keys[r.IntN(len(keys))], r.IntN(MaxSlot+1), State(r.IntN(4))
			switch r.IntN(8) {
			default:
				var got Inserted
				if lru {
					got = f.InsertLRU(x, slot, now, state)
				} else {
					got = f.Insert(x, slot, now, state)
				}
				if want := n.insert(x, slot, now, state, lru); got != want {
					t.Fatalf("insertion of %x: %v, want %v", x, got, want)
				}
			case 0, 1:
				tcp := r.IntN(2) == 0
				e, want := f.Find(x, now, tcp), n.find(x, now, tcp)
				if (e != nil) != (want != nil) || e != nil && (e.Slot() != want.slot || e.State() != want.state) {
					t.Fatalf("%x: %v, want %v", x, e, want)
				}
				if e != nil {
					event := Event(r.IntN(4))
					touched(t, e, want, now, tcp, event, Line(r.IntN(8)))
				}
			case 2:
				first := r.IntN(3)
				live, confirmed, expired := f.Sweep(first, 2, now)
				l, c, x := 0, 0, 0
				for i := first; i < min(first+2, 3); i++ {
					for j := range n.sets[i] {
						switch e := &n.sets[i][j]; {
						case !e.used:
						case e.gone(now, true):
							*e, x = naiveEntry{}, x+1
						case e.old(now):
						default:
							if l++; e.state == Confirmed || e.state == Datagram {
								c++
							}
						}
					}
				}
				if live != l || confirmed != c || expired != x {
					t.Fatalf("swept %d %d %d, want %d %d %d", live, confirmed, expired, l, c, x)
				}
			}
			if err := same(f, n); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// touched applies the rules of Touch in words and compares.
func touched(t *rapid.T, e *Entry, want *naiveEntry, now uint16, tcp bool, event Event, line Line) {
	before := *want
	age := int16(now - before.unit)
	outcome, share := Touch(e, now, tcp, event, line)
	stale := line&NoServer != 0 || !tcp && line&Down != 0 || event == Open &&
		(line&Down != 0 || line&Closed != 0 && before.state != Confirmed && before.state != Datagram &&
			(before.state != Fading || !tcp || before.old(now)))
	if (outcome == Stale) != stale {
		t.Fatalf("%+v touched by %v at %d, line %b: %v", before, event, now, line, outcome)
	}
	if stale || event == Peek || event != Data && before.state == New || event == Data && tcp && before.state == Fading && age < bpf.FlowRevive {
		if share {
			t.Fatalf("%+v touched by %v: told though nothing changed", before, event)
		}
		return
	}
	want.unit = now
	switch {
	case event == Close:
		want.state = Fading
	case event == Open && tcp && before.state == Fading:
		want.unit -= bpf.FlowRevive
	case event == Data && (before.state == New || before.state == Fading):
		if want.state = Datagram; tcp {
			want.state = Confirmed
		}
	}
	tell := want.state != before.state
	switch want.state {
	case Confirmed:
		tell = tell || now/1024 != before.unit/1024
	case Datagram:
		tell = tell || now/32 != before.unit/32
	}
	if tell != share {
		t.Fatalf("%+v touched by %v at %d: told %v, want %v", before, event, now, share, tell)
	}
}

// A flood of first packets never takes a confirmed entry: whatever is
// confirmed before it is there after it.
func TestFloodTakesNothingConfirmed(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	f := NewFlows(256)
	var live []uint64
	for range 600 {
		x := r.Uint64()
		if f.Insert(x, int(x>>40)&MaxSlot, 100, New) == Made && f.Lookup(x, 100) >= 0 {
			live = append(live, x)
		}
	}
	counts := [3]int{}
	for range 1 << 17 {
		counts[f.Insert(r.Uint64(), 1, 101, New)]++
	}
	for _, x := range live {
		if got := f.Lookup(x, 130); got != int(x>>40)&MaxSlot {
			t.Fatalf("seed %d: a confirmed flow goes to %d, want %d", seed, got, int(x>>40)&MaxSlot)
		}
	}
	if counts[Replaced] == 0 {
		t.Errorf("seed %d: the flood filled nothing: %v", seed, counts)
	}
	// Full of confirmed entries the table refuses, and counts that.
	for i := range f.Sets {
		for j := range Ways {
			f.Insert(keyIn(r, f, i), j, 131, Confirmed)
		}
	}
	if got := f.Insert(r.Uint64(), 1, 131, New); got != Full {
		t.Errorf("seed %d: a table full of confirmed entries: %v, want %v", seed, got, Full)
	}
}

// Forged FINs, RSTs and SYNs of living connections and a flood of new flows,
// which ends some of its own, in any order: what was confirmed keeps its place
// while several of its set are not, and so does every one where five share a
// set. It comes back when it speaks.
func TestForgedEndsAndAFloodTakeNothingConfirmed(t *testing.T) {
	const perSet = Ways - 2
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		f, now := NewFlows(2), uint16(r.Uint32())
		var live, flood []uint64
		for i := range f.Sets {
			for range perSet {
				x := keyIn(r, f, i)
				f.Insert(x, len(live), now, New)
				Touch(f.Find(x, now, true), now, true, Data, 0)
				live = append(live, x)
			}
		}
		touch := func(x uint64, event Event) {
			if e := f.Find(x, now, true); e != nil {
				Touch(e, now, true, event, 0)
			}
		}
		end := now + idle[Fading]
		for range 200 {
			if r.IntN(8) == 0 && now != end {
				now++
			}
			switch r.IntN(4) {
			case 0:
				touch(live[r.IntN(len(live))], pick(r, Close, Close, Open))
			case 1:
				if len(flood) > 0 {
					touch(flood[r.IntN(len(flood))], pick(r, Close, Open))
				}
			default:
				flood = append(flood, r.Uint64())
				f.Insert(flood[len(flood)-1], 0, now, New)
			}
		}
		for i, x := range live {
			if e := f.Find(x, now, true); e == nil || e.Slot() != i || e.State() == New {
				t.Fatalf("connection %d has entry %v", i, e)
			}
			if got := f.Lookup(x, now+bpf.FlowRevive); got != i || f.Find(x, now+bpf.FlowRevive, true).State() != Confirmed {
				t.Fatalf("connection %d speaks: slot %d, %v", i, got, f.Find(x, now+bpf.FlowRevive, true).State())
			}
		}
	})
}

// One that opens in a set full of what closed has a place until its next
// packet, though another opens meanwhile: neither gives way, but what closed.
func TestOpeningsKeepTheirPlaceAmongWhatCloses(t *testing.T) {
	f := NewFlows(1)
	for i := range uint64(Ways) {
		f.Insert(i<<32|i, 1, 10+uint16(i), Fading)
	}
	for i := range uint64(2) {
		f.Insert((50+i)<<32|50+i, 2, 20, New)
	}
	for i := range uint64(2) {
		if f.Find((50+i)<<32|50+i, 20, true) == nil || f.Find(i<<32|i, 20, true) != nil {
			t.Errorf("opening %d has no place among seven that closed, or not that of the oldest of these", i)
		}
	}
}

// A datagram's entry lasts two minutes, and gives way before one that a TCP
// connection's packet made long before; carried elsewhere it is what it was.
func TestDatagramsAge(t *testing.T) {
	f := NewFlows(1)
	for i := range uint64(Ways) {
		f.Insert(i<<32|i, 1, 1000, New)
	}
	udp := f.Find(5<<32|5, 1000, false)
	udp.Age()
	Touch(udp, 1050, false, Open, 0) // another Initial changes nothing
	if f.Find(5<<32|5, 1000+118, false) == nil || f.Find(5<<32|5, 1000+119, false) != nil {
		t.Errorf("not known for two minutes: %x", *udp)
	}
	if got, want := udp.Plain(1050), entry(5<<32|5, 1, 1000, Fading); got != want || got.Plain(1050) != want {
		t.Errorf("plain %x, want %x", got, want)
	}
	if tcp := f.Find(4<<32|4, 7000, true); tcp.Plain(7000) != *tcp {
		t.Errorf("plain %x, is TCP's: %x", tcp.Plain(7000), *tcp)
	}
	if got := f.Insert(99<<32|99, 2, 1100, New); got != Replaced || f.Find(5<<32|5, 1100, false) != nil {
		t.Errorf("%v, and not in the place of the datagram's", got)
	}
}

// What gives way before its time is counted: what one packet made, and what
// fades.
func TestVictimsCount(t *testing.T) {
	for _, s := range []State{New, Fading} {
		f := NewFlows(1)
		for i := range uint64(Ways) {
			f.Insert(i<<32|i, 1, 10, s)
		}
		if got := f.Insert(99<<32|99, 2, 11, New); got != Replaced {
			t.Errorf("an eighth flow among seven live ones that are %v: %v, want %v", s, got, Replaced)
		}
	}
}

// What another balancer tells does not take from this one's packets the
// server that they go to; whatever is less than confirmed here, it does.
func TestTold(t *testing.T) {
	const x = 5<<32 | 5
	for own := New; own <= Datagram; own++ {
		for told := New; told <= Datagram; told++ {
			for _, c := range []struct {
				slot int
				now  uint16
				kept bool
			}{
				{1, 11, own == Confirmed || own == Datagram},
				{2, 11, false},     // of the same server
				{1, 10_000, false}, // expired
			} {
				f := NewFlows(1)
				f.Insert(x, 2, 10, own)
				got, e := f.Told(x, c.slot, c.now, told), f.Find(x, c.now, true)
				want := entry(x, c.slot, c.now, told)
				if c.kept {
					want = entry(x, 2, 10, own)
				}
				if (got == Kept) != c.kept || e == nil || *e != want {
					t.Errorf("%v of slot 2, told %v of slot %d at %d: %v, %x, want %x", own, told, c.slot, c.now, got, e, want)
				}
			}
		}
	}
}

// An RST that somebody forged takes nothing from a connection that is silent
// then, but the right not to give way: where a place is wanted it goes behind
// what one packet made, and only after two minutes, when nobody counts it, before.
func TestFadingConnectionsAreKnown(t *testing.T) {
	const x, idleFor = 99<<32 | 99, 119 // units: two minutes
	f := NewFlows(1)
	f.Insert(x, 3, 10, Confirmed)
	Touch(f.Find(x, 10, true), 10, true, Close, 0)
	for _, c := range []struct {
		at       uint16
		tcp, udp bool
		live     int
	}{{10 + 118, true, true, 1}, {10 + 119, true, false, 0}, {10 + 7266, true, false, 0}, {10 + 7267, false, false, 0}} {
		f := &Flows{append([]FlowSet(nil), f.Sets...)}
		if got := f.Find(x, c.at, true) != nil; got != c.tcp {
			t.Errorf("at %d: TCP's known %v, want %v", c.at, got, c.tcp)
		}
		if got := f.Find(x, c.at, false) != nil; got != c.udp {
			t.Errorf("at %d: UDP's known %v, want %v", c.at, got, c.udp)
		}
		live, _, cleared := f.Sweep(0, 1, c.at)
		if live != c.live || (cleared == 0) != c.tcp {
			t.Errorf("at %d: %d live, %d cleared; want %d, cleared %v", c.at, live, cleared, c.live, !c.tcp)
		}
	}
	for i := range uint64(Ways - 1) {
		f.Insert(i<<32|i, 1, 10+idleFor-1, New)
	}
	if got := f.Insert(50<<32|50, 2, 10+idleFor-1, New); got != Replaced || f.Find(x, 10+idleFor-1, true) == nil || f.Find(0, 10+idleFor-1, true) != nil {
		t.Errorf("a new entry in a full set: %v; it takes the oldest that one packet made", got)
	}
	if got := f.Insert(51<<32|51, 2, 10+idleFor, New); got != Made || f.Find(x, 10+idleFor, true) != nil {
		t.Errorf("a new entry in a full set: %v; it takes the one that fades, which counts nobody", got)
	}
}

// Nothing on a packet's way allocates.
func TestNoAllocations(t *testing.T) {
	f, x := NewFlows(16), uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		x += 0x9e3779b97f4a7c15
		if f.Find(x, 1, true) == nil {
			f.Insert(x, 1, 1, New)
		}
		f.InsertLRU(x+1, 1, 1, New)
		if e := f.Find(x, 1, true); e != nil {
			Touch(e, 2, true, Data, 0)
		}
		f.Lookup(x, 1)
	}); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
}

// filled is a table of so many flows, three a set in the mean, and 2^16
// keys to look up: of the table, or not.
func filled(flows int, known bool) (*Flows, []uint64) {
	r := rand.New(rand.NewPCG(1, 2))
	f := NewFlows((flows + 2) / 3)
	all := make([]uint64, flows)
	for i := range all {
		all[i] = r.Uint64()
		f.Insert(all[i], i&MaxSlot, 1, Confirmed)
	}
	keys := make([]uint64, 1<<16)
	for i := range keys {
		if keys[i] = r.Uint64(); known {
			keys[i] = all[r.IntN(len(all))]
		}
	}
	return f, keys
}

func BenchmarkLookup(b *testing.B) {
	for _, c := range []struct {
		name  string
		flows int
		known bool
	}{{"miss/3k", 3000, false}, {"hit/3k", 3000, true}, {"miss/1.6M", 1.6e6, false}, {"hit/1.6M", 1.6e6, true}} {
		b.Run(c.name, func(b *testing.B) {
			f, keys := filled(c.flows, c.known)
			sum := 0
			for i := 0; b.Loop(); i++ {
				sum += f.Lookup(keys[i&0xffff], 1)
			}
			_ = sum
		})
	}
}
