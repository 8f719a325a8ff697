package controller

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/config"
)

// handingOver is how long the last daemon may take to get a version after it
// was computed, added to the rest of a removed slot.
const handingOver = time.Minute

// Plan is the way from cur to what the file wants: a series of versions that
// follow cur, neighbours mixable, and what happens in words. Empty if nothing
// is to do; First if cur is nil. It refuses (Refusal) what would break live
// connections, unless force. Every daemon must have cur before any gets the
// first of the series.
//
// The series ends where connections must be counted anew before more can be
// said: before a VIP goes whose servers took new ones until then. Plan again
// from its end, until it is empty.
func Plan(cfg *config.Config, cur *Assignment, live LiveCounts, now time.Time, force bool) (steps []*Assignment, changes []string, err error) {
	if cur == nil {
		first, err := First(cfg)
		if err != nil {
			return nil, nil, err
		}
		return []*Assignment{first}, []string{fmt.Sprintf("version 1: the first assignment, %s", count(uint64(len(first.VIPs)), "VIP", "VIPs"))}, nil
	}
	want, err := desired(cfg)
	if err != nil {
		return nil, nil, err
	}
	p := &planner{want: want, live: live, now: now, force: force, secret: cfg.SecretBytes()}
	return p.run(cur)
}

// planner goes step by step: each step makes every change that is safe beside
// the version before it, until nothing is left to do. What a step may do to a
// slot depends on its state in the version before alone:
//
//	(free) ─▶ joining ─▶ active ⇄ draining ─▶ resting ─▶ (free)
//
// so that it takes new connections only when every daemon knows it, and rests
// only when no daemon gives it any.
type planner struct {
	want   []wanted
	live   LiveCounts
	now    time.Time
	force  bool
	secret []byte
	newKey *Key // of a rotation, until it stands in a version
	// recount: the step before was the last that these counts allow.
	recount bool

	changes []string
	refused Refusal
}

func (p *planner) refuse(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !slices.Contains(p.refused, line) {
		p.refused = append(p.refused, line)
	}
}

func (p *planner) run(cur *Assignment) (steps []*Assignment, changes []string, err error) {
	for i := range p.want {
		w := &p.want[i]
		w.byName = make(map[string][]int, len(w.members))
		for j, m := range w.members {
			w.byName[m.server] = append(w.byName[m.server], j)
		}
	}
	p.check(cur)
	if len(p.refused) > 0 {
		return nil, nil, p.refused
	}
	for {
		next := cur.Clone()
		next.Version++
		changed, err := p.step(cur, next)
		if err != nil {
			return nil, nil, err
		}
		if !changed {
			return steps, p.changes, nil
		}
		if err := errors.Join(next.Validate(), Mixable(cur, next)); err != nil {
			return nil, nil, fmt.Errorf("a fault of the planner, nothing was changed: %w", err)
		}
		// A VIP drained, dropped, added and made active, with an epoch's
		// rotation beside it, takes fewer.
		if steps = append(steps, next); len(steps) > 12 {
			return nil, nil, errors.New("a fault of the planner, nothing was changed: it comes to no end")
		}
		if p.recount {
			return steps, p.changes, nil
		}
		cur = next
	}
}

// check refuses what would break connections before anything is computed.
func (p *planner) check(cur *Assignment) {
	if p.newKey != nil {
		p.refuseRotation(cur)
	}
	for i := range cur.VIPs {
		v := &cur.VIPs[i]
		w := p.wanted(v.identity())
		why := ""
		switch {
		case w == nil:
			why = "its VIP would be removed"
		case remade(v, &w.vip):
			why = fmt.Sprintf("its VIP would change from %s to %s, which no cookie survives", form(v), form(&w.vip))
		}
		for j := range v.Slots {
			s := &v.Slots[j]
			switch {
			case why != "":
				p.refuseRemoval(v, s, why)
			case s.State == Resting || w.member(s) != nil:
			case w.named(s.Server) != nil:
				p.refuseRemoval(v, s, fmt.Sprintf("it would move from %s to %s", s.Address, w.named(s.Server).address))
			default:
				p.refuseRemoval(v, s, "it would be removed")
			}
		}
	}
}

