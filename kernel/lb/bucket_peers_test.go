package lb

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/tables/effective"
)

// A balancer that joins learns from a peer whom a bucket was given to while
// its server was down: the table says nothing of it.
func TestBeamerLearnsChains(t *testing.T) {
	t.Parallel()
	const n, b = 64, 3
	w := newWired(t)
	l := w.open(w.options())
	servers := []int{11, 12, 13, 14}
	a := beamerAssignment(buckets.New(n, weights(len(servers))), servers...)
	port := portOf(t, a.HashKey, b, n)
	apply := func(s int, down bool) {
		t.Helper()
		at(l, s)
		if _, err := l.Apply(a, func(_ uint32, slot uint16) bool { return down && slot == 0 }); err != nil {
			t.Fatal(err)
		}
	}
	apply(0, false)
	if rows, generation, next := l.ChainRows(1, 0, 10); len(rows) != 0 || generation != 1 || next != 0 {
		t.Errorf("of a settled table: %v, %d, %d", rows, generation, next)
	}
	apply(10, true)
	whileDown := allRows(t, l)
	apply(20, false)
	rows := allRows(t, l)
	deputy := rows[b].Previous[0]
	if len(rows) != n/4 || rows[b].Bucket != b || rows[b].Current != 0 || rows[b].Since != beamerStart+20 {
		t.Fatalf("%d rows, of bucket %d %+v", len(rows), b, rows[b])
	}
	if len(whileDown) != n/4 || whileDown[b].Current != deputy {
		t.Fatalf("while 0 was down: %+v", whileDown[b])
	}

	l.Close()
	if err := Unload(w.pinDir); err != nil {
		t.Fatal(err)
	}
	l = w.open(w.options())
	if l.LearnChains(1, rows) {
		t.Error("news for a balancer without a table")
	}
	apply(25, false)
	if m := w.mux(l, port); m.previous != chain() {
		t.Fatalf("a new balancer: %v", m)
	}
	if !l.LearnChains(1, rows) {
		t.Error("no news for one that knows of no chain")
	}
	apply(26, false)
	if m := w.mux(l, port); m.previous != chain(deputy) || m.to != serverAddr(11) {
		t.Errorf("after it learnt of deputy %d: %v", deputy, m)
	}
	if l.LearnChains(1, rows) {
		t.Error("the same is news once more")
	}
	if slots := l.Status().Buckets[0].Previous; !slices.Contains(slots, deputy) {
		t.Errorf("deputy %d is not to be asked: %v", deputy, slots)
	}
	// While a peer, by what it sees of health, gives the deputy new
	// connections, no report of the deputy counts.
	if l.LearnChains(1, whileDown) {
		t.Error("who is asked already is news")
	}
	l.SetOwned(1, deputy, make([]byte, n/8), begun(40))
	apply(41, false)
	if m := w.mux(l, port); m.previous != chain(deputy) {
		t.Errorf("with a peer that has the deputy: %v", m)
	}

	// The deputy owns nothing: it is not asked any more, whatever the peer
	// says, which has not heard that yet.
	l.SetOwned(1, deputy, make([]byte, n/8), begun(60))
	apply(61, false)
	if m := w.mux(l, port); m.previous != chain() {
		t.Errorf("after the deputy's report: %v", m)
	}
	if l.LearnChains(1, rows[b:b+1]) {
		t.Error("a row is news whose server says that it owns nothing")
	}
	// What is over stays over.
	at(l, 20+beamerChainTime)
	if l.LearnChains(1, rows) {
		t.Error("rows are news whose time is over")
	}
	apply(20+beamerChainTime, false)
	if s := l.Status().Buckets[0]; s.Chains != 0 {
		t.Errorf("%d chains came back", s.Chains)
	}
}

// allRows reads ChainRows page by page.
func allRows(t *testing.T, l *LB) (all []effective.BucketRow) {
	t.Helper()
	for first := 0; ; {
		rows, _, next := l.ChainRows(1, first, 3)
		all = append(all, rows...)
		if next == 0 {
			return all
		}
		if next <= first || len(rows) != 3 {
			t.Fatalf("a page from %d on: %d rows, the next from %d on", first, len(rows), next)
		}
		first = next
	}
}

// A balancer that starts from nothing takes owners that report themselves into
// its chains, for a while.
func TestBeamerNewTakesOwners(t *testing.T) {
	t.Parallel()
	const n, b = 16, 2
	w := newWired(t)
	l := w.open(w.options())
	a := beamerAssignment(buckets.New(n, weights(4)), 11, 12, 13, 14)
	report := make([]byte, n/8)
	report[b/8] |= 1 << (b % 8)
	port := portOf(t, a.HashKey, b, n)
	for _, c := range []struct {
		at   int
		slot uint16
		want [buckets.Chain]uint16
	}{
		{0, 3, chain(3)},
		{tables.NewFor + 1, 2, chain(3)}, // no more: slot 2 never had the bucket
	} {
		at(l, c.at)
		l.SetOwned(1, c.slot, report, begun(c.at))
		if _, err := l.Apply(a, nil); err != nil {
			t.Fatal(err)
		}
		if m := w.mux(l, port); m.previous != c.want || m.to != serverAddr(11) {
			t.Errorf("at %d s, slot %d owns a connection: %v", c.at, c.slot, m)
		}
	}
	// Until nobody owns anything.
	l.SetOwned(1, 3, make([]byte, n/8), begun(tables.NewFor).Add(20*time.Second))
	at(l, tables.NewFor+21)
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	if m := w.mux(l, port); m.previous != chain() {
		t.Errorf("nobody owns anything: %v", m)
	}
}
