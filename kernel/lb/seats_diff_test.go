package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// seatCase says what seats had to do with a packet.
func seatCase(r model.Result) string {
	switch s := r.Seat; {
	case s.Opened && s.Number == 0:
		return "seat full"
	case s.Opened:
		return "seat taken"
	case s.Outcome != seats.Hit:
		return map[seats.Outcome]string{seats.None: "seat none", seats.Wrong: "seat wrong"}[s.Outcome]
	}
	what := map[bool]string{false: "data", true: "closes"}[r.Closes]
	if w := r.Seat.Was; w.Moved() {
		at := map[bool]string{true: "moved", false: "at home"}[r.Slot == int(w.Slot())]
		return fmt.Sprintf("seat %s %s %s", at, strings.TrimPrefix(w.State().String(), "seat_"), what)
	}
	return fmt.Sprintf("seat %s %s", strings.TrimPrefix(r.Seat.Was.State().String(), "seat_"), what)
}

// seatConn is a connection as its client knows it.
type seatConn struct {
	v           *model.VIP
	client, vip netip.AddrPort
	epoch, seat uint32
	slot        uint32
}

// Connections that open, speak, close and come back to seats that are few: in every
// step the program and the model agree, and so does every entry behind them.
func TestSeatsAgreeWithModel(t *testing.T) {
	hits := map[string]int{}
	for seed := range soak.Seeds(t, 8) {
		h := newHostile(rand.New(rand.NewPCG(seed, 1)))
		var stateful []*model.VIP
		for id := uint32(1); id <= 20; id++ {
			for _, v := range h.tables.Services {
				if v.ID != id || v.Proto != wire.ProtoTCP {
					continue
				}
				v.Scheme, v.Carrier, v.Layout.Bits, v.Layout.SeatBits = vip.CheetahStateful, vip.TCPTimestamp, 15, pick(h.Rand, seats.MinBits, seats.MinBits, seats.MinBits+h.IntN(seats.MaxBits-seats.MinBits+1))
				v.OpenEpoch, v.Policy = h.IntN(2), pick(h.Rand, "rr", "p2c", "hash")
				v.TierOne, v.Tier, v.Layout.TierBits = false, 0, 0
				h.pool(v)
				if v.Slots <= 1<<(14-v.Layout.SeatBits) {
					stateful = append(stateful, v)
				}
			}
		}
		p := newPairOf(t, seed, h)
		var conns []*seatConn
		for n := range 6000 {
			switch act := h.IntN(10); {
			case act < 5 || len(conns) == 0:
				v := stateful[h.IntN(len(stateful))]
				c := &seatConn{v: v, client: netip.AddrPortFrom(h.address(v.Addr.Is6(), 3), uint16(1024+h.IntN(1<<15))), vip: netip.AddrPortFrom(v.Addr, max(v.Port, 80)),
					epoch: uint32(h.IntN(2))}
				r := p.step(wire.TCP{Src: c.client, Dst: c.vip, Flags: wire.SYN, Options: h.options(h.Uint32())}.Frame())
				if r.Seat == nil {
					continue // its option was no timestamp
				}
				hits[seatCase(r)]++
				if c.seat = r.Seat.Number; r.Slot >= 0 {
					c.slot = uint32(r.Slot)
				}
				if conns = append(conns, c); len(conns) > 300 {
					conns = conns[h.IntN(200):]
				}
			default:
				c := conns[h.IntN(len(conns))]
				seat, slot := c.seat, c.slot
				switch h.IntN(12) {
				case 0:
					seat = h.Uint32N(1 << c.v.Layout.SeatBits)
				case 1:
					slot = h.Uint32N(c.v.Slots)
				}
				flags := pick[uint8](h.Rand, wire.ACK, wire.ACK, wire.ACK|wire.PSH, wire.ACK|wire.FIN, wire.RST)
				frame := wire.TCP{Src: c.client, Dst: c.vip, Flags: flags, Payload: make([]byte, h.IntN(1200)),
					Options: wire.Timestamp(1, c.v.Layout.Stamp(c.v.Keys[c.epoch], c.epoch, c.client, c.vip.Port(), c.v.Layout.Join(slot, seat), h.now-h.Uint32N(1000)))}.Frame()
				if r := p.step(frame); r.Seat != nil {
					hits[seatCase(r)]++
				}
			}
			switch h.IntN(60) {
			case 0:
				p.wait(uint32(h.IntN(1 << pick(h.Rand, 10, 13, 14))))
			case 1:
				p.sweepSeats()
			case 2, 3, 4, 5:
				p.moveSeats(pick[uint32](h.Rand, 4, 4, 1000))
			}
			if n%500 == 0 {
				p.sameState()
			}
		}
		p.sameState()
	}
	t.Logf("%v", hits)
	for _, what := range []string{"taken", "full", "none", "wrong", "new data", "new closes", "live data", "live closes", "closing data", "closing closes",
		"moved live data", "moved live closes", "moved closing data", "at home live data"} {
		if hits["seat "+what] == 0 {
			t.Errorf("no seat %s: the generator is too tame", what)
		}
	}
}

