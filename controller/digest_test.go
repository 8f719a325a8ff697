package controller

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/soak"
)

// TestDigestsOfDeltas: whatever deltas lead to a version with a large table, its digest
// is that of all of it, made anew: what is remembered of a table is no other's.
func TestDigestsOfDeltas(t *testing.T) {
	cfg, err := config.Parse("fairlead.yaml", []byte(`secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb1, interfaces: [eth0], source: 10.9.0.1}]
servers: [{name: s1, address: 10.0.0.1}, {name: s2, address: 10.0.0.2}, {name: s3, address: 10.0.0.3}]
vips:
- {address: 192.0.2.1, port: 80, scheme: beamer, buckets: 65537, servers: [s1, s2, s3]}
- {address: 192.0.2.2, port: 80, scheme: beamer, buckets: 70000, servers: [s1, s2]}
- {address: 192.0.2.3, port: 80, scheme: beamer, buckets: 300, servers: [s2, s3]}
`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := First(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := soak.Rand(t)
	kept, moved := 0, 0
	for range 60 {
		b := a.Clone()
		b.Version++
		for i := range b.VIPs {
			v := &b.VIPs[i]
			switch r.IntN(3) {
			case 0:
				v.Slots[r.IntN(len(v.Slots))].Weight = 1 + r.IntN(1000)
				kept++
			case 1:
				bucket := r.IntN(v.Buckets.Len())
				to := v.Slots[r.IntN(len(v.Slots))].Number
				v.Buckets, _ = v.Buckets.Apply([]buckets.Move{{Bucket: uint32(bucket), To: to}}, buckets.Options{Now: 1_800_000_000 + r.Uint32N(1000), ChainTime: 240})
				moved++
			}
		}
		delta, err := Delta(a, b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Patch(a, delta)
		if err != nil {
			t.Fatal(err)
		}
		anew := b.Clone()
		for i := range anew.VIPs {
			anew.VIPs[i].Buckets = anew.VIPs[i].Buckets.Clone()
		}
		if want := anew.Digest(); got.Digest() != want || b.Digest() != want {
			t.Fatalf("version %d: the digest of what a delta gives is not that of the whole", b.Version)
		}
		a = got
	}
	if kept == 0 || moved == 0 {
		t.Errorf("%d tables stayed, %d changed: too tame", kept, moved)
	}
}

// TestDigestsForgotten: nothing is remembered of a table that nobody has any more.
func TestDigestsForgotten(t *testing.T) {
	of := func(n int) bool {
		found := false
		digested.Range(func(key, _ any) bool {
			u := key.(digestedTable).table.Value()
			found = u != nil && u.Len() == n
			return !found
		})
		return found
	}
	const n = manyBuckets + 77
	u := buckets.New(n, nil)
	if digestOf(u); !of(n) {
		t.Fatal("it is not remembered")
	}
	runtime.KeepAlive(u)
	count := func() (keys int) {
		digested.Range(func(any, any) bool { keys++; return true })
		return keys
	}
	before := count()
	for end := time.Now().Add(time.Minute); count() >= before; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d are remembered still", count())
		}
	}
}

// TestDigestsAtOnce: many ask for one table's digest at the same time.
func TestDigestsAtOnce(t *testing.T) {
	u := buckets.New(2*manyBuckets, nil)
	want := u.Digest()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if digestOf(u) != want {
				t.Error("another digest")
			}
		})
	}
	all.Wait()
}
