package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/store"
)

func watch(t *testing.T, open func() Client) {
	a, b := open(), open()
	_, began, err := a.Read(during(t), "")
	if err != nil {
		t.Fatal(err)
	}
	live := watching(during(t), b, "x/", began)
	one := commit(t, a, nil, put("x/1", "a"), put("x/2", "a"), put("y/1", "a"))
	commit(t, a, nil, put("y/1", "b"))
	two := commit(t, a, nil, put("x/1", "b"), store.Op{Key: "x/2", Delete: true})
	three := commit(t, a, nil, store.Op{Key: "x/", Delete: true, Prefix: true}, store.Op{Key: "y/", Delete: true, Prefix: true})
	four := commit(t, a, nil, put("x/1", ""))
	for _, events := range []<-chan batch{
		live,
		watching(during(t), b, "x/", began),
		watching(during(t), b, "x/", one-1),
	} {
		gives(t, events, "%d: x/1=a x/2=a", one)
		gives(t, events, "%d: -x/2 x/1=b", two)
		gives(t, events, "%d: -x/1", three)
		gives(t, events, "%d: x/1=", four)
	}
	gives(t, watching(during(t), a, "", two), "%d: -x/1 -y/1", three)
	// From now on only.
	now := watching(during(t), a, "", four)
	gives(t, now, "%d: z=", commit(t, b, nil, put("z", "")))
	// Many, to one who reads slowly, in order.
	var last int64
	for i := range 100 {
		last = commit(t, b, nil, put("z", fmt.Sprint(i)), put(fmt.Sprintf("x/%d", i%3), fmt.Sprint(i)))
	}
	var before int64
	for i := 0; before != last; i++ {
		got := await(t, now, "all")
		var rev int64
		var x, z string
		if _, err := fmt.Sscanf(got.events, "%d: %s %s", &rev, &x, &z); err != nil || rev <= before ||
			x != fmt.Sprintf("x/%d=%d", i%3, i) || z != fmt.Sprintf("z=%d", i) {
			t.Fatalf("after %d, as the %dth: %v", before, i, got)
		}
		before = rev
	}
}

func watchEnds(t *testing.T, open func() Client) {
	s := open()
	rev := commit(t, s, nil, put("a", "1"))
	ctx, cancel := context.WithCancel(during(t))
	events := watching(ctx, s, "a", rev-1)
	gives(t, events, "%d: a=1", rev)
	cancel()
	if b, ok := <-events; ok {
		t.Fatalf("a watch whose context ended gives %v", b)
	}
	if b, ok := <-watching(ctx, s, "a", rev-1); ok {
		t.Fatalf("a watch whose context had ended gives %v", b)
	}
	// Who has enough leaves.
	for range s.Watch(during(t), "a", rev-1) {
		break
	}
}

// watchGoesOn where it was, when the store is back.
func watchGoesOn(t *testing.T, open func() Client) {
	s, other := open(), open()
	rev := commit(t, s, nil, put("a", "1"))
	events := watching(during(t), s, "a", rev-1)
	gives(t, events, "%d: a=1", rev)
	s.Cut(true)
	two, three := commit(t, other, nil, put("a", "2")), commit(t, other, nil, put("a", "3"))
	s.Cut(false)
	gives(t, events, "%d: a=2", two)
	gives(t, events, "%d: a=3", three)
}

func compaction(t *testing.T, fresh Fresh) {
	open, compact := fresh(t)
	s := open()
	one := commit(t, s, nil, put("a", "1"), put("b", "1"))
	two := commit(t, s, nil, put("a", "2"))
	three := commit(t, s, nil, store.Op{Key: "b", Delete: true})
	four := commit(t, s, nil, put("a", "4"))
	events := watching(during(t), s, "", two)
	gives(t, events, "%d: -b", three)
	if err := compact(three); err != nil {
		t.Fatal(err)
	}
	// Who had more is not disturbed.
	gives(t, events, "%d: a=4", four)
	for _, rev := range []int64{0, one, two - 1} {
		if got := await(t, watching(during(t), s, "", rev), "an error"); !errors.Is(got.err, store.ErrCompacted) {
			t.Fatalf("since %d, of which nothing is known before %d: %v", rev, three, got)
		}
	}
	events = watching(during(t), s, "", two)
	gives(t, events, "%d: -b", three)
	gives(t, events, "%d: a=4", four)
	has(t, s, "", "a=4")
}
