package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/vip"
)

// complete fills in what assignments did not hold before there were hashes to
// choose from. HashRows 0 stays what it is.
func (v *VIP) complete() {
	if v.Chains() {
		return
	}
	if v.Hash == "" {
		v.Hash = vip.DefaultHash
	}
	if v.WarmUp == 0 {
		v.WarmUp = vip.MaxWarmUp(v.Protocol)
	}
}

// size fixes what a VIP with so many servers keeps for its life: twice the
// servers have rows for an even spread. Capacity, if set, is kept.
func (v *VIP) size(servers int) {
	v.HashRows = 0
	if v.Chains() {
		return
	}
	if !v.Hash.SpareNumbers() {
		v.HashRows = chash.Rows(2 * servers)
	}
	switch {
	case !v.Hash.Buckets():
		v.Capacity = 0
	case v.Capacity == 0:
		v.Capacity = min(chash.DefaultCapacity(servers, v.Horizon), v.MaxNumbers())
	}
}

// resized is what v's sizes become under the settings of w: what they are,
// unless hash or capacity change.
func (v *VIP) resized(w *wanted) (rows, capacity int) {
	old := *v
	old.complete()
	if to := &w.vip; to.Hash != old.Hash || to.Hash.Buckets() && to.Capacity != 0 && to.Capacity != old.Capacity {
		numbers := len(w.members)
		if n := len(v.Slots); n > 0 {
			numbers = max(numbers, int(v.Slots[n-1].Number)+1)
		}
		sized := *to
		sized.size(numbers)
		return sized.HashRows, sized.Capacity
	}
	return old.HashRows, old.Capacity
}

// HorizonTop is the first number that is not in the horizon of a VIP with
// hash anchor: Horizon numbers above the highest slot's, as far as Capacity
// goes. 0 for other hashes.
func (v *VIP) HorizonTop() int {
	if v.Capacity == 0 || !v.Hash.SpareNumbers() {
		return 0
	}
	top := v.Horizon
	if n := len(v.Slots); n > 0 {
		top += int(v.Slots[n-1].Number) + 1
	}
	return min(top, v.Capacity)
}

// stepHorizon keeps HorizonSteps true to the slots and the horizon that v has
// from now on. Steps whose numbers are all warm become one.
func (v *VIP) stepHorizon(now time.Time) {
	top := v.HorizonTop()
	if top == 0 {
		v.HorizonSteps = nil
		return
	}
	var steps []HorizonStep
	for _, s := range v.HorizonSteps {
		steps = append(steps, HorizonStep{uint16(min(int(s.Top), top)), s.Since})
		if int(s.Top) >= top {
			break
		}
	}
	if n := len(steps); n == 0 || int(steps[n-1].Top) < top {
		steps = append(steps, HorizonStep{uint16(top), now})
	}
	for len(steps) > 1 && !now.Before(steps[1].Since.Add(v.WarmUp)) {
		steps = steps[1:]
	}
	v.HorizonSteps = steps
}

// inHorizonSince is the Since of a slot that comes to v at now: with hash
// anchor its number may have been in the horizon before.
func (v *VIP) inHorizonSince(number uint16, now time.Time) time.Time {
	for _, s := range v.HorizonSteps {
		if number < s.Top {
			return s.Since
		}
	}
	return now
}

// warmUpWords is what people should know of a server that comes unforeseen.
// With cookies it concerns few.
func (v *VIP) warmUpWords(s *Slot, now time.Time) string {
	if v.Cookies() || !v.Scheme.Row().Foresees() || !v.Warming(s, now) {
		return ""
	}
	if s.State == Standby {
		return fmt.Sprintf(", best set to work after %s", v.WarmUntil(s).Format(time.RFC3339))
	}
	return fmt.Sprintf(", which was not in the horizon: connections opened before are held until %s", v.WarmUntil(s).Format(time.RFC3339))
}

// onceWarm says when a server that is made active takes new connections, ""
// for at once: with hash anchor it waits in the horizon for its warm-up, but
// not if none of the others came earlier.
func (v *VIP) onceWarm(s *Slot, now time.Time) string {
	if !v.Hash.SpareNumbers() || v.Cookies() && !v.Policy.Row().Hashes || !v.Warming(s, now) ||
		!slices.ContainsFunc(v.Slots, func(t Slot) bool { return t.State == Active && v.WarmUntil(&t).Before(v.WarmUntil(s)) }) {
		return ""
	}
	return fmt.Sprintf(" from %s on, when its warm-up is over", clock(v.WarmUntil(s)))
}

// clock is a time for people, never before at.
func clock(at time.Time) string {
	return at.UTC().Add(time.Second - 1).Truncate(time.Second).Format(time.RFC3339)
}

func (v *VIP) hashWords() string {
	switch v.Hash {
	case "", chash.KindTableHRW:
		return ""
	case chash.KindAnchor:
		return fmt.Sprintf(" by anchor with capacity %d and horizon %d", v.Capacity, v.Horizon)
	case chash.KindDx:
		return fmt.Sprintf(" by dx with capacity %d", v.Capacity)
	}
	return " by " + string(v.Hash)
}

