package controller

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/soak"
)

// throughDelta says why next does not come out of its delta on base.
func throughDelta(base, next *Assignment) error {
	delta, err := Delta(base, next)
	if err != nil {
		return err
	}
	a, err := Patch(base, delta)
	if err != nil {
		return fmt.Errorf("version %d: %w", next.Version, err)
	}
	if is, want := a.Encode(), next.Encode(); !bytes.Equal(is, want) {
		return fmt.Errorf("the delta gives %s, not %s", is, want)
	}
	if a.Digest() != next.Digest() {
		return fmt.Errorf("version %d has another digest after its delta", next.Version)
	}
	return nil
}

// older is the assignment that an older build encoded.
func older(t testing.TB) *Assignment {
	t.Helper()
	data, err := os.ReadFile("testdata/encoded.json")
	if err != nil {
		t.Fatal(err)
	}
	a, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestDelta: any two assignments lead to each other, whatever comes and goes.
func TestDelta(t *testing.T) {
	from := older(t)
	r := soak.Rand(t)
	for range 300 {
		to := older(t)
		to.VIPs = slices.DeleteFunc(to.VIPs, func(VIP) bool { return r.IntN(4) == 0 })
		for i := range to.VIPs {
			v := &to.VIPs[i]
			if n := len(v.Slots) - 1; !v.Bucketed() && n > 0 { // the last one bounds the horizon
				v.Slots = slices.Delete(v.Slots, 0, r.IntN(n+1))
			}
			for j := range v.Slots {
				s := &v.Slots[j]
				switch r.IntN(6) {
				case 0:
					s.Weight = 1 + r.IntN(1000)
				case 1:
					s.RestUntil = lastTime.Add(-time.Duration(r.IntN(1e9)))
				case 2:
					s.API = "unix:/a"
				}
			}
			if v.Bucketed() && r.IntN(2) == 0 {
				v.Buckets, _ = v.Buckets.Apply([]buckets.Move{{Bucket: 0, To: v.Slots[len(v.Slots)-1].Number}}, buckets.Options{Now: 1_800_000_000})
			}
		}
		for _, way := range [][2]*Assignment{{from, to}, {to, from}, {nil, to}} {
			if err := throughDelta(way[0], way[1]); err != nil {
				t.Fatal(err)
			}
		}
		from = to
	}
}

// TestDeltaOfEveryField: a field that a slot gets has its place in a delta.
func TestDeltaOfEveryField(t *testing.T) {
	if n := reflect.TypeFor[Slot]().NumField(); 1<<(n-1) != slotFields { // all but its number
		t.Errorf("a slot has %d fields, and a delta knows %b", n, slotFields-1)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	full := Slot{7, "s", serverAddress, 3, Draining, 9, "unix:/a", at, at.Add(1), 4, at.Add(2), at.Add(3)}
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("field %d of the test's is empty", i)
		}
		one := Slot{Number: 7}
		reflect.ValueOf(&one).Elem().Field(i).Set(v.Field(i))
		for _, was := range []Slot{{Number: 7}, full} {
			r := &deltaReader{left: appendSlots(nil, []Slot{was}, []Slot{one})}
			if is := r.slots([]Slot{was}); r.err != nil || len(r.left) > 0 || !slices.Equal(is, []Slot{one}) {
				t.Errorf("field %d: %v, %v, want %v", i, is, r.err, one)
			}
		}
	}
}

var serverAddress = older(&testing.T{}).VIPs[0].Slots[0].Address

// TestDeltaIsSmall: what stays costs nothing.
func TestDeltaIsSmall(t *testing.T) {
	before := older(t)
	v := &before.VIPs[slices.IndexFunc(before.VIPs, func(v VIP) bool { return v.Bucketed() })]
	v.Buckets = buckets.New(v.Buckets.Len(), v.BucketServers())
	after := before.Clone()
	after.Version++
	after.VIPs[0].Slots[0].Weight = 77
	delta, err := Delta(before, after)
	if err != nil {
		t.Fatal(err)
	}
	if more := len(delta) - len(after.Frame()); more > 100 {
		t.Errorf("one weight takes %d bytes beside the frame", more)
	}
}

// TestLargeDigest: of an assignment with a large table every part counts.
func TestLargeDigest(t *testing.T) {
	a := older(t)
	v := &a.VIPs[slices.IndexFunc(a.VIPs, func(v VIP) bool { return v.Scheme == "beamer" })]
	v.Buckets = buckets.New(manyBuckets, v.BucketServers())
	if a.Digest() != a.TextDigest() {
		t.Error("a table of 65,536 buckets is not digested as before")
	}
	v.Buckets = buckets.New(manyBuckets+1, v.BucketServers())
	sum := a.Digest()
	if sum == a.TextDigest() {
		t.Error("a large table is digested with its text")
	}
	if err := throughDelta(nil, a); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(b *Assignment){
		"version": func(b *Assignment) { b.Version++ },
		"key":     func(b *Assignment) { b.Keys[0].Secret[0]++ },
		"vip":     func(b *Assignment) { b.VIPs[1].Port++ },
		"slot":    func(b *Assignment) { b.VIPs[0].Slots[0].Weight++ },
		"order": func(b *Assignment) {
			b.VIPs[0].Slots, b.VIPs[1].Slots = b.VIPs[1].Slots, b.VIPs[0].Slots
		},
		"bucket": func(b *Assignment) {
			w, _ := b.VIP(v.Name)
			w.Buckets = w.Buckets.Clone()
			w.Buckets.Current[manyBuckets]++
		},
	} {
		b := a.Clone()
		change(b)
		if b.Digest() == sum {
			t.Errorf("another %s, and the same digest", what)
		}
	}
}

// FuzzPatch: a delta from a store that holds anything is refused in words, or gives
// an assignment.
func FuzzPatch(f *testing.F) {
	base := older(f)
	next := base.Clone()
	next.Version++
	next.VIPs[0].Slots[0].State = Draining
	for _, from := range []*Assignment{nil, base} {
		delta, err := Delta(from, next)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(delta)
		for n := range 40 {
			f.Add(delta[:len(delta)*n/40])
		}
	}
	f.Fuzz(func(t *testing.T, delta []byte) {
		for _, from := range []*Assignment{nil, base} {
			if _, err := Patch(from, delta); err != nil && !strings.HasPrefix(err.Error(), "assignment") {
				t.Errorf("error %q", err)
			}
		}
	})
}
