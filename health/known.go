package health

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Known is what was known about a target, for a daemon that starts later. It
// outlives reboots without a bound: a state that has become wrong meanwhile is put
// right by as many checks as one that turns wrong now, and no longer.
type Known struct {
	VIP     uint32         `json:"vip"`
	Slot    uint16         `json:"slot"`
	Server  string         `json:"server"`
	Address netip.AddrPort `json:"address"` // that was checked
	Up      bool           `json:"up"`
	Since   time.Time      `json:"since"`
	Detail  string         `json:"detail,omitempty"`
}

// Recall makes known what the targets of those servers begin with, and Down goes by
// until they are targets. It is for before the first SetTargets, which forgets what
// it did not need.
func (c *Checker) Recall(known []Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recalled = map[Key]Known{}
	for _, k := range known {
		c.recalled[Key{k.VIP, k.Slot}] = k
	}
}

// Known is what is known now, in a fixed order. Targets that nothing is known of
// are left out.
func (c *Checker) Known() (all []Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, w := range c.workers {
		if w.report.State != Unknown {
			all = append(all, Known{k.VIP, k.Slot, w.target.Server, w.target.Address, w.report.State == Up,
				w.report.Since.Round(0).UTC(), w.report.Detail})
		}
	}
	slices.SortFunc(all, func(a, b Known) int { return cmp.Or(cmp.Compare(a.VIP, b.VIP), cmp.Compare(a.Slot, b.Slot)) })
	return all
}

// Is says whether k is about t: the number may be another server's now.
func (k Known) Is(t Target) bool {
	return k.VIP == t.VIP && k.Slot == t.Slot && k.Server == t.Server && k.Address == t.Address
}

// begin is a new worker's report; the caller holds mu.
func (c *Checker) begin(t Target, m *Machine) Report {
	k, ok := c.recalled[Key{t.VIP, t.Slot}]
	if !ok || !k.Is(t) {
		return Report{}
	}
	m.Remember(Down)
	if k.Up {
		m.Remember(Up)
	}
	return Report{State: m.State(), Since: k.Since, Detail: k.Detail, Remembered: true}
}
