package buckets

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/fairlead/fairlead/soak"
)

// TestDigest: whatever differs, the digest does; and it stays what it was, for it
// stands beside programs that a later build adopts, and in stores.
func TestDigest(t *testing.T) {
	table := func() *Table {
		t := New(3*digestedAtOnce+5, []Server{{Number: 1, Weight: 1}, {Number: 700, Weight: 2}})
		t.set(digestedAtOnce+1, Row{Current: 9, Previous: [Chain]uint16{8, 7, None}, Since: 1_800_000_000})
		return t
	}
	sum := table().Digest()
	if is := hex.EncodeToString(sum[:]); is != "0dfc8f9fe680ef17d58d28be0bc2d36248662e6afefa1398290283e6e2fc5f2c" {
		t.Errorf("%s: it must never change", is)
	}
	r := soak.Rand(t)
	for range 200 {
		u := table()
		b := r.IntN(u.Len())
		switch r.IntN(4) {
		case 0:
			u.Current[b]++
		case 1:
			u.Since[b] ^= 1 << r.IntN(32)
		case 2:
			u.Previous[b][r.IntN(Chain)] ^= 1 << r.IntN(16)
		case 3:
			u.Generation++
		}
		if u.Digest() == sum {
			t.Fatalf("bucket %d differs, and its digest does not", b)
		}
	}
	if New(digestedAtOnce, nil).Digest() == New(digestedAtOnce+1, nil).Digest() {
		t.Error("one bucket more, and the same digest")
	}
	large := New(6_400_000, []Server{{Number: 1, Weight: 1}})
	start := time.Now()
	large.Digest()
	t.Logf("6.4 million buckets: %v", time.Since(start))
}
