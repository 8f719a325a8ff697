package lb

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// TestMigration: at a VIP that migrates to cookies, what servers named goes by its entry,
// whatever its timestamp looks like, and all else by the cookie; from cookies, what is
// opened is entered.
func TestMigration(t *testing.T) {
	r := trackingOf(t, "tcp", "table-hrw", 4, 1<<14)
	from := r.v.Settings
	dst := netip.AddrPortFrom(r.v.Address, r.v.Port)
	secret := r.a.Keys[0].Secret
	layout := cheetah.Layout{Bits: 12}
	segment := func(c netip.AddrPort, flags uint8, slot uint32) []byte {
		now, err := r.l.sharedNow(r.l.running())
		if err != nil {
			t.Fatal(err)
		}
		key := cheetah.VIPKey(secret, dst.Addr(), dst.Port(), wire.ProtoTCP)
		field := layout.Encode(hash.Tuple(key, c, dst.Port()), slot, r.a.Keys[0].Epoch)
		return wire.TCP{Src: c, Dst: dst, Flags: flags, Options: wire.Timestamp(7, layout.WireTS(field, now-1000))}.Frame()
	}
	goes := func(what string, frame []byte, slot uint16) {
		t.Helper()
		if to := r.send(frame); to != serverOf(slot) {
			t.Errorf("%s goes to %v, not to slot %d", what, to, slot)
		}
	}
	// At collect, all as before.
	r.v.Scheme, r.v.Policy, r.v.CookieBits = vip.Cheetah, vip.RR, 12
	r.v.Migration = &controller.Migration{From: from, Stage: controller.StageCollect, Version: r.a.Version + 1}
	r.apply()
	clients := map[netip.AddrPort]uint16{}
	named := func(c netip.AddrPort, slot uint16) FlowRecord {
		key := jet.Key(r.v.ID, hash.Flow(r.a.HashKey, c, dst.Port(), true), c.Port(), dst.Port())
		return FlowRecord{Key: key, VIP: r.v.ID, Slot: slot, State: FlowConfirmed}
	}
	var records []FlowRecord
	for i := range 200 {
		c := r.client()
		clients[c] = uint16(i % 4) // a server that the hash would not say
		records = append(records, named(c, clients[c]))
	}
	if taken, err := r.l.FlowWrite(records); err != nil || taken != len(records) {
		t.Fatal(taken, err)
	}
	for _, e := range records {
		if slot, ok, err := r.l.FlowSlot(e.Key); err != nil || !ok || slot != int(e.Slot) {
			t.Fatal(slot, ok, err)
		}
	}
	next := *r.v.Migration
	next.Stage = controller.StageBoth
	r.v.Migration = &next
	r.apply()
	for c, slot := range clients {
		goes("what servers named", segment(c, wire.ACK, uint32(slot+1)%4), slot)
		other := r.client()
		goes("what carries a cookie", segment(other, wire.ACK, uint32(slot)), slot)
	}
	// One that opens where it was stays, unless its server takes nothing new.
	var at netip.AddrPort
	for c, slot := range clients {
		goes("a port that is used again", segment(c, wire.SYN, 0), slot)
		if slot == 2 {
			at = c
		}
	}
	r.send(segment(at, wire.RST, 2))
	r.pass(150 << 10 * 1e6) // ns: it has faded
	r.drain(2)
	to := r.send(segment(at, wire.SYN, 0))
	if to == serverOf(2) || !to.IsValid() {
		t.Fatalf("opened again, it goes to %v", to)
	}
	if again := r.send(segment(at, wire.ACK, 1)); again != to {
		t.Errorf("opened at %v, it goes on at %v", to, again)
	}
	r.activate(2)
	// It is over.
	r.v.Migration = nil
	r.apply()
	for c, slot := range clients {
		goes("behind the migration", segment(c, wire.ACK, uint32(slot+1)%4), (slot+1)%4)
	}
	// And back: placed as the hash does, and found by its cookie.
	with := r.v.Settings
	r.v.Settings = from
	r.v.Migration = &controller.Migration{From: with, Stage: controller.StagePlace, Version: r.a.Version + 1}
	r.apply()
	opened := map[netip.AddrPort]netip.Addr{}
	for range 200 {
		c := r.client()
		opened[c] = r.send(segment(c, wire.SYN, 0))
		for slot := range uint32(4) {
			if other := r.client(); r.send(segment(other, wire.ACK, slot)) != serverOf(uint16(slot)) {
				t.Fatal("a cookie is not followed")
			}
		}
	}
	// A SYN came to a server before, its repetition to the one that has an entry: the
	// client has the first one's cookie, and has it still when servers have said so.
	twice := map[netip.AddrPort]uint16{}
	var said []FlowRecord
	for range 200 {
		c, slot := r.client(), uint16(len(twice)%4)
		r.send(segment(c, wire.SYN, 0))
		goes("a SYN that was sent again", segment(c, wire.ACK, uint32(slot)), slot)
		said, twice[c] = append(said, named(c, slot)), slot
	}
	if taken, err := r.l.FlowWrite(said); err != nil || taken != len(said) {
		t.Fatalf("%d of %d taken: %v", taken, len(said), err)
	}
	for c, slot := range twice {
		opened[c] = serverOf(slot)
	}
	for _, stage := range []controller.Stage{controller.StageCollect, controller.StageEnding} {
		next := *r.v.Migration
		next.Stage = stage
		r.v.Migration = &next
		r.apply()
		for c, to := range opened {
			if now := r.send(segment(c, wire.ACK, 0)); now != to {
				t.Fatalf("stage %s: opened at %v, it is at %v", stage, to, now)
			}
		}
	}
}