// form is what live cookies depend on. UDP has none.
func form(v *VIP) string {
	switch {
	case v.cookies():
		return fmt.Sprintf("%s with %d bits", v.Scheme, v.CookieBits)
	case v.Protocol == config.UDP:
		return "udp"
	}
	return v.Scheme
}

// remade: a VIP whose cookies change form is taken away and made anew.
func remade(v, to *VIP) bool { return form(v) != form(to) }

func (p *planner) wanted(id identity) *wanted {
	for i := range p.want {
		if p.want[i].vip.identity() == id {
			return &p.want[i]
		}
	}
	return nil
}

// member is the wanted member that slot s stands for.
func (w *wanted) member(s *Slot) *member {
	for _, i := range w.byName[s.Server] {
		if m := &w.members[i]; m.address == s.Address {
			return m
		}
	}
	return nil
}

// named is the wanted member called server. There may be two, at its old and
// its new address, where a move stopped half way and a verb came then.
func (w *wanted) named(server string) *member {
	if at := w.byName[server]; len(at) > 0 {
		return &w.members[at[0]]
	}
	return nil
}

func (p *planner) say(next *Assignment, format string, args ...any) {
	p.changes = append(p.changes, fmt.Sprintf("version %d: ", next.Version)+fmt.Sprintf(format, args...))
}

// step turns next, a copy of cur, into the version after cur.
func (p *planner) step(cur, next *Assignment) (changed bool, err error) {
	changed = p.stepKeys(cur, next)
	blocked := p.needsSecret(cur)
	if blocked {
		changed = p.stepSecret(cur, next) || changed
	}
	settled := !p.nameLeaves(cur)
	vips := next.VIPs
	next.VIPs = nil
	for _, v := range vips {
		w := p.wanted(v.identity())
		switch {
		case w == nil || remade(&v, &w.vip):
			changed = true
			if !p.quieten(&v, next) {
				p.say(next, "vip %s: gone", v.Name)
				continue
			}
		default:
			if !settled && v.Name != w.vip.Name {
				changed = true
				break // renamed once the VIP that has a wanted name is gone
			}
			c, err := p.stepVIP(&v, w, next)
			if err != nil {
				return false, err
			}
			changed = changed || c
		}
		next.VIPs = append(next.VIPs, v)
	}
	for i := range p.want {
		w := &p.want[i]
		if cur.byIdentity(w.vip.identity()) != nil || blocked && w.vip.cookies() {
			continue
		}
		changed = true
		if !settled {
			continue
		}
		v := w.vip
		if v.ID, err = next.takeID(cur); err != nil {
			return false, err
		}
		p.say(next, "vip %s: new: %s, %s, %s, %s", v.Name, form(&v), v.Policy, v.Forwarding, count(uint64(len(w.members)), "server", "servers"))
		for j, m := range w.members {
			v.Slots = append(v.Slots, m.slot(uint16(j)))
		}
		next.VIPs = append(next.VIPs, v)
	}
	return changed, nil
}

// nameLeaves: a VIP that goes still has a name that another shall get.
func (p *planner) nameLeaves(cur *Assignment) bool {
	return slices.ContainsFunc(cur.VIPs, func(v VIP) bool {
		if w := p.wanted(v.identity()); w != nil && !remade(&v, &w.vip) {
			return false
		}
		return slices.ContainsFunc(p.want, func(w wanted) bool { return w.vip.Name == v.Name && w.vip.identity() != v.identity() })
	})
}

