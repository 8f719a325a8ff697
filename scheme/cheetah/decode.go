package cheetah

import (
	"net/netip"

	"github.com/fairlead/fairlead/hash"
)

// Decoded is what a timestamp's cookie says. Every timestamp says something;
// whether it was meant is known only by the slot's existence.
type Decoded struct {
	Field uint32
	// Epoch is the parity of the epoch; Live: cookies of it are decoded now.
	Epoch uint32
	Live  bool
	// Hash is the connection's under that epoch's key; Slot and Seat are what it
	// unlocks.
	Hash       uint64
	Slot, Seat uint32
	Tier       uint32
	// AgeMS is how long ago the timestamp was stamped, by the shared clock:
	// negative when the stamping host's clock is ahead.
	AgeMS int32
}

// Decode reads the cookie in ts (a TSecr, or a TSval that an ICMP error
// quotes) of the connection from src to dstPort at shared time nowMS. keys
// are those of the even and the odd epoch, epochs has bit e set where parity
// e is live (fl_cheetah_known).
func (l Layout) Decode(keys [2]hash.Key, epochs uint8, src netip.AddrPort, dstPort uint16, ts, nowMS uint32) Decoded {
	d := Decoded{Field: l.Field(ts, nowMS)}
	d.Epoch = l.Epoch(d.Field)
	d.Live = epochs>>d.Epoch&1 != 0
	d.Hash = hash.Tuple(keys[d.Epoch], src, dstPort)
	value := l.Value(d.Hash, d.Field)
	d.Slot, d.Seat = l.Split(value)
	d.Tier = l.Tier(value)
	d.AgeMS = int32(nowMS - (ts - d.Field<<l.Shift()))
	return d
}

// Stamp is the timestamp that a server puts on the wire at shared time nowMS
// so that the client's echo has value: what Decode undoes.
func (l Layout) Stamp(key hash.Key, epoch uint32, src netip.AddrPort, dstPort uint16, value, nowMS uint32) uint32 {
	return l.WireTS(l.Encode(hash.Tuple(key, src, dstPort), value, epoch), nowMS)
}
