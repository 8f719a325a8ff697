package policy

import (
	"math"
	"testing"
)

// balance runs n new connections, none of which ends, and returns the open
// ones by slot.
func balance(policy string, members []Member, n int) map[uint16]int32 {
	table := Table(policy, members)
	s := &State{Random: 1}
	open := map[uint16]int32{}
	for range n {
		e, ok := Choose(policy, table, s, func(slot uint16) int32 { return open[slot] })
		if !ok {
			panic("empty table")
		}
		open[EntrySlot(e)]++
	}
	return open
}

// Cheetah, Fig. 2: every policy but hashing keeps connections even; p2c and
// least-conn even out by weight, too.
func TestPoliciesBalance(t *testing.T) {
	m := pool(1, 2, 3, 4, 1, 2, 3, 4)
	const n = 20000
	for policy, tolerance := range map[string]float64{WRR: 0.001, P2C: 0.02, LeastConn: 0.005} {
		for _, x := range m {
			want := float64(n) * float64(x.Weight) / 20
			if got := float64(balance(policy, m, n)[x.Slot]); math.Abs(got-want) > tolerance*want+1 {
				t.Errorf("%s: weight %d has %.0f connections, want %.0f", policy, x.Weight, got, want)
			}
		}
	}
	for slot, got := range balance(RR, m, n) {
		if got != n/8 {
			t.Errorf("rr: slot %d has %d", slot, got)
		}
	}
}

// A table that shrinks under the counters is walked from its start.
func TestSmallerTable(t *testing.T) {
	s := &State{Next: 7, Candidate: 7, Random: 1}
	none := func(uint16) int32 { return 0 }
	table := Table(RR, pool(1, 1))
	if e, _ := Choose(RR, table, s, none); e != table[0] || s.Next != 1 {
		t.Errorf("entry %#x, next %d", e, s.Next)
	}
	if _, ok := Choose(LeastConn, Table(LeastConn, pool(1)), s, none); !ok || s.Candidate != 0 {
		t.Errorf("candidate %d", s.Candidate)
	}
	if _, ok := Choose(P2C, nil, s, none); ok {
		t.Error("an empty table gives a server")
	}
}
