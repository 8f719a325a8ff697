package controller

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/vip"
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
	p := &planner{want: want, live: live, now: now, force: force, secret: cfg.SecretBytes(), sources: sources(cfg), fromFile: true}
	return p.run(cur)
}

// planner goes step by step: each step makes every change that is safe beside
// the version before it, until nothing is left to do. What a step may do to a
// slot depends on its state in the version before alone:
//
//	(free) ─▶ joining ─▶ active ⇄ draining ─▶ resting ─▶ (free)
//	(free) ⇄ standby ─▶ active, resting ─▶ active, draining ─▶ standby
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
	// sources are the file's (see Assignment.Sources); a verb has
	// no file and leaves those that there are.
	sources  []netip.Prefix
	fromFile bool
	// tidies: slots whose rest is over are reason enough for a version.
	tidies bool
	cur    *Assignment // what the step that is being made follows
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
		if len(p.refused) > 0 {
			return nil, nil, p.refused
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
	p.cur = cur
	if p.newKey != nil {
		p.refuseRotation(cur)
	}
	for i := range p.want {
		p.checkWanted(&p.want[i])
	}
	for i := range cur.VIPs {
		v := &cur.VIPs[i]
		w := p.target(v)
		why, moves, lasts := "", "", ""
		switch {
		case w == nil:
			why = "its VIP would be removed"
		case p.anew(v, w):
			why = fmt.Sprintf("its VIP would change from %s to %s, which no connection survives", form(v), form(&w.vip))
			lasts = p.whyNot(v, w)
		case v.Bucketed() && v.Buckets.Len() != w.buckets:
			p.refuse("vip %s: buckets: %d, was %d: it is fixed for the VIP's life, since another number moves every connection; write %d, or make a VIP of its own with %d",
				v.Name, w.buckets, v.Buckets.Len(), v.Buckets.Len(), w.buckets)
			continue
		default:
			moves = p.moves(v, w)
			p.refuseNewcomers(v, w)
		}
		before := len(p.refused)
		for j := range v.Slots {
			s := &v.Slots[j]
			switch {
			case why != "":
				p.refuseRemoval(v, s, why)
			case moves != "":
				p.refuseMove(v, s, moves, "drain all (the last with --force), and apply")
			case w.member(s) != nil && w.member(s).standby && s.State != Standby:
				p.refuseMove(v, s, "it would become a standby", "drain it, and apply")
			case s.State == Resting || w.member(s) != nil:
			case v.Chains() && p.refuseOwner(v, s):
			case w.named(s.Server) != nil:
				p.refuseRemoval(v, s, fmt.Sprintf("it would move from %s to %s", s.Address, w.named(s.Server).address))
			default:
				p.refuseRemoval(v, s, "it would be removed")
			}
		}
		if lasts != "" && len(p.refused) > before {
			p.refuse("vip %s: it cannot migrate from %s to %s with its connections: %s", v.Name, v.Scheme, w.vip.Scheme, lasts)
		}
		if why != "" && v.Chains() && len(p.refused) > before {
			how := ""
			if v.Scheme.Row().Switched {
				how = " (`fairlead drain` of every switch withdraws the routes of all VIPs)"
			}
			p.refuse("vip %s: while all its servers drain they go on taking new connections, as their buckets have nowhere to go; "+
				"lead its clients elsewhere first%s", v.Name, how)
		}
		if takes := func(s Slot) bool { return s.State == Active }; moves != "" && !p.force && slices.ContainsFunc(v.Slots, takes) {
			p.adviseMove(v)
		}
	}
}

// form is how v finds its connections, in words.
func form(v *VIP) string {
	switch {
	case v.Cookies():
		return cookieForm(v)
	case v.Scheme.Row().Finds == vip.ByCookie: // on UDP
		return "udp"
	case v.Protocol == vip.UDP:
		return "udp " + string(v.Scheme)
	}
	return string(v.Scheme)
}

