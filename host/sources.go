package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/viptable"
)

// Where tunnels of schemes beamer's and faild's VIPs may come from: the
// balancers' sources (host_sources). Whoever could forge a tunnel could claim
// any chain for a packet.

// maxSources is FL_HOST_SOURCES.
const maxSources = 64

// aggregate is the fewest prefixes that hold exactly what the given ones do,
// ascending. IPv4 is mapped: a prefix of n bits has 96 + n.
func aggregate(prefixes []netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range prefixes {
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += 96
		}
		p = netip.PrefixFrom(netip.AddrFrom16(p.Addr().As16()), bits).Masked()
		if bits == 0 { // an entry without a mask would end the list
			all = append(all, netip.MustParsePrefix("::/1"), netip.MustParsePrefix("8000::/1"))
			continue
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, p := range all {
		if n := len(kept); n > 0 && kept[n-1].Overlaps(p) {
			continue // a wider one holds it: it sorts before
		}
		kept = append(kept, p)
		// Two halves are one, and that may be a half again.
		for n := len(kept); n > 1; n = len(kept) {
			a, b := kept[n-2], kept[n-1]
			if a.Bits() != b.Bits() || a.Bits() == 1 {
				break
			}
			whole := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
			if !whole.Contains(b.Addr()) {
				break
			}
			kept = append(kept[:n-2], whole)
		}
	}
	return kept
}

func sourceOf(p netip.Prefix) hostFlHostSource {
	mask := make([]byte, 16)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return hostFlHostSource{Addr: viptable.Key{Addr: p.Addr()}.Words(),
		Mask: viptable.Key{Addr: netip.AddrFrom16([16]byte(mask))}.Words()}
}

// planSources is what host_sources is to hold.
func planSources(prefixes []netip.Prefix) ([]hostFlHostSource, error) {
	few := aggregate(prefixes)
	if len(few) > maxSources {
		return nil, fmt.Errorf("the balancers' tunnel sources are %d prefixes, also where neighbouring ones are taken together; "+
			"a server knows %d at most: give the balancers sources out of fewer prefixes (balancers[].source, source6)", len(few), maxSources)
	}
	var list []hostFlHostSource
	for _, p := range few {
		list = append(list, sourceOf(p))
	}
	return list, nil
}

// adoptSources reads what is pinned.
func (a *Agent) adoptSources() error {
	for i := range uint32(maxSources) {
		var s hostFlHostSource
		if err := a.set.HostSources.Lookup(i, &s); err != nil {
			return fmt.Errorf("map host_sources: %w", err)
		}
		if s.Mask == [2]uint64{} {
			break
		}
		a.sources = append(a.sources, s)
	}
	return nil
}

// putSources adds what is new to the list, dropSources takes out what is gone:
// what is in both is found all the time. Where both do not fit at once, the new
// list replaces the old.
func (a *Agent) putSources(want []hostFlHostSource) error {
	both := slices.Clone(a.sources)
	for _, s := range want {
		if !slices.Contains(both, s) {
			both = append(both, s)
		}
	}
	if len(both) > maxSources {
		both = want
	}
	return a.writeSources(both)
}

func (a *Agent) dropSources(want []hostFlHostSource) error {
	return a.writeSources(slices.DeleteFunc(slices.Clone(a.sources), func(s hostFlHostSource) bool { return !slices.Contains(want, s) }))
}

// writeSources makes the list's first entries those of next. The end is
// marked before what stands in front of it, and an entry that stays moves
// towards the front only, and is there twice meanwhile.
func (a *Agent) writeSources(next []hostFlHostSource) error {
	put := func(i int, s hostFlHostSource) error {
		if err := a.set.HostSources.Update(uint32(i), s, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("map host_sources: %w", err)
		}
		return nil
	}
	grows := len(next) > len(a.sources)
	end := func() error {
		if len(next) == maxSources {
			return nil
		}
		return put(len(next), hostFlHostSource{})
	}
	if grows {
		if err := end(); err != nil {
			return err
		}
	}
	for i, s := range next {
		if i < len(a.sources) && a.sources[i] == s {
			continue
		}
		if err := put(i, s); err != nil {
			return err
		}
	}
	if !grows && len(next) < len(a.sources) {
		if err := end(); err != nil {
			return err
		}
	}
	a.sources = slices.Clone(next)
	return nil
}
