package effective

import (
	"testing"

	"github.com/fairlead/fairlead/controller/buckets"
)

// A move that a controller made with its clock a month ahead is no later than now: else
// packets would carry a time that looks long past, and nobody passed them on. Its chain
// ends when any other would, however many versions come with that table.
func TestMoveYetToCome(t *testing.T) {
	const now, month = 10_000, 30 * 24 * 3600
	servers := []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}}
	first := buckets.New(2, servers)
	v := View{Now: now, ChainTime: chainTime, Servers: servers}
	known, starts := new(Table), new(Table)
	known.Update(first, v)
	moved := -1
	for b, s := range first.Current {
		if s == 0 {
			moved = b
		}
	}
	ahead, _ := first.Apply([]buckets.Move{{Bucket: uint32(moved), To: 1}}, buckets.Options{Now: now + month, ChainTime: chainTime})
	for _, e := range []*Table{known, starts} {
		for passed := uint32(0); passed < 2*chainTime; passed += 20 {
			v.Now = now + passed
			e.Update(ahead.Clone(), v) // with each version
			r := e.At(moved)
			if chained := r.Previous[0] == 0; chained != (passed < chainTime) || r.Current != 1 {
				t.Fatalf("after %d s the row is %+v", passed, r)
			}
			if r.Since > now {
				t.Fatalf("after %d s packets carry %d, and the bucket moved at %d", passed, r.Since, now)
			}
		}
	}
	// A controller whose clock is right again moves it on.
	back, _ := ahead.Apply([]buckets.Move{{Bucket: uint32(moved), To: 0}}, buckets.Options{Now: v.Now, ChainTime: chainTime})
	known.Update(back, v)
	if r := known.At(moved); r.Current != 0 || r.Previous[0] != 1 || r.Since != v.Now {
		t.Errorf("moved back the row is %+v", r)
	}
}
