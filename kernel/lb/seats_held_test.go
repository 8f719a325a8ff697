package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// held is a balancer with connections of scheme cheetah-stateful, each of which knows
// where it is.
type held struct {
	t      *testing.T
	w      *wired
	l      *LB
	r      *rand.Rand
	a      *controller.Assignment
	layout cheetah.Layout
	all    []heldConn
	opened int
	out    []byte
}

type heldConn struct {
	from  netip.AddrPort
	epoch uint32
	slot  uint8
	moved int8 // slot that its packets go to, -1: its own
	seat  uint16
}

const heldServers = 6 // of which the last two come and go

func newHeld(t *testing.T, r *rand.Rand, connections int) *held {
	h := &held{t: t, w: newWired(t), r: r, layout: cheetah.Layout{Bits: 15, SeatBits: 8}, out: make([]byte, 4096)}
	o := h.w.options()
	o.Limits.Seats = 2 * connections
	h.l = h.w.open(o)
	if err := h.l.SetClock(func() uint32 { return r.Uint32() }); err != nil {
		t.Fatal(err)
	}
	h.a = assignment(0, 11, 12, 13, 14, 15, 16)
	v := &h.a.VIPs[0]
	v.Scheme, v.CookieBits, v.SeatBits = "cheetah-stateful", h.layout.Bits, h.layout.SeatBits
	h.apply()
	h.all = make([]heldConn, connections)
	return h
}