// holds: connections that nobody tracked may be at s now. (Health is the
// balancers' own matter: they hold, over TCP, what a server had that is down.)
func (v *VIP) holds(s *Slot, now time.Time) bool {
	switch {
	case v.Warming(s, now):
		return false
	case s.State == Active:
		return true
	case s.State == Draining, s.State == Resting:
		return v.Protocol == vip.TCP || now.Before(s.DrainSince.Add(v.WarmUp))
	}
	return false
}

// settle ends the warm-up of servers that work while none is left that could
// hold earlier connections: those that there are, they hold themselves.
func (v *VIP) settle(now time.Time) {
	first := now
	for i := range v.Slots {
		s := &v.Slots[i]
		if v.holds(s, now) {
			return
		}
		if s.State == Active && s.Since.Before(first) {
			first = s.Since
		}
	}
	for i := range v.Slots {
		if s := &v.Slots[i]; s.State == Active && !s.Since.After(first) {
			s.Since = time.Time{}
		}
	}
}

// reweigh gives s another weight. The connections that it holds were placed
// under the one before (of changes within a warm-up, the first: for none of
// them were they tracked), and s keeps that until they are over or tracked. A
// server that holds none and gets more is new to the horizon by it.
//
// Whatever else is under way begins again, so that it comes to pass at the
// same time: a connection that stays with s by its new weight alone would not
// survive a newcomer's being held against its old one.
func (v *VIP) reweigh(s *Slot, weight int, now time.Time) {
	if v.Chains() || !v.Weighted() {
		s.Weight = weight
		return
	}
	if !v.holds(s, now) {
		if before, _ := v.HeldWeight(s, now); weight > min(before, s.Weight) {
			s.Since = now
		}
		s.Weight, s.OldWeight, s.WeightSince = weight, 0, time.Time{}
		return
	}
	held, _ := v.HeldWeight(s, now)
	for i := range v.Slots {
		t := &v.Slots[i]
		if v.Warming(t, now) {
			t.Since = now
		}
		if _, until := v.HeldWeight(t, now); !until.IsZero() {
			t.WeightSince = now
		}
	}
	s.Weight, s.OldWeight, s.WeightSince = weight, held, now
	if held == weight {
		s.OldWeight, s.WeightSince = 0, time.Time{}
	}
}

// unsure: connections may be where a weight put them that is no more, so that
// what the horizon foresaw was weighed against another.
func (v *VIP) unsure(now time.Time) bool {
	if v.Chains() {
		return false // a weight gives buckets, which stand in the table
	}
	for i := range v.Slots {
		if s := &v.Slots[i]; s.OldWeight > 0 {
			if _, until := v.HeldWeight(s, now); !until.IsZero() {
				return true
			}
		}
	}
	return false
}

// begin is to be called before s, if it holds no connection yet, may hold
// some: it was foreseen, unless weights changed lately.
func (v *VIP) begin(s *Slot, now time.Time) {
	if !v.holds(s, now) && v.unsure(now) {
		s.Since = now
	}
}

// seal forgets the times of warm-ups that are over, so that a longer warm-up
// does not begin them again.
func (v *VIP) seal(now time.Time) {
	for i := range v.Slots {
		s := &v.Slots[i]
		if !v.Warming(s, now) {
			s.Since = time.Time{}
		}
		if held, _ := v.HeldWeight(s, now); held == s.Weight {
			s.OldWeight, s.WeightSince = 0, time.Time{}
		}
	}
}

// replace begins v's hash anew under new sizes: what was moved is moved, and
// there is nothing from before to hold.
func (v *VIP) replace() {
	v.HorizonSteps = nil
	for i := range v.Slots {
		s := &v.Slots[i]
		s.Since, s.OldWeight, s.WeightSince = time.Time{}, 0, time.Time{}
	}
}

// moves says why the settings of w would move connections of v that no cookie
// places, "" if they would not.
func (p *planner) moves(v *VIP, w *wanted) string {
	old, to := *v, &w.vip
	old.complete()
	_, capacity := v.resized(w)
	from, scheme := old.Goes(), to.Goes()
	switch {
	case to.Hash != old.Hash:
		return fmt.Sprintf("its VIP would change from hash %s to %s, which moves connections", old.Hash, to.Hash)
	case capacity != old.Capacity:
		return fmt.Sprintf("its VIP would change from capacity %d to %d, which moves connections", old.Capacity, capacity)
	case byAddress(&old) != byAddress(to):
		return fmt.Sprintf("its VIP would change from affinity %s and fragments %s to %s and %s, which moves connections",
			old.Affinity, old.Fragments, to.Affinity, to.Fragments)
	case from == scheme || p.migrates(v, w):
		return ""
	case scheme.Row().Finds == vip.ByHash && scheme.Row().Tracks == vip.None:
		return fmt.Sprintf("its VIP would change from scheme %s to %s, which forgets where connections are held", old.Scheme, to.Scheme)
	case !p.calm(v):
		return fmt.Sprintf("its VIP would change from scheme %s to %s while servers drain, rest, are new or have new weights, which moves connections", old.Scheme, to.Scheme)
	}
	return ""
}

