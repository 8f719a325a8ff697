package controller

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/fairlead/fairlead/vip"
)

// settings takes over what may change in place: it concerns new connections,
// or, like the forwarding, is understood by every daemon of a version before
// (TunnelsMayLag).
func (p *planner) settings(v *VIP, w *wanted, next *Assignment) (changed bool) {
	to, old, name := &w.vip, *v, v.Name
	old.complete()
	rows, capacity := v.resized(w)
	set := func(what string, from, to any) {
		if reflect.DeepEqual(from, to) {
			return
		}
		changed = true
		p.say(next, "vip %s: %s %s, was %s", name, what, show(to), show(from))
	}
	set("name", v.Name, to.Name)
	set("scheme", v.Scheme, to.Scheme)
	set("policy", v.Policy, to.Policy)
	set("affinity", v.Affinity, to.Affinity)
	set("forwarding", v.Forwarding, to.Forwarding)
	set("steer", cmp.Or(v.Steer, vip.SteerOff), cmp.Or(to.Steer, vip.SteerOff))
	set("handshake", v.Handshakes(), to.Handshakes())
	set("tiers", tiersWords(v), tiersWords(to))
	set("rates", v.Rates.String(), to.Rates.String())
	set("fragments", v.Fragments, to.Fragments)
	set("icmp_echo", v.ICMPEcho, to.ICMPEcho)
	set("mss_clamp", v.MSSClamp, to.MSSClamp)
	set("health", v.Health, to.Health)
	if to.Hash == old.Hash {
		set("capacity", old.Capacity, capacity)
	} else if hash := to.Hash; capacity > 0 {
		set("hash", old.Hash, fmt.Sprintf("%s with capacity %d", hash, capacity))
	} else {
		set("hash", old.Hash, hash)
	}
	set("horizon", old.Horizon, to.Horizon)
	set("warm_up", old.WarmUp, to.WarmUp)
	set("share", old.Share, to.Share)
	set("chain_time", old.ChainTime, to.ChainTime)
	set("mptcp", old.MPTCP, to.MPTCP)
	set("announce", old.Announces(), to.Announces())
	set("communities", old.Communities, to.Communities)
	set("med", old.MED, to.MED)
	if to.WarmUp != old.WarmUp {
		v.seal(p.now)
	}
	if to.Hash != old.Hash || capacity != old.Capacity {
		v.replace()
	}
	id, slots, steps, table, tier, migration := v.ID, v.Slots, v.HorizonSteps, v.Buckets, v.TierTwo, v.Migration
	*v = *to
	v.ID, v.Slots, v.HorizonSteps, v.Buckets, v.TierTwo, v.Migration = id, slots, steps, table, tier, migration
	v.HashRows, v.Capacity = rows, capacity
	return changed
}

// tiersWords is what may change of a VIP's tiers in place.
func tiersWords(v *VIP) string {
	if v.TierBits() == 0 {
		return "none"
	}
	return "by " + string(v.Tiers.Forwarding)
}

func show(v any) string {
	h, isHealth := v.(*vip.Health)
	switch {
	case !isHealth:
		return fmt.Sprint(v)
	case h == nil:
		return "none"
	}
	return fmt.Sprintf("%s port %d%s every %s (timeout %s, rise %d, fall %d)", h.Type, h.Port, h.Path, h.Interval, h.Timeout, h.Rise, h.Fall)
}

// stepKeys moves a rotation on: first the new key is handed out (and the
// oldest dropped), and when every daemon has it, hosts stamp under it. A
// rotation that stopped half way goes on with whatever is planned next.
func (p *planner) stepKeys(cur, next *Assignment) bool {
	newest := cur.newest()
	switch {
	case cur.StampEpoch != newest.Epoch:
		next.StampEpoch = newest.Epoch
		p.say(next, "new connections are stamped under epoch %d", newest.Epoch)
	case p.newKey != nil:
		p.newKey.Epoch = newest.Epoch + 1
		next.Keys = []Key{newest, *p.newKey}
		p.newKey = nil
		p.say(next, "key of epoch %d handed out beside %d's", newest.Epoch+1, newest.Epoch)
		if len(cur.Keys) == 2 {
			p.say(next, "epoch %d no longer decodes", cur.Keys[0].Epoch)
		}
	default:
		return false
	}
	return true
}

// needsSecret: the first VIP with cookies comes to an assignment that was
// made without a secret, so a key that decodes is known to everybody.
func (p *planner) needsSecret(cur *Assignment) bool {
	return p.secret != nil && slices.ContainsFunc(cur.Keys, publicKey) &&
		slices.ContainsFunc(p.want, func(w wanted) bool { return w.vip.Cookies() })
}

// stepSecret replaces a key that everybody knows; nothing is stamped yet, so
// the old one may be dropped as soon as no daemon stamps under it.
func (p *planner) stepSecret(cur, next *Assignment) bool {
	newest := cur.newest()
	switch {
	case cur.StampEpoch != newest.Epoch:
		return false // stepKeys is at it
	case publicKey(newest):
		epoch := newest.Epoch + 1
		next.Keys = []Key{newest, {Epoch: epoch, Secret: deriveKey(p.secret, epoch)}}
		p.say(next, "key of epoch %d handed out: the first from the secret", epoch)
	default:
		next.Keys = []Key{newest}
		p.say(next, "epoch %d, made without a secret, no longer decodes", cur.Keys[0].Epoch)
	}
	return true
}
