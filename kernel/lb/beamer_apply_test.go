package lb

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/tables/effective"
)

// The corner of the bucket table's owners as one balancer sees it:
//
//	  0 s  server 0 has the bucket
//	100 s  0 is down: a deputy has it, 0 in the chain
//	130 s  the daemon is killed and starts anew, 0 still down
//	150 s  0 is up again: the deputy in the chain
//	160 s  the controller moves the bucket to another server: both in the chain
//	160 s  the daemon starts anew with maps of another size
//	390 s  the deputy's time is over, 0's is not
//	400 s  settled
func TestBeamerCorner(t *testing.T) {
	t.Parallel()
	const n, b = 64, 3
	w := newWired(t)
	l := w.open(w.options())
	servers := []int{11, 12, 13, 14}
	first := buckets.New(n, weights(len(servers)))
	a := beamerAssignment(first, servers...)
	port := portOf(t, a.HashKey, b, n)
	down := false
	isDown := func(vip uint32, slot uint16) bool { return vip == 1 && slot == 0 && down }
	apply := func(s int, a *controller.Assignment) (due time.Time) {
		t.Helper()
		at(l, s)
		due, err := l.Apply(a, isDown)
		if err != nil {
			t.Fatal(err)
		}
		return due
	}
	expect := func(when string, server int, moved int, generation uint32, previous ...uint16) {
		t.Helper()
		want := muxed{serverAddr(server), chain(previous...), 0, generation}
		if len(previous) > 0 {
			want.time = tables.WireTime(beamerStart + uint32(moved))
		}
		if got := w.mux(l, port); got != want {
			t.Fatalf("%s: %v, want %v", when, got, want)
		}
	}
	restart := func(s int, change func(*Options)) {
		t.Helper()
		l.Close()
		o := w.options()
		change(&o)
		l = w.open(o)
		at(l, s)
	}

	if due := apply(0, a); !due.IsZero() {
		t.Errorf("a settled table is due at %v", due)
	}
	expect("at first", 11, 0, 1)

	down = true
	due := apply(100, a)
	deputy := w.mux(l, port).to
	slot := uint16(slices.Index(servers, int(deputy.As4()[3])))
	expect("0 is down", servers[slot], 100, 1, 0)
	if want := begun(100 + beamerChainTime); due.Before(want) || due.After(want.Add(time.Second)) {
		t.Errorf("due at %v, want %v", due, want)
	}
	status := l.Status().Buckets
	if len(status) != 1 || status[0].VIP != 1 || status[0].Buckets != n || status[0].Generation != 1 || status[0].Chains != n/4 ||
		!slices.Equal(status[0].Previous, []uint16{0}) || !status[0].NextEnd.Equal(due) {
		t.Errorf("status %+v", status)
	}

	restart(130, func(*Options) {})
	expect("killed, before any assignment", servers[slot], 100, 1, 0)
	if s := l.Status().Buckets; len(s) != 1 || s[0].Chains != n/4 || s[0].Generation != 1 {
		t.Errorf("status of what was adopted: %+v", s)
	}
	apply(130, a)
	expect("0 is still down", servers[slot], 100, 1, 0)

	down = false
	apply(150, a)
	expect("0 is up again", 11, 150, 1, slot)

	to := uint16(3)
	if slot == to {
		to = 2
	}
	second, forgotten := first.Apply([]buckets.Move{{Bucket: b, To: to}}, buckets.Options{Now: beamerStart + 160, ChainTime: beamerChainTime})
	if forgotten != 0 {
		t.Fatal("a previous server was forgotten")
	}
	a = beamerAssignment(second, servers...)
	apply(160, a)
	expect("moved", servers[to], 160, 2, 0, slot)

	restart(160, func(o *Options) { o.Limits.TableEntries = 1 << 18 })
	if !l.Status().Pending {
		t.Fatal("no new set is pending")
	}
	expect("before the swap", servers[to], 160, 2, 0, slot)
	due = apply(161, a)
	if l.Status().Pending {
		t.Fatal("the swap did not take place")
	}
	expect("after the swap", servers[to], 160, 2, 0, slot)

	// Time alone ends it, at the times that Apply tells.
	for step := 0; !due.IsZero(); step++ {
		if step > 5 {
			t.Fatalf("still due at %v", due)
		}
		due = apply(int(due.Unix()-int64(beamerStart)), a)
	}
	expect("over", servers[to], 0, 2)
	if s := l.Status().Buckets[0]; s.Chains != 0 || len(s.Previous) != 0 || !s.NextEnd.IsZero() || s.Forgotten != 0 {
		t.Errorf("status at the end: %+v", s)
	}
}

