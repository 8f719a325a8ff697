package controller

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// change draws a verb or a file and plans it. agents: even servers have one.
func (h *holder) change(t *rapid.T, protocol string, hash chash.Kind, agents bool) ([]*Assignment, error) {
	if rapid.IntRange(0, 3).Draw(t, "file") == 0 {
		c := drawHolderConfig(t, protocol, hash)
		for i := range c.Servers {
			if !agents {
				c.Servers[i].API = config.NoAgent
			}
		}
		steps, _, err := Plan(c, h.cur, h.live(), h.now, false)
		return steps, err
	}
	name := rapid.SampledFrom([]string{"s0", "s1", "s2", "s3", "s4", "s5"}).Draw(t, "server")
	op := Op{Kind: rapid.SampledFrom([]Kind{Add, Drain, Undrain, Remove, Weight}).Draw(t, "verb"), Server: name, VIP: "v",
		Address: addr(10, 0, 1, name[1]-'0'+1), API: config.NoAgent}
	if agents && name[1]%2 == 0 {
		op.API = config.DefaultAPI(name)
	}
	if op.Kind == Weight || op.Kind == Add && chash.Kind(hash).Weighted() {
		op.Weight = rapid.IntRange(1, 4).Draw(t, "weight")
	}
	op.Standby = op.Kind == Add && rapid.Bool().Draw(t, "standby")
	steps, _, err := Change(h.cur, h.live(), h.now, false, op)
	return steps, err
}

func drawHolder(t *rapid.T, protocol string, hash chash.Kind) *holder {
	first, err := First(drawHolderConfig(t, protocol, hash))
	if err != nil {
		t.Fatal(err)
	}
	if first.VIPs[0].HashRows > 0 {
		first.VIPs[0].HashRows = 64
	}
	return &holder{t: t, cur: first, now: time.Unix(1_800_000_000, 0), down: map[uint16]bool{}}
}

func eachHolder(t *testing.T, f func(t *rapid.T, protocol string, hash chash.Kind)) {
	for _, protocol := range []string{vip.TCP, vip.UDP} {
		for _, hash := range []chash.Kind{chash.KindTableHRW, chash.KindAnchor, chash.KindDx, chash.KindHRW} {
			t.Run(protocol+" "+string(hash), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) { f(t, protocol, hash) })
			})
		}
	}
}

// TestFollowAtOnce: a balancer that gets each version when it is made has the
// assignment's own sets.
func TestFollowAtOnce(t *testing.T) {
	eachHolder(t, func(t *rapid.T, protocol string, hash chash.Kind) {
		h := drawHolder(t, protocol, hash)
		// No agents: what they count lets a drain end early, and a balancer
		// cannot know that.
		for i := range h.cur.VIPs[0].Slots {
			h.cur.VIPs[0].Slots[i].API = config.NoAgent
		}
		own := Follow(nil, h.cur, h.now)
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			h.now = h.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 50, 60, 130, 400, 8000}).Draw(t, "seconds")) * time.Second)
			steps, err := h.change(t, protocol, hash, false)
			var f fleet
			f.refusedOrFatal(t, err)
			for _, next := range steps {
				before := own
				own = Follow(own, next, h.now)
				v, w := &next.VIPs[0], &own.VIPs[0]
				for i := range v.Slots {
					s, o := &v.Slots[i], &w.Slots[i]
					a, _ := v.HeldWeight(s, h.now)
					b, _ := w.HeldWeight(o, h.now)
					if !v.WarmUntil(s).Equal(w.WarmUntil(o)) && (v.Warming(s, h.now) || w.Warming(o, h.now)) || s.State != o.State || a != b || v.holds(s, h.now) != w.holds(o, h.now) {
						t.Fatalf("version %d at %s: slot %d:\nfrom %s\nown %s\nbut %s", next.Version, h.now.Format(time.TimeOnly), s.Number, show1(before), show1(own), show1(next))
					}
				}
				h.cur = next
			}
		}
	})
}

// TestFollowLate: a balancer whose daemon is away while versions are made,
// for however long, breaks no connection of its own when it catches up.
func TestFollowLate(t *testing.T) {
	eachHolder(t, func(t *rapid.T, protocol string, hash chash.Kind) {
		h := drawHolder(t, protocol, hash)
		// late is the balancer; it goes by what it had when it was last there.
		late := &holder{t: t, cur: Follow(nil, h.cur, h.now), down: map[uint16]bool{}}
		told, there := h.cur, true
		packets := func() {
			// What is in its maps stays while it is away; packets come.
			if late.now = h.now; there {
				late.applied = h.now
			}
			late.packets()
		}
		catchUp := func(next *Assignment) {
			late.cur = Follow(late.cur, next, h.now)
			if err := late.cur.Validate(); err != nil {
				t.Fatalf("own version %d: %v", next.Version, err)
			}
			told = next
			packets()
		}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				if there = !there; there {
					catchUp(h.cur)
				}
			case 1, 2:
				h.flows = late.flows // agents count them
				steps, err := h.change(t, protocol, hash, true)
				var f fleet
				f.refusedOrFatal(t, err)
				for _, next := range steps {
					if !there && Mixable(told, next) != nil {
						there = true // refused until it is started
						catchUp(h.cur)
					}
					if h.cur = next; there {
						catchUp(next)
					}
				}
			case 3:
				late.flows = slices.DeleteFunc(late.flows, func(*flow) bool { return rapid.IntRange(0, 2).Draw(t, "end") > 0 })
			case 4:
				h.now = h.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 50, 60, 130, 400, 8000}).Draw(t, "seconds")) * time.Second)
			}
			packets()
		}
	})
}
