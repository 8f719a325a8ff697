package ledger

import (
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/soak"
)

// TestAgedTableMoves: as many servers join a table whose buckets are anywhere as it has,
// and what is handed out is little more than which buckets move: whom they go to stands in
// turn.
func TestAgedTableMoves(t *testing.T) {
	const n, servers = 200_000, 500
	var before, after []buckets.Server
	for i := range uint16(2 * servers) {
		if i < servers {
			before = append(before, buckets.Server{Number: i, Weight: 1})
		}
		after = append(after, buckets.Server{Number: i, Weight: 1})
	}
	old := buckets.New(n, before)
	r := soak.Rand(t)
	r.Shuffle(n, func(i, j int) { old.Current[i], old.Current[j] = old.Current[j], old.Current[i] })
	for b := range old.Since {
		old.Since[b] = 1_700_000_000 + r.Uint32N(86_400)
	}
	o := buckets.Options{Now: 1_800_000_000, ChainTime: 240}
	moves := old.Assign(after, o)
	next, _ := old.Apply(moves, o)
	a := bucketed(t, n)
	b := a.Clone()
	a.VIPs[0].Buckets, b.VIPs[0].Buckets = old, next
	delta, err := controller.Delta(a, b)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, nil, secret)
	data, err := l.seal.close(delta, dictionary(a), "aged")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d moves: %d bytes, of them which %d", len(moves), len(data), n/8)
	if len(moves) != n/2 || len(data) > n/8+n/20 {
		t.Errorf("%d moves of %d buckets are %d bytes", len(moves), n, len(data))
	}
}