// Reports of agents: who says that it owns nothing of a bucket leaves the
// chain early, who says that it does stays beyond the chain's time.
func TestBeamerReports(t *testing.T) {
	t.Parallel()
	const n, gone, kept = 16, 1, 2
	w := newWired(t)
	l := w.open(w.options())
	first := buckets.New(n, weights(2))
	table, _ := first.Apply([]buckets.Move{{Bucket: gone, To: 1}, {Bucket: kept, To: 1}}, buckets.Options{Now: beamerStart, ChainTime: beamerChainTime})
	a := beamerAssignment(table, 11, 12)
	apply := func(s int) {
		t.Helper()
		at(l, s)
		if _, err := l.Apply(a, nil); err != nil {
			t.Fatal(err)
		}
	}
	chainOf := func(b int) [buckets.Chain]uint16 { return w.mux(l, portOf(t, a.HashKey, b, n)).previous }
	report := func(s int, owned ...int) {
		bits := make([]byte, n/8)
		for _, b := range owned {
			bits[b/8] |= 1 << (b % 8)
		}
		l.SetOwned(1, 0, bits, begun(s))
	}
	apply(1)
	if chainOf(gone) != chain(0) || chainOf(kept) != chain(0) {
		t.Fatalf("chains %v and %v", chainOf(gone), chainOf(kept))
	}
	report(2) // too early to be believed
	apply(3)
	if chainOf(gone) != chain(0) {
		t.Error("a report from before everybody knew of the move ended a chain")
	}
	report(20, kept)
	report(19) // came late
	apply(21)
	if chainOf(gone) != chain() || chainOf(kept) != chain(0) {
		t.Errorf("after a report that bucket %d alone is owned: chains %v and %v", kept, chainOf(gone), chainOf(kept))
	}
	for s := 100; s <= 1000; s += 100 {
		report(s, kept)
		apply(s + 1)
		m := w.mux(l, portOf(t, a.HashKey, kept, n))
		if m.previous != chain(0) {
			t.Fatalf("after %d s, at each of which the previous server owned a connection: %v", s, m)
		}
		if over := int32(tables.WireTime(beamerStart+uint32(s)) - m.time - beamerChainTime*1000); over >= 0 {
			t.Fatalf("after %d s its packets carry a time by which no server passes them on: %v", s, m)
		}
	}
	// A daemon that starts anew reads how long it lasts from the rows in force,
	// while nobody has reported anything to it.
	before := w.mux(l, portOf(t, a.HashKey, kept, n))
	l.Close()
	l = w.open(w.options())
	apply(1010)
	if got := w.mux(l, portOf(t, a.HashKey, kept, n)); got != before {
		t.Errorf("after a restart %v, before %v", got, before)
	}
	if s := l.Status().Buckets[0]; s.Chains != 1 || s.Previous[0] != 0 || s.PreviousOf[0] != 1 || s.Loads[1] != n/2+2 {
		t.Errorf("status %+v", s)
	}
	report(1050)
	apply(1051)
	if chainOf(kept) != chain() {
		t.Errorf("nothing is owned any more: %v", chainOf(kept))
	}
}

// A table of an older generation is refused, and packets stay with the newer;
// also after a restart, and where generations wrap.
func TestBeamerGenerationBackwards(t *testing.T) {
	t.Parallel()
	const n, b = 16, 9
	w := newWired(t)
	l := w.open(w.options())
	table := buckets.New(n, weights(2))
	old := beamerAssignment(table, 11, 12)
	table.Generation = 1<<32 - 1
	newer, _ := table.Apply([]buckets.Move{{Bucket: b, To: 0}}, buckets.Options{Now: beamerStart, ChainTime: beamerChainTime})
	if newer.Generation != 0 {
		t.Fatalf("generation %d follows the highest", newer.Generation)
	}
	a := beamerAssignment(newer, 11, 12)
	port := portOf(t, a.HashKey, b, n)
	at(l, 1)
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	want := w.mux(l, port)
	if want.to != serverAddr(11) || want.previous != chain(1) || want.generation != 0 {
		t.Fatalf("the new table: %v", want)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			l.Close()
			l = w.open(w.options())
			at(l, 1)
		}
		_, err := l.Apply(old, nil)
		if err == nil || !strings.Contains(err.Error(), "generation 4294967295 is older than 0") {
			t.Fatalf("restart %v: error %v", restart, err)
		}
		if got := w.mux(l, port); got != want {
			t.Errorf("restart %v: after the refusal %v, before %v", restart, got, want)
		}
		if s := l.Status().Buckets; len(s) != 1 || s[0].Generation != 0 || s[0].Chains != 1 {
			t.Errorf("restart %v: status %+v", restart, s)
		}
		if _, err := l.Apply(a, nil); err != nil {
			t.Errorf("restart %v: the one in force again: %v", restart, err)
		}
		if got := w.mux(l, port); got != want {
			t.Errorf("restart %v: applied again %v, before %v", restart, got, want)
		}
	}
}

