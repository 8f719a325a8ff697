package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// flow is a connection without a cookie, as a balancer of scheme jet sees it.
type flow struct {
	hash    uint64
	slot    uint16
	server  string
	seen    time.Time // its last packet
	tracked bool      // it has an entry in the flow table
}

// placer is a balancer's hash in one version at one time: who is in which set
// (JET's W, D and H) is written down here once more.
type placer interface {
	Place(h uint64) (slot, held int, track bool)
}

// all tracks whatever it places (FL_VIP_TRACK_ALL).
type all struct{ placer }

func (a all) Place(h uint64) (slot, held int, track bool) {
	slot, held, _ = a.placer.Place(h)
	return slot, held, true
}

func placerOf(t *rapid.T, v *VIP, down map[uint16]bool, now time.Time) (p placer, works bool) {
	active := slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.State == Active })
	down = failing(v, down)
	if alone := active && !slices.ContainsFunc(v.Slots, func(s Slot) bool {
		return s.State == Active && !down[s.Number] && !v.Warming(&s, now)
	}); alone || !active && (v.Protocol == vip.UDP || v.unsure(now)) {
		defer func() { p = all{p} }()
	}
	var members []chash.Member
	states := make([]chash.BucketState, v.HorizonTop())
	for i := range states {
		states[i] = chash.Horizon
	}
	var soonest time.Time // of active servers' warm-ups, if none is over
	for i := range v.Slots {
		s := &v.Slots[i]
		held, _ := v.HeldWeight(s, now)
		if !chash.Kind(v.Hash).Weighted() {
			alike := *s
			alike.Weight, alike.OldWeight, alike.WeightSince = 1, 0, time.Time{}
			s, held = &alike, 1
		}
		m := chash.Member{Name: s.Server + " " + s.Address.String(), Number: int(s.Number), Horizon: max(s.Weight, held)}
		switch s.State {
		case Active:
			m.Held = held
			if !down[s.Number] {
				m.New = s.Weight
			}
		case Draining, Resting:
			if v.Protocol == vip.TCP || now.Before(s.DrainSince.Add(v.WarmUp)) || !active && !s.DrainSince.IsZero() {
				m.Held = held
			}
		}
		if v.Protocol == vip.UDP && down[s.Number] {
			m.Held = 0
		}
		if until := v.WarmUntil(s); now.Before(until) {
			m.Held = 0
			if m.New > 0 && (soonest.IsZero() || until.Before(soonest)) {
				soonest = until
			}
		}
		members = append(members, m)
		switch {
		case m.Held > 0 && m.New > 0:
			works = true
			fallthrough
		case m.New > 0:
			works = works || v.Hash != chash.KindAnchor
		}
	}
	if v.Hash != chash.KindAnchor {
		table, err := chash.Compile(chash.Spec{Kind: chash.Kind(v.Hash), Rows: v.HashRows, Capacity: v.Capacity}, members)
		if err != nil {
			t.Fatal(err)
		}
		return table, works
	}
	for i, m := range members {
		s := &v.Slots[i]
		state := chash.Horizon
		switch {
		case m.New > 0 && (m.Held > 0 || !works && v.WarmUntil(s).Equal(soonest)):
			state = chash.Working
		case m.Held > 0:
			state = chash.Draining
		}
		states[s.Number] = state
	}
	table, err := chash.NewAnchorTable(v.Capacity, states)
	if err != nil {
		t.Fatal(err)
	}
	return table, works || slices.Contains(states, chash.Working)
}

// failing is who of v is taken for down: nobody, if all that could work are.
func failing(v *VIP, down map[uint16]bool) map[uint16]bool {
	if slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.State == Active && !down[s.Number] }) {
		return down
	}
	if slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.State == Active }) {
		return nil
	}
	return down
}

// displaced: with Anchor a newcomer that works alone before it is warm may take
// what others held before and that was silent since (docs/jet.md).
func displaced(v *VIP, p placer, hash uint64, now time.Time) bool {
	a, _ := p.(all)
	t, ok := a.placer.(*chash.AnchorTable)
	return ok && slices.ContainsFunc(t.Path(hash), func(n int) bool {
		s, ok := v.Slot(uint16(n))
		if !ok {
			s = &Slot{Since: v.inHorizonSince(uint16(n), now)}
		}
		return v.Warming(s, now)
	})
}

