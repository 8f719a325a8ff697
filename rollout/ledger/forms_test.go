package ledger

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/store"
)

// TestWrittenBefore: what builds wrote that had versions as texts is read, and gone on
// from. The file is what one wrote (three versions, the first whole) and is never made
// anew.
func TestWrittenBefore(t *testing.T) {
	data, err := os.ReadFile("testdata/written.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]byte
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	client := store.NewMemory().Client()
	for key, value := range all {
		if _, err := client.Commit(t.Context(), nil, store.Op{Key: key, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, client, secret)
	head, err := l.Head(t.Context())
	if err != nil || head.Version != 3 {
		t.Fatal(head, err)
	}
	var versions []*controller.Assignment
	for v := uint64(1); v <= 3; v++ {
		for _, have := range append([]*controller.Assignment{nil}, versions...) {
			a, err := l.Read(t.Context(), v, have)
			if err != nil || a.Version != v || v > 1 && a.VIPs[0].Slots[0].Weight != 1+int(v) {
				t.Fatalf("version %d: %v", v, err)
			}
			if have == nil {
				defer func() { versions = append(versions, a) }()
			}
		}
	}
	third, err := l.Read(t.Context(), 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	fourth := third.Clone()
	fourth.Version++
	fourth.VIPs[0].Slots[0].Weight = 99
	if _, err := l.Append(t.Context(), head, third, fourth, Change{Who: "a later build"}); err != nil {
		t.Fatal(err)
	}
	if a, err := l.Read(t.Context(), 4, nil); err != nil || a.Digest() != fourth.Digest() {
		t.Errorf("the fourth: %v", err)
	}
}

// TestLargeWrittenBefore: the same of a large bucket table, whose digest was another.
func TestLargeWrittenBefore(t *testing.T) {
	a := bucketed(t, 100_000)
	text := a.TextDigest()
	r := Record{Version: 1, Digest: hex.EncodeToString(text[:]), Token: "aa"}
	l := open(t, store.NewMemory().Client(), secret)
	data, err := l.seal.close(a.Encode(), nil, r.name())
	if err != nil {
		t.Fatal(err)
	}
	if r.Parts, err = l.write(t.Context(), data, r.part); err != nil {
		t.Fatal(err)
	}
	record, _ := json.Marshal(r)
	if _, err := l.move(t.Context(), Head{}, Head{Deployment: l.seal.deployment, Version: 1}, store.Op{Key: recordsKey + versionKey(1), Value: record}); err != nil {
		t.Fatal(err)
	}
	for _, have := range []*controller.Assignment{nil, a} {
		if got, err := l.Read(t.Context(), 1, have); err != nil || got.Digest() != a.Digest() {
			t.Error(err)
		}
	}
	r.Form, r.Digest = formDelta, hex.EncodeToString(text[:])
	if l.is(a, &r) {
		t.Error("a later form goes by a text's digest, too")
	}
}

// TestBucketsMove: half of a large table moves, and the delta is two bytes a move, a
// bit a bucket and what is new of the slots.
func TestBucketsMove(t *testing.T) {
	const n = 200_000
	a := bucketed(t, n)
	client := store.NewMemory().Client()
	l := open(t, client, secret)
	head, err := l.Append(t.Context(), Head{}, nil, a, Change{Who: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	b := a.Clone()
	b.Version++
	v := &b.VIPs[0]
	var moves []buckets.Move
	for i := uint32(0); i < n; i += 2 {
		to := v.Slots[int(i*7/3)%len(v.Slots)].Number
		if to != v.Buckets.Current[i] {
			moves = append(moves, buckets.Move{Bucket: i, To: to})
		}
	}
	v.Buckets, _ = v.Buckets.Apply(moves, buckets.Options{Now: 1_800_000_000, ChainTime: 240})
	if _, err := l.Append(t.Context(), head, a, b, Change{Who: "somebody"}); err != nil {
		t.Fatal(err)
	}
	parts, _, _ := client.Read(t.Context(), versionsKey+versionKey(2)+"/")
	size := 0
	for _, p := range parts {
		size += len(p.Value)
	}
	if most := 2*len(moves) + n/8 + 4<<10; size > most {
		t.Errorf("%d moves of %d buckets take %d bytes, more than %d", len(moves), n, size, most)
	}
	for _, have := range []*controller.Assignment{nil, a, b} {
		if got, err := l.Read(t.Context(), 2, have); err != nil || got.Digest() != b.Digest() {
			t.Error(err)
		}
	}
}

// bucketed is an assignment of one VIP with a table of n buckets.
func bucketed(t *testing.T, n int) *controller.Assignment {
	t.Helper()
	data, err := os.ReadFile("../../controller/testdata/encoded.json")
	if err != nil {
		t.Fatal(err)
	}
	a, err := controller.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	a.Version = 1
	a.VIPs = slices.DeleteFunc(a.VIPs, func(v controller.VIP) bool { return v.Scheme != "beamer" })
	v := &a.VIPs[0]
	for i := range v.Slots {
		v.Slots[i].Version = 0
	}
	v.Buckets = buckets.New(n, v.BucketServers())
	return a
}
