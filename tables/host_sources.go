package tables

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/bpf"
)

// Where tunnels may come from: the balancers' sources, and what the file adds
// (host_sources). Whoever could forge a tunnel could send the server what only
// its own link may (neighbour discovery), and claim any chain for a packet.

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

func sourceOf(p netip.Prefix) bpf.HostSource {
	mask := make([]byte, 16)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return bpf.HostSource{Addr: Key{Addr: p.Addr()}.Words(),
		Mask: Key{Addr: netip.AddrFrom16([16]byte(mask))}.Words()}
}

// SourcePrefix undoes an entry of HostSources.
func SourcePrefix(s bpf.HostSource) netip.Prefix {
	n := bits.OnesCount64(s.Mask[0]) + bits.OnesCount64(s.Mask[1])
	a := AddrOf(s.Addr)
	if a.Is4() {
		n -= 96
	}
	return netip.PrefixFrom(a, n)
}

// HostSources is what host_sources is to hold.
func HostSources(prefixes []netip.Prefix) ([]bpf.HostSource, error) {
	few := aggregate(prefixes)
	if len(few) > bpf.HostSources {
		return nil, fmt.Errorf("the balancers' tunnel sources are %d prefixes, also where neighbouring ones are taken together; "+
			"a server knows %d at most: give the balancers sources out of fewer prefixes (balancers[].source, source6; tunnel_sources)", len(few), bpf.HostSources)
	}
	var list []bpf.HostSource
	for _, p := range few {
		list = append(list, sourceOf(p))
	}
	return list, nil
}

// WithSources is the list old with what is new in want behind it. Where both
// do not fit at once, want replaces it.
func WithSources(old, want []bpf.HostSource) []bpf.HostSource {
	both := slices.Clone(old)
	for _, s := range want {
		if !slices.Contains(both, s) {
			both = append(both, s)
		}
	}
	if len(both) > bpf.HostSources {
		return want
	}
	return both
}

// WithoutSources is the list old without what is not in want.
func WithoutSources(old, want []bpf.HostSource) []bpf.HostSource {
	return slices.DeleteFunc(slices.Clone(old), func(s bpf.HostSource) bool { return !slices.Contains(want, s) })
}

// SourceWrite sets one entry of the list.
type SourceWrite struct {
	Index uint32
	Value bpf.HostSource
}

// SourceWrites are the writes, one after another, that make the list `from`
// the list `to`. The end is marked before what stands in front of it, and
// where `to` is WithSources' or WithoutSources' an entry that stays is found
// after every write: it moves towards the front only, and is there twice
// meanwhile.
func SourceWrites(from, to []bpf.HostSource) (writes []SourceWrite) {
	end := SourceWrite{Index: uint32(len(to))}
	if len(to) > len(from) && len(to) < bpf.HostSources {
		writes = append(writes, end)
	}
	for i, s := range to {
		if i >= len(from) || from[i] != s {
			writes = append(writes, SourceWrite{uint32(i), s})
		}
	}
	if len(to) < len(from) {
		writes = append(writes, end)
	}
	return writes
}
