package tables

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Bucket tables and the others share a half: wherever it begins, none overlaps
// another or leaves it, words stand on a quarter of two cache lines, and Fits
// asks for enough.
func TestBeamerPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAssignment(t)
		for i := range a.VIPs {
			if v := &a.VIPs[i]; rapid.Bool().Draw(t, "beamer") {
				v.Scheme, v.Policy, v.CookieBits = vip.Beamer, "hash", 0
				v.Buckets = buckets.New(rapid.IntRange(1, 3000).Draw(t, "buckets"), v.BucketServers())
			}
		}
		c := Capacity{Lines: 4096, TableEntries: rapid.Uint32Range(1<<10, 1<<16).Draw(t, "entries"), VIPIDs: 4096}
		random := rand.New(rand.NewPCG(1, 2))
		var fits [2]error
		for half := range uint32(2) {
			var p *Plan
			p, fits[half] = Balancer(a, View{Moment: Moment{Now: setsNow}, Half: half, Capacity: c, Hashes: Hashes{}, Random: random})
			if fits[half] != nil {
				continue
			}
			base, free := half*c.TableEntries, half*c.TableEntries+uint32(len(p.Tables))
			for _, s := range p.Stretches {
				e := p.Entries[s.entry]
				if e.Id != s.VIP || e.HashTable != s.First || int(e.HashSize) != s.n || e.HashForm != uint8(bpf.HashBuckets) {
					t.Fatalf("VIP %d: entry %+v, stretch %+v", s.VIP, e, s)
				}
				if s.First < free || s.First%BucketWords != 0 {
					t.Fatalf("VIP %d: its rows begin at %d, %d is free", s.VIP, s.First, free)
				}
				free = s.First + uint32(BucketEntries(s.n))
			}
			if free > base+c.TableEntries || p.Size != free-base {
				t.Fatalf("half %d: %d of %d entries, the plan says %d", half, free-base, c.TableEntries, p.Size)
			}
		}
		if (fits[0] == nil) != (fits[1] == nil) {
			t.Fatalf("one half fits, the other does not: %v, %v", fits[0], fits[1])
		}
	})
}

// A switch's VIPs are none of a balancer's, whatever they say.
func TestFaildIgnored(t *testing.T) {
	a := assignment(1, 11)
	other := controller.VIP{
		ID:       2,
		Settings: vip.Settings{Name: "switched", Address: netip.MustParseAddr("192.0.2.9"), Port: 80, Protocol: "tcp", Scheme: vip.Faild},
	}
	a.VIPs = append([]controller.VIP{other}, a.VIPs...)
	p, err := Balancer(a, View{Moment: Moment{Now: setsNow}, Capacity: Capacity{4096, 1 << 16, 4096}, Hashes: Hashes{}, Chains: NewChains(), Random: rand.New(rand.NewPCG(1, 2))})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.VIPs) != 1 || p.VIPs[0].ID != 1 {
		t.Errorf("VIPs %+v", p.VIPs)
	}
	for _, e := range p.Entries {
		if e.Id != 1 {
			t.Errorf("an entry of VIP %d", e.Id)
		}
	}
	if err := Fits(a, config.DefaultLimits()); err != nil {
		t.Error(err)
	}
	if len(a.VIPs) != 2 {
		t.Error("the assignment was changed")
	}
}

// The address of an MPTCP VIP has what its joins need, whichever VIP of the
// address comes first and takes its fragments, and answers echo if one says so.
func TestBeamerJoinEntry(t *testing.T) {
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		a := assignment(1, 11)
		a.VIPs[0].Address, a.VIPs[0].Fragments = netip.MustParseAddr(addr), "addresses"
		v := beamerAssignment(buckets.New(16, weights(1)), 12).VIPs[0]
		v.ID, v.Name, v.Address, v.Port, v.MPTCP, v.ICMPEcho, v.Affinity = 2, "joined", netip.MustParseAddr(addr), 443, true, false, "address"
		v.Buckets.Generation = 77
		a.VIPs = append(a.VIPs, v)
		p, err := Balancer(a, View{Moment: Moment{Now: setsNow}, Capacity: Capacity{4096, 1 << 16, 4096}, Hashes: Hashes{}, Random: rand.New(rand.NewPCG(1, 2))})
		if err != nil {
			t.Fatal(err)
		}
		var service, address bpf.VIP
		for _, e := range p.Entries {
			switch {
			case e.Id == 2 && bpf.VIPFlags(e.Flags)&bpf.VIPAddressEntry == 0:
				service = e
			case e.Proto == wire.ProtoICMP || e.Proto == wire.ProtoICMPv6:
				address = e
			}
		}
		want := service
		want.Addr, want.Port, want.Proto, want.JoinHash = address.Addr, 0, address.Proto, address.JoinHash
		want.Flags = uint8(bpf.VIPAddressEntry | bpf.VIPJoin | bpf.VIPICMPEcho | bpf.VIPAffinity)
		if address != want || service.Generation != 77 {
			t.Errorf("%s: the address has\n%+v, want\n%+v", addr, address, want)
		}
		// The hash is that of a connection from the VIP's address, port 0.
		key := hash.Key(a.HashKey)
		b := netip.MustParseAddr(addr).As16()
		if h := hash.Tuple(key, netip.AddrPortFrom(netip.AddrFrom16(b), 0), 443); netip.MustParseAddr(addr).Is6() && h != address.JoinHash {
			t.Errorf("%s: join_hash %x, want %x", addr, address.JoinHash, h)
		}
		if address.JoinHash == 0 {
			t.Errorf("%s: join_hash is 0", addr)
		}
	}
}