// quieten gives no slot of v new connections any more; false if none got any
// in the version before, so that v may go.
func (p *planner) quieten(v *VIP, next *Assignment) bool {
	busy := false
	for i := range v.Slots {
		if s := &v.Slots[i]; s.State == Active || s.State == Joining {
			s.State, busy = Draining, true
		}
	}
	if busy {
		p.recount = true
		p.say(next, "vip %s: drain all servers before it goes", v.Name)
	}
	return busy
}

// slot is m's first state in a VIP.
func (m *member) slot(number uint16) Slot {
	s := Slot{Number: number, Server: m.server, Address: m.address, API: m.api, Weight: m.weight, State: Joining}
	if m.drain {
		s.State = Draining
	}
	return s
}

// stepVIP brings v one step nearer to w. What removing and adding do to each
// other is settled by going through the slots as they were.
func (p *planner) stepVIP(v *VIP, w *wanted, next *Assignment) (changed bool, err error) {
	was := slices.Clone(v.Slots)
	changed = p.settings(v, &w.vip, next)
	for i := range v.Slots {
		s := &v.Slots[i]
		if s.State == Resting {
			continue
		}
		if m := w.member(s); m != nil {
			changed = p.keep(v, s, m, next) || changed
			continue
		}
		changed = true
		if m := w.named(s.Server); m != nil && !holds(was, m, Active, Draining) {
			continue // it moves: the old slot serves until the new one does
		}
		if s.State != Draining {
			s.State = Draining
			p.say(next, "vip %s: drain %s (slot %d)", v.Name, s.Server, s.Number)
			continue
		}
		s.State = Resting
		// Rounded up, so that it is the same after a way through JSON.
		s.RestUntil = p.now.UTC().Add(v.restFor() + time.Second - 1).Truncate(time.Second)
		p.say(next, "vip %s: remove %s: slot %d rests until %s", v.Name, s.Server, s.Number, s.RestUntil.Format(time.RFC3339))
	}
	in := map[place]bool{}
	for _, s := range v.Slots {
		if s.State != Resting {
			in[place{s.Server, s.Address}] = true
		}
	}
	for i := range w.members {
		m := &w.members[i]
		if in[place{m.server, m.address}] {
			continue
		}
		changed = true
		if err := p.join(v, m, next); err != nil {
			return false, err
		}
	}
	if changed {
		// Numbers that rested out become free, for the version after this.
		kept := v.Slots[:0:0]
		for i := range v.Slots {
			if s := v.Slots[i]; s.State != Resting || !p.restedOut(v, &s) {
				kept = append(kept, s)
			} else {
				p.say(next, "vip %s: slot %d, which was %s's, has rested and is free", v.Name, s.Number, s.Server)
			}
		}
		v.Slots = kept
	}
	return changed, nil
}

// place is who a slot stands for.
type place struct {
	server  string
	address netip.Addr
}

// restFor is how long the slot of a removed server is not reused: until no
// connection that may still speak carries a cookie that decodes to it.
func (v *VIP) restFor() time.Duration {
	c := config.VIP{CookieBits: v.CookieBits}
	return c.IdleLimit() + handingOver
}

// restedOut: no connection can name the slot any more. Live ones (removed by
// force, or opened while it was) hold it longer than its time, and so does an
// agent that does not answer.
func (p *planner) restedOut(v *VIP, s *Slot) bool {
	n, silent := p.live.of(v.ID, s.Server)
	return !s.RestUntil.After(p.now) && n == 0 && (silent == "" || !v.cookies())
}

func holds(slots []Slot, m *member, states ...State) bool {
	return slices.ContainsFunc(slots, func(s Slot) bool {
		return s.Server == m.server && s.Address == m.address && slices.Contains(states, s.State)
	})
}