// holder is one balancer, its flow table without bounds, and a deployment
// that changes.
type holder struct {
	t     *rapid.T
	cur   *Assignment
	now   time.Time
	down  map[uint16]bool // by slot of the one VIP
	flows []*flow
	// applied is when the balancer's daemon last put the version in force;
	// zero: it does so whenever time asks for it.
	applied time.Time
}

// packets of some connections arrive, and some connections are opened.
func (h *holder) packets() {
	v := &h.cur.VIPs[0]
	applied := h.applied
	if applied.IsZero() {
		applied = h.now
	}
	p, works := placerOf(h.t, v, h.down, applied)
	kept := h.flows[:0:0]
	for _, f := range h.flows {
		s, ok := v.Slot(f.slot)
		if !ok || s.Server != f.server || !h.now.Before(f.seen.Add(v.WarmUp)) {
			continue // its server is gone, or everybody has forgotten it
		}
		if v.Protocol == vip.UDP && failing(v, h.down)[f.slot] {
			continue // datagrams leave it
		}
		kept = append(kept, f)
		if rapid.IntRange(0, 2).Draw(h.t, "packet") > 0 {
			continue
		}
		f.seen = h.now
		if f.tracked {
			continue
		}
		_, held, track := p.Place(f.hash)
		if held != int(f.slot) {
			if displaced(v, p, f.hash, h.now) {
				kept = kept[:len(kept)-1]
				continue
			}
			h.t.Fatalf("version %d at %s: a connection of slot %d is held at %d:\n%s", h.cur.Version, h.now.Format(time.TimeOnly), f.slot, held, show1(h.cur))
		}
		f.tracked = track
	}
	h.flows = kept
	for range rapid.IntRange(0, 20).Draw(h.t, "opened") {
		hash := rapid.Uint64().Draw(h.t, "hash")
		slot, _, track := p.Place(hash)
		if !works || slot < 0 {
			continue
		}
		s, ok := v.Slot(uint16(slot))
		if !ok || s.State != Active {
			h.t.Fatalf("version %d: a new connection goes to slot %d, which is not active:\n%s", h.cur.Version, slot, show1(h.cur))
		}
		h.flows = append(h.flows, &flow{hash, s.Number, s.Server, h.now, track})
	}
}

// live is what agents count: those of even servers; odd ones have none.
func (h *holder) live() LiveCounts {
	l := LiveCounts{Connections: map[LiveKey]map[uint32]uint64{}}
	v := &h.cur.VIPs[0]
	for _, f := range h.flows {
		if s, ok := v.Slot(f.slot); ok && s.API != config.NoAgent && v.Protocol == vip.TCP {
			k := LiveKey{v.ID, f.server}
			if l.Connections[k] == nil {
				l.Connections[k] = map[uint32]uint64{}
			}
			l.Connections[k][NoCookie]++
		}
	}
	return l
}

func (h *holder) take(steps []*Assignment, err error) {
	var f fleet
	f.refusedOrFatal(h.t, err)
	for _, next := range steps {
		if err := Accept(h.cur, next, h.cur.Version, false); err != nil {
			h.t.Fatal(err)
		}
		again, err := Decode(next.Encode())
		if err != nil || again.Digest() != next.Digest() {
			h.t.Fatalf("version %d does not survive JSON: %v", next.Version, err)
		}
		h.cur = next
		h.packets()
	}
}

func addr(a, b, c, d byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, c, d}) }

