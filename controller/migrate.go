package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// Stage is how far a VIP's migration is.
//
// To a scheme with cookies:
//
//	collect ─▶ both ─▶ (over)
//
// From one:
//
//	place ─▶ collect ─▶ ending ─▶ (over)
//
// Stages but the last follow each other like the versions of any series: the next
// comes when every daemon has the one before. The last lasts as long as connections
// live that were opened before.
type Stage string

const (
	// StagePlace: balancers place what is new as the scheme to come does, and enter
	// that into their flow tables; all that goes on they find by its cookie.
	StagePlace Stage = "place"
	// StageCollect: every balancer asks every agent which connections its server has,
	// and enters them into its flow table, before it says that it has this version.
	// To cookies, agents stamp already what is opened from now on, and balancers go by
	// the old scheme still. From cookies, it is the other way round.
	StageCollect Stage = "collect"
	// StageBoth: balancers go by an entry where there is one, else by the cookie.
	StageBoth Stage = "both"
	// StageEnding: agents stamp nothing new, and go on undoing what they stamped.
	StageEnding Stage = "ending"
)

// Migration is a VIP's way to its scheme from one whose connections are found
// otherwise.
type Migration struct {
	// From are the settings before; of them what a connection is found by counts.
	From  vip.Settings `json:"from"`
	Stage Stage        `json:"stage"`
	// Version is the one that it began with, Staged that of its stage, which began Since.
	Version uint64    `json:"version"`
	Staged  uint64    `json:"staged,omitempty"` // 0: an earlier build began it
	Since   time.Time `json:"since"`
}

// toCookies is the migration's direction.
func (m *Migration) toCookies() bool { return !m.From.Cookies() }

// lasting: its stage ends with connections, not with a version.
func (m *Migration) lasting() bool { return m.Stage == StageBoth || m.Stage == StageEnding }

// under: it is at a stage that ends with its version.
func (m *Migration) under() bool { return m != nil && !m.lasting() }

// with is s, but found as in from.
func with(s, from vip.Settings) vip.Settings {
	s.Scheme, s.Policy, s.Share = from.Scheme, from.Policy, from.Share
	s.CookieBits, s.SeatBits, s.Carrier = from.CookieBits, from.SeatBits, from.Carrier
	return s
}

// AtBalancers is the VIP as balancers go by it at this stage of its migration, v itself
// where it does not migrate.
func (v *VIP) AtBalancers() VIP {
	w := *v
	switch m := v.Migration; {
	case m == nil:
	case m.toCookies() && m.Stage == StageCollect:
		w.Settings = with(v.Settings, m.From)
	case m.Stage == StagePlace:
		w.Settings = with(v.Settings, m.From)
		w.Policy = vip.ByTheHash
	}
	return w
}

// AtAgents is the same of agents.
func (v *VIP) AtAgents() VIP {
	w := *v
	if m := v.Migration; m != nil && !m.toCookies() {
		w.Settings = with(v.Settings, m.From)
	}
	return w
}

// EntriesFirst: at balancers, an entry of the flow table counts more than a cookie,
// which what was opened before has by chance alone.
func (v *VIP) EntriesFirst() bool {
	return v.Migration != nil && v.Migration.Stage == StageBoth
}

// Enters: balancers enter what is opened, and go by cookies.
func (v *VIP) Enters() bool { return v.Migration != nil && v.Migration.Stage == StagePlace }

// Unstamps: agents stamp no connection that is opened from now on.
func (v *VIP) Unstamps() bool { return v.Migration != nil && v.Migration.Stage == StageEnding }

// Collects: balancers need the connections that servers have, before they say that they
// have this version or, at later stages, in case they do not have them yet.
func (v *VIP) Collects() bool { return v.Migration != nil && v.Migration.Stage != StagePlace }

// AtBalancers is the assignment as balancers go by it.
func (a *Assignment) AtBalancers() *Assignment { return a.as((*VIP).AtBalancers) }

// AtAgents is the assignment as agents go by it.
func (a *Assignment) AtAgents() *Assignment { return a.as((*VIP).AtAgents) }

func (a *Assignment) as(which func(*VIP) VIP) *Assignment {
	if !slices.ContainsFunc(a.VIPs, func(v VIP) bool { return v.Migration != nil }) {
		return a
	}
	own := *a
	own.VIPs = slices.Clone(a.VIPs)
	for i := range own.VIPs {
		own.VIPs[i] = which(&own.VIPs[i])
	}
	return &own
}

// balancersForm is the form of cookies that balancers decode, agentsForm that of
// those which agents undo, stampsForm of those which they give.
func balancersForm(v *VIP) string {
	w := v.AtBalancers()
	return cookieForm(&w)
}

func agentsForm(v *VIP) string {
	w := v.AtAgents()
	return cookieForm(&w)
}

func stampsForm(v *VIP) string {
	if v.Unstamps() {
		return ""
	}
	return agentsForm(v)
}

// mixableForms: what balancers decode in one version agents stamp in the other.
func mixableForms(v, w *VIP) bool {
	decodes := balancersForm(v)
	return (decodes == "" || decodes == stampsForm(w)) && chainForm(v) == chainForm(w)
}