// keep brings the slot of a wanted member to its weight and state.
func (p *planner) keep(v *VIP, s *Slot, m *member, next *Assignment) (changed bool) {
	if s.Weight != m.weight {
		p.say(next, "vip %s: %s: weight %d, was %d", v.Name, s.Server, m.weight, s.Weight)
		s.Weight, changed = m.weight, true
	}
	if s.API != m.api {
		p.say(next, "vip %s: %s: api %s, was %s", v.Name, s.Server, m.api, s.API)
		s.API, changed = m.api, true
	}
	switch {
	case m.drain && s.State != Draining:
		s.State, changed = Draining, true
		p.say(next, "vip %s: drain %s (slot %d)", v.Name, s.Server, s.Number)
	case !m.drain && s.State == Joining:
		s.State, changed = Active, true
		p.say(next, "vip %s: %s (slot %d) takes new connections", v.Name, s.Server, s.Number)
	case !m.drain && s.State == Draining:
		s.State, changed = Active, true
		p.say(next, "vip %s: %s (slot %d) takes new connections again", v.Name, s.Server, s.Number)
	}
	return changed
}

// join gives m a slot in v: its own that rests, or the lowest free number. v
// still has every slot of the version before, so none of those is free.
func (p *planner) join(v *VIP, m *member, next *Assignment) error {
	for i := range v.Slots {
		s := &v.Slots[i]
		if s.State == Resting && s.Server == m.server && s.Address == m.address {
			*s = m.slot(s.Number)
			p.say(next, "vip %s: add %s back in slot %d, which rested (%s, weight %d)", v.Name, m.server, s.Number, m.address, m.weight)
			return nil
		}
	}
	number, limit := 0, v.slotLimit()
	for _, s := range v.Slots {
		if int(s.Number) != number {
			break
		}
		number++
	}
	if number >= limit {
		return p.exhausted(v, m)
	}
	v.Slots = slices.Insert(v.Slots, number, m.slot(uint16(number)))
	p.say(next, "vip %s: add %s in slot %d (%s, weight %d)", v.Name, m.server, number, m.address, m.weight)
	return nil
}

// exhausted is no error if a slot is free in the version after this one.
func (p *planner) exhausted(v *VIP, m *member) error {
	var soonest time.Time
	resting, held := 0, 0
	for i := range v.Slots {
		s := &v.Slots[i]
		switch {
		case s.State != Resting:
			continue
		case p.restedOut(v, s):
			return nil
		case !s.RestUntil.After(p.now):
			held++
		case soonest.IsZero() || s.RestUntil.Before(soonest):
			soonest = s.RestUntil
		}
		resting++
	}
	remedy := "give it a VIP of its own"
	if resting > held {
		remedy = fmt.Sprintf("the next rests out at %s (in %s): wait until then",
			soonest.Format(time.RFC3339), soonest.Sub(p.now).Round(time.Second))
	} else if held > 0 {
		remedy = "wait until the live connections of a removed server end (--without it if the machine is gone)"
	}
	if v.cookies() && v.CookieBits < 15 {
		remedy += fmt.Sprintf(", or make a new VIP with cookie_bits: %d", v.CookieBits+1)
	}
	return Refusal{fmt.Sprintf("vip %s: no slot for %s: all %d of a cookie of %d bits are taken, %d in use and %d resting; %s",
		v.Name, m.server, v.slotLimit(), v.CookieBits, len(v.Slots)-resting, resting, remedy)}
}

// takeID is an ID that neither cur nor next has.
func (next *Assignment) takeID(cur *Assignment) (uint32, error) {
	used := func(id uint32) bool {
		has := func(v VIP) bool { return v.ID == id }
		return slices.ContainsFunc(next.VIPs, has) || slices.ContainsFunc(cur.VIPs, has)
	}
	id := cmp.Or(next.NextVIPID, 1)
	for range MaxVIPID {
		next.NextVIPID = id%MaxVIPID + 1
		if !used(id) {
			return id, nil
		}
		id = next.NextVIPID
	}
	return 0, Refusal{fmt.Sprintf("no more than %d VIPs; remove some", MaxVIPID)}
}