// moveSeats moves a third of the seats, in both, to slots below most, or back.
func (p *pair) moveSeats(most uint32) {
	p.t.Helper()
	all, err := p.twin.set.seatTable()
	if err != nil {
		p.t.Fatal(err)
	}
	for i := range uint32(diffSeats) {
		switch to, w := p.h.Uint32N(most), all.Word(i); p.h.IntN(6) {
		case 0:
			if all.Move(i, w, to) != p.state.Seats.Move(i, w, to) {
				p.t.Fatalf("seed %d: seat %d, %x: only one moves", p.seed, i, w)
			}
		case 1:
			if all.Back(i, w) != p.state.Seats.Back(i, w) {
				p.t.Fatalf("seed %d: seat %d, %x: only one comes back", p.seed, i, w)
			}
		}
	}
	if err := p.compareSeats(); err != nil {
		p.t.Fatalf("seed %d: moved: %v", p.seed, err)
	}
}

// sweepSeats frees, in both, what has been silent. There is no server at slots above 900.
func (p *pair) sweepSeats() {
	p.t.Helper()
	rule := func(_ *bpf.SeatAbout, slot uint32) (uint32, bool) { return 16, slot <= 900 }
	p.state.Seats.Sweep(0, diffSeats, seats.Unit(p.h.now), rule)
	all, err := p.twin.set.seatTable()
	if err != nil {
		p.t.Fatal(err)
	}
	all.Sweep(0, diffSeats, seats.Unit(p.h.now), rule)
	if err := p.compareSeats(); err != nil {
		p.t.Fatalf("seed %d: swept: %v", p.seed, err)
	}
}

// Seats are in a daemon's memory only where somebody may sit.
func TestSeatsAreLetGo(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	if err := l.SetClock(func() uint32 { return 12345 }); err != nil {
		t.Fatal(err)
	}
	w.apply(l, 11, 12)
	l.sweepSeats()
	set := l.running()
	if set.seats != nil || len(set.seated) > 0 {
		t.Error("nobody sits, and seats are mapped")
	}
	if err := l.Connections(func(*Connection) bool { return true }); err != nil || set.seats != nil {
		t.Errorf("after a look: %v, mapped %t", err, set.seats != nil)
	}
	a := assignment(1, 11, 12)
	a.Version++
	a.VIPs[0].Scheme, a.VIPs[0].CookieBits, a.VIPs[0].SeatBits = "cheetah-stateful", 15, 8
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	l.sweepSeats()
	if set = l.running(); set.seats == nil || len(set.seats.Seats) == 0 {
		t.Error("somebody may sit, and no seats are mapped")
	}
}