// validateMigration: see Validate.
func (v *VIP) validateMigration() error {
	m := v.Migration
	if m == nil {
		return nil
	}
	stages := []Stage{StagePlace, StageCollect, StageEnding}
	if m.toCookies() {
		stages = []Stage{StageCollect, StageBoth}
	}
	if !slices.Contains(stages, m.Stage) {
		return fmt.Errorf("migration from %s to %s: stage %q is unknown to this version", m.From.Scheme, v.Scheme, m.Stage)
	}
	if m.From.Cookies() == v.Cookies() || v.Chains() || m.From.Chains() {
		return fmt.Errorf("migration from %s to %s: there is no such way", m.From.Scheme, v.Scheme)
	}
	w := VIP{Settings: with(v.Settings, m.From)}
	if n := len(v.Slots); n > 0 && int(v.Slots[n-1].Number) >= w.MaxNumbers() {
		return fmt.Errorf("migration from %s: slot %d: at most %d", m.From.Scheme, v.Slots[n-1].Number, w.MaxNumbers()-1)
	}
	if found := w.Check(vip.Size{}, nil); len(found) > 0 {
		return fmt.Errorf("migration: %w", found[0])
	}
	return nil
}

// via is what v becomes first on its way to w, w itself if that is one migration. Cookies
// of two forms have scheme jet between them.
func (p *planner) via(v *VIP, w *wanted) *wanted {
	if v.Migration != nil && cookieForm(&w.vip) != cookieForm(v) {
		// What is under way is finished first.
		between := *w
		between.vip.Settings = v.Settings
		between.vip.Name = w.vip.Name
		return &between
	}
	if cookieForm(v) == "" || cookieForm(&w.vip) == "" || cookieForm(v) == cookieForm(&w.vip) || p.whyNot(v, w) != "" {
		return w
	}
	return between(v, w)
}

// between is what lies between cookies of two forms.
func between(v *VIP, w *wanted) *wanted {
	between := *w
	s := &between.vip.Settings
	s.Scheme, s.Policy, s.CookieBits, s.SeatBits, s.Carrier, s.Handshake = vip.JET, vip.ByTheHash, v.CookieBits, 0, "", ""
	return &between
}

// whyNot says why v cannot become w while its connections live, "" if it can.
func (p *planner) whyNot(v *VIP, w *wanted) string {
	to := &w.vip
	switch {
	case v.Protocol != vip.TCP:
		return "only TCP connections can be listed by their servers"
	case v.Chains() || to.Chains():
		return fmt.Sprintf("no way leads between scheme %s and %s: make a VIP of its own with the new scheme, and lead clients there", v.Scheme, to.Scheme)
	case v.TierBits() != 0 || to.TierBits() != 0:
		return "tiers: a VIP with two tiers cannot change how cookies name them"
	case v.Cookies() && to.Cookies():
		return p.whyNot(v, between(v, w))
	case to.Goes().Row().Forgets():
		return fmt.Sprintf("scheme %s finds no connection that another scheme placed; scheme jet does", to.Scheme)
	case v.Offloads() || to.Offloads():
		return "handshake: offload: agents' SYN cookies have the form of the scheme; write handshake: stack, apply, and then change the scheme"
	}
	old := *v
	old.complete()
	if _, capacity := v.resized(w); to.Hash != old.Hash || capacity != old.Capacity || byAddress(&old) != byAddress(to) {
		return "hash, capacity, affinity or fragments would change with it; change the scheme alone, and these when its migration is over"
	}
	if n := len(v.Slots); n > 0 && int(v.Slots[n-1].Number) >= to.MaxNumbers() {
		return fmt.Sprintf("slot %d is in use, and cookie_bits: %d name slots below %d; write more", v.Slots[n-1].Number, to.CookieBits, to.MaxNumbers())
	}
	for i := range v.Slots {
		s := &v.Slots[i]
		if !s.worked() {
			continue
		}
		if s.API == config.NoAgent {
			return fmt.Sprintf("%s: its api is none, so nobody can say which connections it has; run `fairlead host` there and name its api", s.Server)
		}
		if why, silent := p.live.Silent[s.Server]; silent {
			return fmt.Sprintf("%s: its agent does not answer (%s), so nobody can say which connections it has; start it, or take the server out if the machine is gone (`fairlead remove --force --without %s %s`)", s.Server, why, s.Server, s.Server)
		}
	}
	return ""
}

// migrates: v changes how its connections are found, and they live on.
func (p *planner) migrates(v *VIP, w *wanted) bool {
	return remade(v, &w.vip) && p.whyNot(v, w) == ""
}

// keysFirst: v migrates to w when the keys are as they shall be.
func (p *planner) keysFirst(v *VIP, w *wanted) bool {
	return v.Migration == nil && (p.cur.StampEpoch != p.cur.newest().Epoch || p.needsSecret(p.cur)) && p.migrates(v, w)
}

