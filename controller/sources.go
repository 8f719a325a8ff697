package controller

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/config"
)

// Where servers take tunnels from (Assignment.Sources).

// sources are cfg's tunnel sources, the balancers' and its own, ascending, each
// once. Of a family in which some balancer has none, none; and none without a
// VIP that has tunnels.
func sources(cfg *config.Config) (all []netip.Prefix) {
	if !slices.ContainsFunc(cfg.VIPs, func(v config.VIP) bool { return v.Tunnels() }) {
		return nil
	}
	for _, six := range []bool{false, true} {
		if !cfg.SourcesKnown(six) {
			continue
		}
		for _, b := range cfg.Balancers {
			if six {
				all = append(all, b.Source6.Masked())
			} else {
				all = append(all, b.Source.Masked())
			}
		}
		for _, p := range cfg.TunnelSources {
			if p.Addr().Is6() == six {
				all = append(all, p.Masked())
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// stepSources takes the file's sources over: those that come first, and those
// that leave in a version after that, when balancers have the file, too. A
// family of which the first are written down is closed with that: no balancer
// had a source of it to give up.
func (p *planner) stepSources(next *Assignment) bool {
	if !p.fromFile || slices.Equal(next.Sources, p.sources) || p.needsSources(next) {
		return false
	}
	both := append(slices.Clone(next.Sources), p.sources...)
	slices.SortFunc(both, netip.Prefix.Compare)
	both = slices.Compact(both)
	if len(p.sources) > 0 && !slices.Equal(both, next.Sources) {
		next.Sources = both
	} else {
		next.Sources = p.sources
	}
	p.say(next, "servers take tunnels from %s", listPrefixes(next.Sources))
	return true
}

// needsSources: a VIP of scheme beamer, which the file does not have any more,
// is not gone yet, and its tunnels come from a family that has left with it.
func (p *planner) needsSources(next *Assignment) bool {
	return slices.ContainsFunc(next.VIPs, func(v VIP) bool {
		return v.Scheme.Row().Hops && slices.ContainsFunc(v.Slots, func(s Slot) bool {
			return !slices.ContainsFunc(p.sources, func(p netip.Prefix) bool { return p.Addr().Is6() == s.Address.Unmap().Is6() })
		})
	})
}

func listPrefixes(all []netip.Prefix) string {
	if len(all) == 0 {
		return "anybody: not every balancer's source is known, or none sends any"
	}
	s := fmt.Sprint(all[0])
	for i, p := range all[1:] {
		if i == 9 {
			return fmt.Sprintf("%s and %d more", s, len(all)-10)
		}
		s += ", " + p.String()
	}
	return s
}
