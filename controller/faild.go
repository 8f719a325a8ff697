package controller

import (
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// All VIPs of scheme faild go by one switch's nexthops, so that their servers
// have the same numbers and their tables are one.

// lead is the VIP of scheme faild in a whose table all have: the oldest one
// that stays. nil: there is none.
func (p *planner) lead(a *Assignment) *VIP {
	var lead *VIP
	stays := false
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !v.Scheme.Row().Switched {
			continue
		}
		w := p.wanted(v.identity())
		if s := w != nil && !remade(v, &w.vip); lead == nil || s && !stays {
			lead, stays = v, s
		}
	}
	return lead
}

// likeOthers gives v, which is new, the slots of the VIPs of its kind that
// there are.
func (p *planner) likeOthers(v *VIP, next *Assignment) {
	lead := p.lead(next)
	if !v.Scheme.Row().Switched || lead == nil {
		return
	}
	v.Slots, v.Buckets = slices.Clone(lead.Slots), lead.Buckets
	for i := range v.Slots {
		s := &v.Slots[i]
		s.Version = next.Version
		if s.State == Active {
			s.State = Joining // no daemon knows it in this VIP
		}
	}
}

// shareTable makes next's VIPs of scheme faild go by one table.
func (p *planner) shareTable(next *Assignment) {
	lead := p.lead(next)
	for i := range next.VIPs {
		if v := &next.VIPs[i]; v.Scheme.Row().Switched && v.Buckets.Len() == lead.Buckets.Len() {
			v.Buckets = lead.Buckets
		}
	}
}

// ownsAny is what agents said of all VIPs of scheme faild together: a server
// owns something if it does of any, and nothing if it said so of each, as of
// the oldest word.
func (p *planner) ownsAny() buckets.Owns {
	var all []buckets.Owns
	for i := range p.cur.VIPs {
		v := &p.cur.VIPs[i]
		if !v.Scheme.Row().Switched {
			continue
		}
		o := p.live.Owns(v)
		if o == nil {
			return nil
		}
		all = append(all, o)
	}
	return func(number uint16, bucket int) (owned bool, at uint32) {
		unknown := false
		for i, o := range all {
			own, when := o(number, bucket)
			switch {
			case when == 0:
				unknown = true
			case own && !owned:
				owned, at = true, when
			case own:
				at = max(at, when)
			case !owned && (i == 0 || when < at):
				at = when
			}
		}
		if unknown && !owned {
			return false, 0
		}
		return owned, at
	}
}

// restedOutEverywhere: no VIP of scheme faild needs the number of s any more.
func (p *planner) restedOutEverywhere(s *Slot) bool {
	for i := range p.cur.VIPs {
		v := &p.cur.VIPs[i]
		if !v.Scheme.Row().Switched {
			continue
		}
		if t, ok := v.Slot(s.Number); ok && t.Server == s.Server && t.Address == s.Address && !p.restedOutIn(v, t) {
			return false
		}
	}
	return p.restedOutIn(&VIP{}, s)
}