// stepMigration brings v a stage further, or begins its migration to w. What else w
// wants comes when all daemons know the last stage.
func (p *planner) stepMigration(v *VIP, w *wanted, next *Assignment) (changed, only bool) {
	m := v.Migration
	switch {
	case p.keysFirst(v, w):
		return false, true
	case m == nil && p.migrates(v, w):
		from := v.Settings
		p.settings(v, w, next)
		v.settle(p.now)
		v.stepHorizon(p.stamp())
		stage := StagePlace
		if !from.Cookies() {
			stage = StageCollect
		}
		v.Migration = &Migration{From: from, Stage: stage, Version: next.Version, Staged: next.Version, Since: p.stamp()}
	case m == nil:
		return false, false
	case m.lasting():
		return p.endMigration(v, next), false
	default:
		n := *m
		n.Staged, n.Since = next.Version, p.stamp()
		n.Stage = map[Stage]Stage{StagePlace: StageCollect, StageCollect: StageEnding}[m.Stage]
		if m.toCookies() {
			n.Stage = StageBoth
		}
		v.Migration = &n
	}
	p.say(next, "vip %s: %s", v.Name, v.Migration.words(v))
	p.recount = p.recount || v.Migration.lasting()
	return true, true
}

// words are what happens at a stage.
func (m *Migration) words(v *VIP) string {
	switch {
	case m.Stage == StagePlace:
		return fmt.Sprintf("migrates from %s to %s: balancers place new connections as scheme %s does, and remember them", m.From.Scheme, v.Scheme, v.Scheme)
	case m.Stage == StageCollect && m.toCookies():
		return fmt.Sprintf("migrates from %s to %s: agents stamp new connections, and balancers enter those that servers have", m.From.Scheme, v.Scheme)
	case m.Stage == StageCollect:
		return "balancers enter the connections that servers have, and go by them"
	case m.Stage == StageBoth:
		return "balancers go by cookies, and by their entries for what was opened before"
	}
	return "agents stamp no new connections, and keep the cookies of those that have one"
}

// rush is how long --force does not end a migration: the change that began it is not
// the one that gives its connections up. Nor is a verb's, which is about something else,
// but for a rotation, which has to come behind it.
const rush = 30 * time.Second

// endMigration ends it when no connection lives that was opened before.
func (p *planner) endMigration(v *VIP, next *Assignment) bool {
	m := v.Migration
	forced := p.force && (p.fromFile || p.newKey != nil) && !p.now.Before(m.Since.Add(rush))
	if n, why := p.earlier(v); (n > 0 || why != "") && !forced {
		return false
	}
	p.say(next, "vip %s: its migration from %s to %s is over", v.Name, m.From.Scheme, v.Scheme)
	v.Migration = nil
	return true
}

// earlier counts the connections of v that were opened before its migration, as far as
// agents answer; why is the first that does not.
func (p *planner) earlier(v *VIP) (n uint64, why string) {
	asked := map[string]bool{}
	for i := range v.Slots {
		s := &v.Slots[i]
		if asked[s.Server] || s.API == config.NoAgent {
			continue
		}
		asked[s.Server] = true
		if silent, is := p.live.Silent[s.Server]; is {
			if s.State != Resting && why == "" {
				why = s.Server + ": " + silent
			}
			continue
		}
		key, stamped := LiveKey{v.ID, s.Server}, uint64(0)
		for epoch, c := range p.live.Connections[key] {
			if epoch != NoCookie && !v.Migration.toCookies() {
				stamped += c
			}
		}
		had, says := p.live.Earlier[key]
		if !says && s.worked() && why == "" {
			why = s.Server + ": its agent does not say how many it has of before"
		}
		n += max(had, stamped)
	}
	return n, why
}

// Waits says that cfg has a VIP be something else than what its migration in a ends in, so
// that more is to come when that is over. It is false for a cfg that cannot be planned.
func Waits(cfg *config.Config, a *Assignment) bool {
	want, err := desired(cfg)
	if err != nil {
		return false
	}
	for i := range want {
		w := &want[i].vip
		if v := a.byIdentity(w.identity()); v != nil && v.Migration != nil && remade(v, w) {
			return true
		}
	}
	return false
}

// Migrating says that a VIP of a migrates, so that time alone may change it.
func (a *Assignment) Migrating() bool {
	return slices.ContainsFunc(a.VIPs, func(v VIP) bool { return v.Migration != nil })
}

// Migrations says, for people, which VIPs migrate and what they wait for.
func (a *Assignment) Migrations(live LiveCounts) (lines []string) {
	p := &planner{live: live}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if v.Migration == nil {
			continue
		}
		line := fmt.Sprintf("VIP %s migrates from scheme %s to %s", v.Name, v.Migration.From.Scheme, v.Scheme)
		switch n, why := p.earlier(v); {
		case !v.Migration.lasting():
		case why != "":
			line += ", and it is not known whether connections of before live: " + why
		default:
			line += fmt.Sprintf(": %s live that were opened before", count(n, "connection", "connections"))
		}
		lines = append(lines, line)
	}
	return lines
}