// adviseMove says what else there is than to drain every server of v for what
// moves connections.
func (p *planner) adviseMove(v *VIP) {
	var n uint64
	for i := range v.Slots {
		s := &v.Slots[i]
		c, silent := p.live.of(v.ID, s.Server)
		if uncounted(v, s, silent) != "" {
			n = 0
			break
		}
		if v.Cookies() {
			c = p.live.Connections[LiveKey{v.ID, s.Server}][NoCookie]
		}
		n += c
	}
	what := "connections"
	if n > 0 {
		what = "up to " + count(n, "connection", "connections")
	}
	p.refuse("vip %s: while all its servers drain for that, nobody answers; better make a VIP of its own with the new settings, lead clients there and remove this one, "+
		"or --force: %s that no balancer tracks then meet another server and break", v.Name, what)
}

// refuseNewcomers: Anchor has one placement for new connections and for those
// that are held, so a newcomer that was not in the horizon waits there for its
// warm-up. Were all others to be drained before, either new connections would
// find no server, or held ones another than theirs.
func (p *planner) refuseNewcomers(v *VIP, w *wanted) {
	to := &w.vip
	if p.force || !v.Hash.SpareNumbers() || !to.Hash.SpareNumbers() || !to.Scheme.Row().Foresees() || v.Cookies() && to.Scheme.Row().Finds == vip.ByCookie ||
		!slices.ContainsFunc(v.Slots, func(s Slot) bool { return v.holds(&s, p.now) }) {
		return
	}
	var soonest time.Time
	for i := range w.members {
		m := &w.members[i]
		if m.drain || m.standby {
			continue
		}
		s := Slot{Since: v.inHorizonSince(v.lowestFree(), p.stamp())}
		if j := slices.IndexFunc(v.Slots, func(s Slot) bool { return s.Server == m.server && s.Address == m.address }); j >= 0 {
			s = v.Slots[j]
		}
		if !v.Warming(&s, p.now) {
			return
		}
		if until := v.WarmUntil(&s); soonest.IsZero() || until.Before(soonest) {
			soonest = until
		}
	}
	if !soonest.IsZero() {
		p.refuse("vip %s: no server would take new connections that was in the horizon before, and with hash anchor connections that others hold would move; "+
			"let one of the others take new ones until %s, or --force", v.Name, soonest.Format(time.RFC3339))
	}
}

// byAddress: what carries no cookie is placed by its client's address.
func byAddress(v *VIP) bool { return v.Affinity == vip.Address || v.Fragments == vip.Addresses }

// calm: every connection that was placed by the hash is where the hash puts
// it now, so that it does not matter which scheme finds it.
func (p *planner) calm(v *VIP) bool {
	return !slices.ContainsFunc(v.Slots, func(s Slot) bool {
		held, _ := v.HeldWeight(&s, p.now)
		return s.State == Draining || s.State == Resting || v.Warming(&s, p.now) || held != s.Weight
	})
}

// checkWanted refuses pools that verbs make and the file could not have.
func (p *planner) checkWanted(w *wanted) {
	v := &w.vip
	standby, unequal := 0, false
	for _, m := range w.members {
		if m.standby {
			standby++
		}
		if first := w.members[0]; m.weight != first.weight && !unequal && !v.Weighted() {
			unequal = true
			p.refuse("vip %s: %s: weight %d, and %s has %d: hash %s gives every server the same; write the same for all in the file, or hash: table-hrw, and apply",
				v.Name, m.server, m.weight, first.server, first.weight, v.Hash)
		}
	}
	p.checkChains(w)
	if standby > 0 && standby == len(w.members) && !p.force {
		p.refuse("vip %s: every server would be a standby: nobody would answer; `fairlead undrain` one before, or --force", v.Name)
	}
}

// validateHash: see Validate.
func (v *VIP) validateHash() error {
	switch {
	case v.HashRows < 0 || v.HashRows > chash.MaxRows || v.HashRows&(v.HashRows-1) != 0 || v.HashRows == 1:
		return fmt.Errorf("hash_rows %d: must be a power of two, 2 to %d, or 0", v.HashRows, chash.MaxRows)
	case v.Chains() && (v.HashRows != 0 || len(v.HorizonSteps) > 0):
		return fmt.Errorf("hash_rows %d and %d horizon steps: scheme %s goes by buckets and has none of them", v.HashRows, len(v.HorizonSteps), v.Scheme)
	case v.Chains():
		return nil
	}
	top := 0
	for i, s := range v.HorizonSteps {
		if int(s.Top) <= top || i > 0 && s.Since.Before(v.HorizonSteps[i-1].Since) {
			return fmt.Errorf("horizon step %d (below %d since %s) is not after the one before", i, s.Top, s.Since.Format(time.RFC3339))
		}
		top = int(s.Top)
	}
	if top != v.HorizonTop() {
		return fmt.Errorf("horizon steps end at %d, must end at %d", top, v.HorizonTop())
	}
	return nil
}
