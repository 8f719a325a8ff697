package tables

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// changing is a VIP through any series of changes, and connections that
// follow its hash as the data plane does, with a flow table that never fills.
type changing struct {
	*rapid.T
	v     *controller.VIP
	now   time.Time
	down  map[uint16]bool
	spare map[uint16]time.Time // since when a number is in Anchor's horizon
	sets  sets
	place *Hash
	conns []*conn
}

type conn struct {
	hash    uint64
	slot    int // where it was opened
	tracked bool
	seen    time.Time
}

func newChanging(t *rapid.T, protocol, kind string) *changing {
	c := &changing{T: t, now: setsNow, down: map[uint16]bool{}, spare: map[uint16]time.Time{}}
	c.v = &controller.VIP{
		ID:       7,
		Settings: vip.Settings{Name: "v", Protocol: protocol, Scheme: "jet", Policy: "hash", Hash: chash.Kind(kind), WarmUp: setsWarmUp},
		HashRows: 512,
	}
	if !chash.Kind(kind).Weighted() {
		c.v.Capacity = 24
	}
	if kind == "anchor" {
		c.v.HashRows, c.v.Horizon = 0, rapid.IntRange(0, 3).Draw(t, "horizon")
	}
	for range rapid.IntRange(2, 6).Draw(t, "servers") {
		c.add(controller.Active, time.Time{})
	}
	c.plan(time.Time{})
	return c
}

// add puts a server into the lowest free slot.
func (c *changing) add(state controller.State, since time.Time) {
	n := uint16(0)
	for int(n) < len(c.v.Slots) && c.v.Slots[n].Number == n {
		n++
	}
	if n >= 20 {
		return
	}
	if t, ok := c.spare[n]; ok {
		since = t
	}
	weight := 1
	if chash.Kind(c.v.Hash).Weighted() {
		weight = rapid.IntRange(1, 5).Draw(c.T, "weight")
	}
	c.v.Slots = slices.Insert(c.v.Slots, int(n), controller.Slot{Number: n, Server: fmt.Sprint("s", n),
		Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), Weight: weight, State: state, Since: since})
}

// plan brings the slots as they are into force.
func (c *changing) plan(since time.Time) {
	s := setsOf(c.v, func(_ uint32, slot uint16) bool { return c.down[slot] }, c.now)
	c.sets = s
	if c.v.Protocol == "udp" { // a datagram that finds its server down goes to another
		c.end(func(o *conn) bool { return s.lines[uint16(o.slot)]&bpf.LineDown != 0 })
	}
	h, err := compileHash(chash.Spec{Kind: chash.Kind(c.v.Hash), Rows: c.v.HashRows, Capacity: c.v.Capacity}, &s)
	if err != nil {
		c.Fatal(err)
	}
	c.place = &h
	for n := range uint16(24) {
		if int(n) >= c.v.HorizonTop() {
			delete(c.spare, n)
		} else if _, ok := c.spare[n]; !ok {
			c.spare[n] = since
		}
	}
}

func (c *changing) end(which func(o *conn) bool) { c.conns = slices.DeleteFunc(c.conns, which) }

// change is one thing that an operator, a health check or the controller does.
func (c *changing) change() {
	if len(c.v.Slots) == 0 {
		c.add(controller.Active, c.now)
	}
	s := &c.v.Slots[rapid.IntRange(0, len(c.v.Slots)-1).Draw(c.T, "slot")]
	switch op := rapid.SampledFrom([]string{"drain", "undrain", "standby", "activate", "add", "down", "up", "weight", "remove", "free"}).Draw(c.T, "op"); op {
	case "drain":
		if s.State == controller.Active {
			s.State, s.DrainSince = controller.Draining, c.now
		}
	case "undrain":
		if s.State == controller.Draining {
			s.State, s.DrainSince = controller.Active, time.Time{}
		}
	case "standby":
		c.add(controller.Standby, c.now)
	case "activate":
		if s.State == controller.Standby {
			s.State = controller.Active
		}
	case "add":
		c.add(controller.Active, c.now)
	case "down":
		c.down[s.Number] = true
	case "up":
		delete(c.down, s.Number)
	case "weight":
		if chash.Kind(c.v.Hash).Weighted() {
			if _, until := c.v.HeldWeight(s, c.now); until.IsZero() {
				s.OldWeight = s.Weight
			}
			s.Weight, s.WeightSince = rapid.IntRange(1, 5).Draw(c.T, "weight"), c.now
		}
	case "remove":
		if s.State == controller.Draining {
			s.State = controller.Resting
			c.end(func(o *conn) bool { return o.slot == int(s.Number) })
		}
	case "free":
		if n := s.Number; s.State == controller.Resting {
			c.v.Slots = slices.DeleteFunc(c.v.Slots, func(s controller.Slot) bool { return s.Number == n })
			delete(c.down, n)
		}
	}
}

// displaced says that a number is in the way of h by Anchor which came when
// the connection was there already, while such a one works, as nobody else
// does. (If none works, they are at the far end of the horizon and it meets
// them all or none.)
func (c *changing) displaced(h uint64) bool {
	t := &chash.AnchorTable{Entries: c.place.Entries, Held: c.place.held, Track: c.place.track}
	return c.place.Form == bpf.HashAnchor && c.sets.all && c.sets.working && slices.ContainsFunc(t.Path(h), func(n int) bool {
		if s, ok := c.v.Slot(uint16(n)); ok {
			return c.v.Warming(s, c.now)
		}
		return c.now.Before(c.spare[uint16(n)].Add(setsWarmUp))
	})
}

// talk opens connections and lets most of the others send a packet.
func (c *changing) talk() {
	c.end(func(o *conn) bool { return c.now.Sub(o.seen) >= setsWarmUp })
	c.end(func(o *conn) bool {
		if rapid.IntRange(0, 3).Draw(c.T, "silent") == 0 {
			return false
		}
		o.seen = c.now
		if o.tracked {
			return false
		}
		_, held, track := c.place.Place(o.hash)
		if held != o.slot {
			if c.displaced(o.hash) {
				return true
			}
			c.Fatalf("connection %#x was on %d and goes to %d, tracked: %v; slots %+v, down %v", o.hash, o.slot, held, track, c.v.Slots, c.down)
		}
		o.tracked = track || c.sets.all
		return false
	})
	for range 20 {
		h := rapid.Uint64().Draw(c.T, "hash") * 0x9e3779b97f4a7c15
		slot, held, track := c.place.Place(h)
		switch {
		case c.v.Protocol == "udp" && h&1 != 0: // not QUIC: nothing says that it is new
			slot = held
		case !c.sets.working:
			continue
		}
		if slot >= 0 {
			c.conns = append(c.conns, &conn{h, slot, track || c.sets.all, c.now})
		}
	}
}

// Whatever is done to a VIP, a connection that is not tracked stays where it
// was opened for as long as its server is there.
func TestChangesBreakNothing(t *testing.T) {
	for _, kind := range trackingHashes {
		for _, protocol := range []string{"tcp", "udp"} {
			t.Run(protocol+" "+kind, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					c := newChanging(t, protocol, kind)
					for range rapid.IntRange(1, 12).Draw(t, "steps") {
						c.talk()
						for range rapid.IntRange(1, 3).Draw(t, "changes") {
							c.change()
						}
						c.plan(c.now)
						c.talk()
						c.now = c.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
						c.plan(c.now)
					}
					c.talk()
				})
			})
		}
	}
}