func (h *held) apply() {
	h.t.Helper()
	h.a.Version++
	if _, err := h.l.Apply(h.a, nil); err != nil {
		h.t.Fatalf("version %d: %v", h.a.Version, err)
	}
	// Test runs come in by the loopback, whose frames are not this machine's.
	if err := h.l.running().writeControl(unsafe.Offsetof(bpf.Control{}.Inputs), uint32(0)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *held) key(epoch uint32) hash.Key {
	i := slices.IndexFunc(h.a.Keys, func(k controller.Key) bool { return k.Epoch == epoch })
	return cheetah.VIPKey(h.a.Keys[i].Secret, h.a.VIPs[0].Address, 80, wire.ProtoTCP)
}

func (h *held) now() uint32 {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	now, err := h.l.sharedNow(h.l.running())
	if err != nil {
		h.t.Fatal(err)
	}
	return now
}

// run sends a frame, and says to which slot's server it went.
func (h *held) run(frame []byte) (slot uint8) {
	h.t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: h.out[:cap(h.out)]}
	action, err := h.l.running().Programs[progLB].Run(&o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.out = o.DataOut
	if action != actTX && action != actRedirect || len(h.out) < 14+20 {
		h.t.Fatalf("version %d: action %d", h.a.Version, action)
	}
	return h.out[14+19] - 11
}

// open opens a connection in c's place, and has its cookie shown.
func (h *held) open(c *heldConn, now uint32) {
	h.t.Helper()
	h.opened++
	*c = heldConn{from: seatFrom(0, h.opened), epoch: h.a.StampEpoch, moved: -1}
	c.slot = h.run(wire.TCP{Src: c.from, Dst: netip.MustParseAddrPort(wiredVIP + ":80"), Flags: wire.SYN, Options: wire.SYNOptions(1460, 1)}.Frame())
	in, _, err := wire.Decapsulate(wire.Parse(h.out).Packet())
	if err != nil {
		h.t.Fatal(err)
	}
	c.seat = uint16(wire.ParsePacket(in).Timestamp.Ecr &^ (1 << 31))
	if s := &h.a.VIPs[0].Slots[c.slot]; c.seat == 0 || s.State != controller.Active {
		h.t.Fatalf("version %d: a connection was given seat %d, and %s, which is %s", h.a.Version, c.seat, s.Server, s.State)
	}
	h.send(c, wire.ACK, now)
}

// send sends a segment; it has to go where the connection is.
func (h *held) send(c *heldConn, flags uint8, now uint32) {
	h.t.Helper()
	value := h.layout.Join(uint32(c.slot), uint32(c.seat))
	to := h.run(wire.TCP{Src: c.from, Dst: netip.MustParseAddrPort(wiredVIP + ":80"), Flags: flags,
		Options: wire.Timestamp(1, h.layout.Stamp(h.key(c.epoch), c.epoch&1, c.from, 80, value, now))}.Frame())
	want := c.slot
	if c.moved >= 0 {
		want = uint8(c.moved)
	}
	if to != want {
		h.t.Fatalf("version %d: %v, of slot %d, went to %d", h.a.Version, c.from, want, to)
	}
}

// change makes one change of the VIP's servers, policy or key, and says which.
func (h *held) change(n, of int) string {
	v := &h.a.VIPs[0]
	s := &v.Slots[h.r.IntN(heldServers-2)]
	switch h.r.IntN(6) {
	case 0:
		v.Policy = pick[vip.Policy](h.r, "rr", "wrr", "p2c", "least-conn")
		return "policy " + string(v.Policy)
	case 1:
		s.Weight = 1 + h.r.IntN(9)
		return fmt.Sprintf("%s has weight %d", s.Server, s.Weight)
	case 2:
		s = &v.Slots[heldServers-1-h.r.IntN(2)]
		s.State = pick(h.r, controller.Standby, controller.Joining)
		return fmt.Sprintf("%s is %s", s.Server, s.State)
	case 3:
		if n > of/2 && len(h.a.Keys) == 1 {
			h.a.Keys = append(h.a.Keys, controller.Key{Epoch: 1, Secret: []byte("fedcba9876543210")})
			return "a key is handed out"
		} else if len(h.a.Keys) == 2 {
			h.a.StampEpoch = 1
			return "it stamps"
		}
	}
	if s.State == controller.Draining {
		s.State = controller.Active
	} else if others := slices.IndexFunc(v.Slots, func(o controller.Slot) bool { return o.State == controller.Active && o.Number != s.Number }); others >= 0 {
		s.State = controller.Draining
	}
	return fmt.Sprintf("%s is %s", s.Server, s.State)
}

// moves moves some connections to a server that takes no new ones, and back.
func (h *held) moves(some []heldConn) {
	h.t.Helper()
	byClient := map[netip.AddrPort]*heldConn{}
	for i := range some {
		if some[i].slot != heldServers-1 { // else it is there
			byClient[some[i].from] = &some[i]
		}
	}
	done := 0
	err := h.l.Move(func(c *Connection) (uint32, bool) {
		m := byClient[c.Client]
		switch {
		case m == nil:
			return 0, false
		case m.moved >= 0:
			m.moved = -1
			return seats.Any, true
		}
		m.moved = heldServers - 1
		return heldServers - 1, true
	}, func(*Connection) { done++ })
	if err != nil || done != len(byClient) {
		h.t.Fatalf("version %d: %d of %d moved (%v)", h.a.Version, done, len(byClient), err)
	}
}

// Connections are held over changes of servers, policies and keys, moves, and the
// daemon's sweeps, while others open and close: every packet goes to its connection's
// server, by a seat that is its own, and in the end nothing is left.
func TestSeatsHeldOverChanges(t *testing.T) {
	connections, changes, rounds := 2000, 40, 8
	if soak.On() {
		connections, changes, rounds = 1<<20, 1000, 25
	}
	r := soak.Rand(t)
	h := newHeld(t, r, connections)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, now := 0, h.now(); i < connections; i++ {
		if i%1000 == 0 {
			now = h.now()
		}
		h.open(&h.all[i], now)
	}
	at, step := 0, (connections+rounds-1)/rounds
	for n := range changes {
		what := h.change(n, changes)
		h.apply()
		h.l.sweepSeats()
		if n%10 == 0 {
			first := r.IntN(connections - 20)
			h.moves(h.all[first : first+20])
		}
		// Each speaks once in so many changes, sooner than its cookie is too old; one in
		// fifty ends, and another begins.
		now := h.now()
		for i := range step {
			if i%1000 == 0 {
				now = h.now()
			}
			c := &h.all[(at+i)%connections]
			h.send(c, wire.ACK|wire.PSH, now)
			if r.IntN(50) == 0 {
				h.send(c, wire.ACK|wire.FIN, now)
				h.open(c, now)
			}
		}
		at += step
		if n%100 == 0 {
			t.Logf("version %d: %s", h.a.Version, what)
		}
	}
	for i, now := 0, h.now(); i < connections; i++ {
		if i%1000 == 0 {
			now = h.now()
		}
		h.send(&h.all[i], wire.ACK|wire.FIN, now)
	}
	h.l.sweepSeats()
	counters, err := h.l.Counters()
	if err != nil {
		t.Fatal(err)
	}
	n := counters.VIPs[0]
	t.Logf("%d connections held over %d changes, of %d that were opened", connections, changes, h.opened)
	if n.SeatWrong+n.SeatFull+n.BadCookies+n.Dropped > 0 || n.Seated != uint64(h.opened) {
		t.Errorf("counters %+v", n)
	}
	if h.l.seatStats.New+h.l.seatStats.Live+h.l.seatStats.Closing > 0 {
		t.Errorf("seats left: %+v", h.l.seatStats)
	}
}
