package effective

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/controller/buckets"
)

// A table whose rows are looked at in parts, at the same time, becomes the same as one
// whose rows are looked at one after the other.
func TestParts(t *testing.T) {
	was := rowsAtOnce
	defer func() { rowsAtOnce = was }()
	deputies, chains := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		now := uint32(10_000)
		servers := make([]buckets.Server, 6)
		for i := range servers {
			servers[i] = buckets.Server{Number: uint16(i), Weight: 1}
		}
		u := buckets.New(rapid.IntRange(8, 60).Draw(t, "buckets"), servers)
		down, owned := map[uint16]bool{}, map[[2]int]bool{}
		v := View{ChainTime: chainTime, Servers: servers, Down: func(n uint16) bool { return down[n] }, Datagrams: rapid.Bool().Draw(t, "datagrams"),
			Owns: func(n uint16, b int) (bool, uint32) { return owned[[2]int{int(n), b}], now }}
		var whole, parts Table
		for range rapid.IntRange(2, 8).Draw(t, "updates") {
			now += rapid.Uint32Range(1, chainTime).Draw(t, "seconds")
			v.Now = now
			for n := range uint16(len(servers)) {
				down[n] = rapid.IntRange(0, 3).Draw(t, "down") == 0
				owned[[2]int{int(n), rapid.IntRange(0, u.Len()-1).Draw(t, "owned")}] = true
				servers[n].Weight = rapid.IntRange(0, 2).Draw(t, "weight")
			}
			o := buckets.Options{Now: now, ChainTime: chainTime, Owns: v.Owns}
			if moves := u.Assign(servers, o); len(moves) > 0 {
				u, _ = u.Apply(moves, o)
			}
			rowsAtOnce = was
			due, changed := whole.Update(u, v)
			rowsAtOnce = rapid.IntRange(1, 9).Draw(t, "at once")
			dueParts, changedParts := parts.Update(u, v)
			if due != dueParts || changed != changedParts || len(whole.open) != len(parts.open) || len(whole.open) > 0 && !reflect.DeepEqual(whole.open, parts.open) {
				t.Fatalf("due %d and %d, changed %v and %v, open %v and %v", due, dueParts, changed, changedParts, whole.open, parts.open)
			}
			if !reflect.DeepEqual(whole.Current, parts.Current) || !reflect.DeepEqual(whole.Previous, parts.Previous) || !reflect.DeepEqual(whole.Since, parts.Since) || whole.Forgotten != parts.Forgotten {
				t.Fatalf("rows differ: %+v and %+v", whole, parts)
			}
			for b := range whole.Current {
				if whole.Current[b] != u.Current[b] {
					deputies++
				}
				if whole.Previous[b][0] != buckets.None {
					chains++
				}
			}
		}
	})
	if deputies == 0 || chains == 0 {
		t.Errorf("%d deputies, %d chains: too tame", deputies, chains)
	}
}
