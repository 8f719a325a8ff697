package cheetah

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/hash"
)

// Decode undoes Stamp and tells the age, at every width and in both epochs.
func TestDecodeUndoesStamp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Layout{Bits: rapid.IntRange(MinBits, MaxBits).Draw(t, "bits")}
		keys := [2]hash.Key{{rapid.Uint64().Draw(t, "key"), 1}, {2, 3}}
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))), rapid.Uint16().Draw(t, "port"))
		epoch, slot := rapid.Uint32Range(0, 1).Draw(t, "epoch"), rapid.Uint32Range(0, uint32(l.Slots()-1)).Draw(t, "slot")
		sent := rapid.Uint32().Draw(t, "sent")
		age := rapid.Int32Range(-SkewMS+1, int32(l.IdleLimit().Milliseconds())).Draw(t, "age")
		d := l.Decode(keys, 1<<epoch, src, 80, l.Stamp(keys[epoch], epoch, src, 80, slot, sent), sent+uint32(age))
		if !d.Live || d.Epoch != epoch || d.Slot != slot || d.AgeMS != age {
			t.Fatalf("%+v, want epoch %d slot %d age %d", d, epoch, slot, age)
		}
	})
}
