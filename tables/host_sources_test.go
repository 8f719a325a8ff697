package tables

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/soak"
)

func prefixes(s ...string) (list []netip.Prefix) {
	for _, p := range s {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

func TestAggregate(t *testing.T) {
	for _, c := range []struct{ in, want []netip.Prefix }{
		{nil, nil},
		{prefixes("10.0.0.0/25", "10.0.0.128/25"), prefixes("::ffff:10.0.0.0/120")},
		{prefixes("10.0.0.1/32", "10.0.0.0/24", "10.0.0.1/32"), prefixes("::ffff:10.0.0.0/120")},
		{prefixes("10.0.0.1/32", "10.0.0.2/32"), prefixes("::ffff:10.0.0.1/128", "::ffff:10.0.0.2/128")},
		{prefixes("10.0.0.0/32", "10.0.0.1/32", "10.0.0.2/31", "fd00::/64"), prefixes("::ffff:10.0.0.0/126", "fd00::/64")},
		{prefixes("::/0"), prefixes("::/1", "8000::/1")},
		{prefixes("0.0.0.0/0"), prefixes("::ffff:0.0.0.0/96")},
	} {
		got := aggregate(c.in)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
}

// The list holds what the prefixes do, no more and no less, in as few.
func TestAggregateHoldsTheSame(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var in []netip.Prefix
		for range r.IntN(40) {
			// Addresses close to each other, so that they touch.
			in = append(in, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(256))}), 24+r.IntN(9)).Masked())
		}
		list := aggregate(in)
		for last := range 256 {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(last)})
			want := slices.ContainsFunc(in, func(p netip.Prefix) bool { return p.Contains(addr) })
			if got := holds(sourcesOf(list), addr); got != want {
				t.Fatalf("seed %d: %v in %v (from %v): %v, want %v", seed, addr, list, in, got, want)
			}
		}
		for i := range list {
			for j := range list {
				both := slices.Concat(list[:i:i], list[i+1:])
				if i != j && len(aggregate(both)) < len(list)-1 {
					t.Fatalf("seed %d: %v could be fewer", seed, list)
				}
			}
		}
	}
}

func sourcesOf(list []netip.Prefix) (all []bpf.HostSource) {
	for _, p := range list {
		all = append(all, sourceOf(p))
	}
	return all
}

// holds is the program's loop over the list (fl_from).
func holds(list []bpf.HostSource, addr netip.Addr) bool {
	w := Key{Addr: addr}.Words()
	for _, s := range list {
		if s.Mask == [2]uint64{} {
			return false
		}
		if w[0]&s.Mask[0] == s.Addr[0] && w[1]&s.Mask[1] == s.Addr[1] {
			return true
		}
	}
	return false
}

func TestTooManySources(t *testing.T) {
	var many []netip.Prefix
	for i := range bpf.HostSources + 1 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 32))
	}
	_, err := HostSources(many)
	const want = "the balancers' tunnel sources are 65 prefixes, also where neighbouring ones are taken together; a server knows 64 at most: " +
		"give the balancers sources out of fewer prefixes (balancers[].source, source6; tunnel_sources)"
	if err == nil || err.Error() != want {
		t.Errorf("error: %v", err)
	}
	if list, err := HostSources(many[1:]); err != nil || len(list) != bpf.HostSources {
		t.Errorf("%d sources: %v", len(list), err)
	}
}

// While one list gives way to another, what is in both is found after every
// single write.
func TestSourcesChangeInPlace(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	var memory [bpf.HostSources]bpf.HostSource
	var old []bpf.HostSource
	for round := range 300 {
		var want []bpf.HostSource
		for _, n := range r.Perm(70)[:r.IntN(bpf.HostSources/2+1)] {
			want = append(want, sourceOf(netip.PrefixFrom(netip.AddrFrom16(netip.AddrFrom4([4]byte{10, 0, byte(n), 1}).As16()), 128)))
		}
		stay := WithoutSources(old, want)
		both := WithSources(old, want)
		write := func(from, to, found []bpf.HostSource) {
			for _, w := range SourceWrites(from, to) {
				memory[w.Index] = w.Value
				for _, s := range found {
					if !holds(memory[:], AddrOf(s.Addr)) {
						t.Fatalf("seed %d, round %d: %v is not found after %v", seed, round, s, w)
					}
				}
			}
			if got := memory[:len(to)]; !slices.Equal(got, to) || len(to) < bpf.HostSources && memory[len(to)].Mask != [2]uint64{} {
				t.Fatalf("seed %d, round %d: %v, want %v", seed, round, got, to)
			}
		}
		write(old, both, old)
		write(both, WithoutSources(both, want), want)
		if old = WithoutSources(both, want); len(old) != len(want) || len(stay) > len(old) {
			t.Fatalf("seed %d, round %d: %d sources, want %d", seed, round, len(old), len(want))
		}
	}
}