// An Apply that fails after the buckets were looked at leaves them as packets
// see them: what it would have brought is no part of anybody's chain.
func TestBeamerFailedApply(t *testing.T) {
	t.Parallel()
	const n, b = 16, 1
	w := newWired(t)
	l := w.open(w.options())
	a := beamerAssignment(buckets.New(n, weights(2)), 11, 12)
	at(l, 0)
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	port := portOf(t, a.HashKey, b, n)
	before := w.mux(l, port)

	bad := *a
	other := a.VIPs[0]
	other.ID, other.Name, other.Port = 2, "other", 443
	other.Buckets = buckets.New(1<<17, weights(2)) // more than the maps have room for
	bad.VIPs = append(slices.Clone(a.VIPs), other)
	at(l, 10)
	_, err := l.Apply(&bad, func(vip uint32, slot uint16) bool { return slot == 0 })
	if err == nil || !strings.Contains(err.Error(), "limits.table_entries 131072") || !strings.Contains(err.Error(), "131088 buckets (nine entries for four") {
		t.Fatalf("error %v", err)
	}
	if got := w.mux(l, port); got != before {
		t.Errorf("after the refusal %v, before %v", got, before)
	}
	if s := l.Status().Buckets; len(s) != 1 || s[0].VIP != 1 || s[0].Chains != 0 {
		t.Errorf("status %+v", s)
	}
	at(l, 20)
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	if got := w.mux(l, port); got != before {
		t.Errorf("applied again %v, before %v: the failed change left something behind", got, before)
	}
}

// A process that is killed while it fills the idle half, wherever it is,
// leaves the rows in force to the next one.
func TestBeamerKilledInFill(t *testing.T) {
	t.Parallel()
	const n = 4096
	random := soak.Rand(t)
	w := newWired(t)
	l := w.open(w.options())
	first := buckets.New(n, weights(4))
	var moves []buckets.Move
	for b := range uint32(n) {
		if random.IntN(3) == 0 {
			moves = append(moves, buckets.Move{Bucket: b, To: (first.Current[b] + 1) % 4})
		}
	}
	second, _ := first.Apply(moves, buckets.Options{Now: beamerStart + 10, ChainTime: beamerChainTime})
	servers := []int{11, 12, 13, 14}
	for s, table := range []*buckets.Table{first, second} {
		at(l, 20*s)
		if _, err := l.Apply(beamerAssignment(table, servers...), func(_ uint32, slot uint16) bool { return slot == 2 }); err != nil {
			t.Fatal(err)
		}
	}
	e := l.chains.Of(1)
	inForce := effective.Restore(e.Generation, slices.Clone(e.Current), slices.Clone(e.Since), slices.Clone(e.Previous))
	third, _ := second.Apply([]buckets.Move{{Bucket: 7, To: 3}}, buckets.Options{Now: beamerStart + 30, ChainTime: beamerChainTime})
	for range 3 {
		// The next table is planned and written in part; the rest of the idle
		// half is anything.
		control, err := l.set.readControl()
		if err != nil {
			t.Fatal(err)
		}
		idle := control.Active&1 ^ 1
		at(l, 31)
		p, err := tables.Balancer(beamerAssignment(third, servers...), l.view(nil, idle))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.fill(p, idle); err != nil {
			t.Fatal(err)
		}
		memory, err := l.set.mapEntries()
		if err != nil {
			t.Fatal(err)
		}
		capacity := int(l.set.capacity().TableEntries)
		for i := random.IntN(capacity); i < capacity; i++ {
			memory[int(idle)*capacity+i] = random.Uint64()
		}
		l.Close()
		l = w.open(w.options())
		at(l, 31)
		got := l.chains.Of(1)
		if got == nil || !reflect.DeepEqual(got.Current, inForce.Current) || !reflect.DeepEqual(got.Previous, inForce.Previous) || got.Generation != 2 {
			t.Fatal("what was adopted is not what was in force")
		}
		for b, p := range inForce.Previous {
			if p[0] != buckets.None && got.Since[b] != inForce.Since[b] {
				t.Fatalf("bucket %d: moved at %d, adopted as %d", b, inForce.Since[b], got.Since[b])
			}
		}
	}
	if _, err := l.Apply(beamerAssignment(third, servers...), nil); err != nil {
		t.Fatal(err)
	}
	if e := l.chains.Of(1); e.Generation != 3 || e.Current[7] != 3 {
		t.Errorf("after the next change: generation %d, bucket 7 at %d", e.Generation, e.Current[7])
	}
}