// cookieForm is what live cookies depend on, "" if there are none.
func cookieForm(v *VIP) string {
	if !v.Cookies() {
		return ""
	}
	width := fmt.Sprintf("%d bits", v.CookieBits)
	if v.TierBits() != 0 {
		width += fmt.Sprintf(", %d of a tier", v.TierBits())
	}
	if v.SeatBits != 0 {
		width += fmt.Sprintf(", %d of a seat", v.SeatBits)
	}
	if v.Carrier != "" {
		return fmt.Sprintf("%s over %s with %s", v.Scheme, v.Carrier, width)
	}
	return fmt.Sprintf("%s with %s", v.Scheme, width)
}

// remade: a VIP whose cookies change form, or that had or gets none, migrates
// (migrate.go), or is taken away and made anew; so is one whose packets begin or cease
// to be passed on, or are by others.
func remade(v, to *VIP) bool { return cookieForm(v) != cookieForm(to) || chainForm(v) != chainForm(to) }

// chainForm is the scheme by which packets are passed on from server to
// server, "" if they are not.
func chainForm(v *VIP) string {
	if v.Chains() {
		return string(v.Scheme)
	}
	return ""
}

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
	p.cur = cur
	changed = p.stepKeys(cur, next)
	changed = p.stepSources(next) || changed
	blocked := p.needsSecret(cur)
	if blocked {
		changed = p.stepSecret(cur, next) || changed
	}
	settled := !p.nameLeaves(cur)
	vips := next.VIPs
	next.VIPs = nil
	for _, v := range vips {
		w := p.target(&v)
		switch {
		case w == nil || p.anew(&v, w):
			changed = true
			if !p.quieten(&v, next) {
				p.say(next, "vip %s: gone", v.Name)
				continue
			}
		default:
			if !settled && v.Name != w.vip.Name && !v.Migration.under() {
				changed = true
				break // renamed once the VIP that has a wanted name is gone
			}
			migrates, only := p.stepMigration(&v, w, next)
			if changed = migrates || changed; only {
				break
			}
			changed = p.stepVIP(&v, w, next) || changed
			changed = p.stepTiers(&v, w, next) || changed
		}
		next.VIPs = append(next.VIPs, v)
	}
	for i := range p.want {
		w := &p.want[i]
		if cur.byIdentity(w.vip.identity()) != nil || blocked && w.vip.Cookies() {
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
		v.size(len(w.members))
		p.say(next, "vip %s: new: %s%s, %s, %s, %s", v.Name, form(&v), v.hashWords(), v.Policy, v.Forwarding, count(uint64(len(w.members)), "server", "servers"))
		for j, m := range w.members {
			s := m.slot(uint16(j))
			s.Version = next.Version
			v.Slots = append(v.Slots, s)
		}
		v.TierTwo = w.tierSlots(next.Version, func(s State) State { return s })
		v.stepHorizon(time.Time{})
		if v.Chains() {
			v.Buckets = buckets.New(w.buckets, v.BucketServers())
			p.likeOthers(&v, next)
		}
		next.VIPs = append(next.VIPs, v)
	}
	p.shareTable(next)
	return changed, nil
}

// target is what v becomes next, nil: it goes.
func (p *planner) target(v *VIP) *wanted {
	w := p.wanted(v.identity())
	if w == nil {
		return nil
	}
	return p.via(v, w)
}

// anew: v is taken away, and made anew as w.
func (p *planner) anew(v *VIP, w *wanted) bool { return remade(v, &w.vip) && p.whyNot(v, w) != "" }

// nameLeaves: a VIP that goes, or is not renamed in this step, still has a name that another
// shall get.
func (p *planner) nameLeaves(cur *Assignment) bool {
	return slices.ContainsFunc(cur.VIPs, func(v VIP) bool {
		if w := p.target(&v); w != nil && !p.anew(&v, w) && (w.vip.Name == v.Name || !v.Migration.under() && !p.keysFirst(&v, w)) {
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
			p.drain(s)
			busy = true
		}
	}
	if busy {
		p.recount = true
		p.say(next, "vip %s: drain all servers before it goes", v.Name)
	}
	return busy
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