func drawHolderConfig(t *rapid.T, protocol string, hash chash.Kind) *config.Config {
	c := &config.Config{}
	v := config.VIP{
		Settings: vip.Settings{Name: "v", Address: addr(192, 0, 2, 1), Protocol: protocol, Scheme: vip.JET, Hash: hash, WarmUp: time.Duration(rapid.SampledFrom([]int{30, 60, 120}).Draw(t, "warm_up")) * time.Second},
		Port:     443,
	}
	if chash.Kind(hash).Buckets() {
		v.Capacity = 12
	}
	if hash == chash.KindAnchor {
		v.Horizon = new(rapid.IntRange(0, 3).Draw(t, "horizon"))
	}
	for i := range 6 {
		s := config.Server{Name: fmt.Sprintf("s%d", i), Address: addr(10, 0, 1, byte(i+1))}
		if i%2 == 1 {
			s.API = config.NoAgent
		}
		c.Servers = append(c.Servers, s)
		m := config.Member{Name: s.Name, Weight: 1}
		if chash.Kind(hash).Weighted() {
			m.Weight = rapid.IntRange(1, 4).Draw(t, "weight")
		}
		switch rapid.IntRange(0, 5).Draw(t, "member") {
		case 0:
			continue
		case 1:
			m.Drain = true
		case 2:
			m.Standby = true
		}
		v.Servers = append(v.Servers, m)
	}
	if !slices.ContainsFunc(v.Servers, func(m config.Member) bool { return !m.Standby }) {
		v.Servers = append(slices.DeleteFunc(v.Servers, func(m config.Member) bool { return m.Name == "s0" }), config.Member{Name: "s0", Weight: 1})
		if chash.Kind(hash).Weighted() {
			v.Servers[len(v.Servers)-1].Weight = 2
		}
	}
	c.VIPs = []config.VIP{v}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNothingMoves: whatever is changed without force, in any order and at any
// times, no connection of scheme jet leaves its server as long as it is not
// silent for the warm-up, though a balancer remembers only what it must.
func TestNothingMoves(t *testing.T) {
	for _, protocol := range []string{vip.TCP, vip.UDP} {
		for _, hash := range []chash.Kind{chash.KindTableHRW, chash.KindAnchor, chash.KindDx, chash.KindHRW} {
			t.Run(protocol+" "+string(hash), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) { nothingMoves(t, protocol, hash) })
			})
		}
	}
}

func nothingMoves(t *rapid.T, protocol string, hash chash.Kind) {
	first, err := First(drawHolderConfig(t, protocol, hash))
	if err != nil {
		t.Fatal(err)
	}
	if first.VIPs[0].HashRows > 0 {
		first.VIPs[0].HashRows = 64 // small, so that each change matters to somebody
	}
	h := &holder{t: t, cur: first, now: time.Unix(1_800_000_000, 0), down: map[uint16]bool{}}
	h.packets()
	server := rapid.SampledFrom([]string{"s0", "s1", "s2", "s3", "s4", "s5"})
	verb := func(kind Kind) func(*rapid.T) {
		return func(t *rapid.T) {
			h.t = t
			name := server.Draw(t, "server")
			op := Op{Kind: kind, Server: name, VIP: "v", Address: addr(10, 0, 1, name[1]-'0'+1), API: config.NoAgent}
			if name[1]%2 == 0 {
				op.API = config.DefaultAPI(name)
			}
			if kind == Weight || kind == Add && chash.Kind(hash).Weighted() {
				op.Weight = rapid.IntRange(1, 4).Draw(t, "weight")
			}
			op.Standby = kind == Add && rapid.Bool().Draw(t, "standby")
			steps, _, err := Change(h.cur, h.live(), h.now, false, op)
			h.take(steps, err)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"apply": func(t *rapid.T) {
			h.t = t
			steps, _, err := Plan(drawHolderConfig(t, protocol, hash), h.cur, h.live(), h.now, false)
			h.take(steps, err)
		},
		"add": verb(Add), "drain": verb(Drain), "undrain": verb(Undrain), "remove": verb(Remove), "weight": verb(Weight),
		"health": func(t *rapid.T) {
			h.t = t
			slot := uint16(rapid.IntRange(0, 5).Draw(t, "slot"))
			h.down[slot] = !h.down[slot]
			h.packets()
		},
		"connections end": func(t *rapid.T) {
			h.flows = slices.DeleteFunc(h.flows, func(*flow) bool { return rapid.IntRange(0, 2).Draw(t, "end") > 0 })
		},
		"all connections end": func(t *rapid.T) { h.flows = nil },
		"time passes": func(t *rapid.T) {
			h.t = t
			h.now = h.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 50, 60, 130, 400, 8000}).Draw(t, "seconds")) * time.Second)
			h.packets()
		},
	})
}
