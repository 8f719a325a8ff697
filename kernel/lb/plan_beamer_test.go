package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/cheetah"
)

// Bucket tables and the others share a half: wherever it begins, none overlaps
// another or leaves it, words stand on a quarter of two cache lines, and Fits
// asks for enough.
func TestBeamerPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAssignment(t)
		for i := range a.VIPs {
			if v := &a.VIPs[i]; rapid.Bool().Draw(t, "beamer") {
				v.Scheme, v.Policy, v.CookieBits = beamer, "hash", 0
				v.Buckets = buckets.New(rapid.IntRange(1, 3000).Draw(t, "buckets"), v.BucketServers())
			}
		}
		c := capacity{lines: 4096, tableEntries: rapid.Uint32Range(1<<10, 1<<16).Draw(t, "entries"), vipIDs: 4096}
		random := rand.New(rand.NewPCG(1, 2))
		var fits [2]error
		for half := range uint32(2) {
			var p *plan
			p, fits[half] = makePlan(a, nil, moment{now: setsNow}, nil, c, half, hashTables{}, nil, random)
			if fits[half] != nil {
				continue
			}
			base, free := half*c.tableEntries, half*c.tableEntries+uint32(len(p.tables))
			for _, s := range p.stretches {
				e := p.entries[s.entry]
				if e.Id != s.vip || e.HashTable != s.first || int(e.HashSize) != s.n || e.HashForm != uint8(bpf.HashBuckets) {
					t.Fatalf("VIP %d: entry %+v, stretch %+v", s.vip, e, s)
				}
				if s.first < free || s.first%bucketWords != 0 {
					t.Fatalf("VIP %d: its rows begin at %d, %d is free", s.vip, s.first, free)
				}
				free = s.first + uint32(bucketEntries(s.n))
			}
			if free > base+c.tableEntries || p.size != free-base {
				t.Fatalf("half %d: %d of %d entries, the plan says %d", half, free-base, c.tableEntries, p.size)
			}
		}
		if (fits[0] == nil) != (fits[1] == nil) {
			t.Fatalf("one half fits, the other does not: %v, %v", fits[0], fits[1])
		}
	})
}

// Hops take room of the path's MTU: 16 bytes, over IPv6 without GUE 24.
func TestOverhead(t *testing.T) {
	for _, c := range []struct {
		addr       string
		forwarding bpf.Forwarding
		plain      int
		hops       int
	}{
		{"10.0.0.1", bpf.FwdIPIP, 20, 36},
		{"fd00::1", bpf.FwdIPIP, 40, 64},
		{"10.0.0.1", bpf.FwdGUE, 32, 48},
		{"fd00::1", bpf.FwdGUE, 52, 68},
	} {
		s := serverLine{addr: netip.MustParseAddr(c.addr), forwarding: c.forwarding}
		if n := overhead(s); n != c.plain {
			t.Errorf("%+v: %d bytes, want %d", s, n, c.plain)
		}
		s.hops = true
		if n := overhead(s); n != c.hops {
			t.Errorf("%+v: %d bytes, want %d", s, n, c.hops)
		}
	}
	if n := overhead(serverLine{addr: netip.MustParseAddr("10.0.0.1"), forwarding: bpf.FwdL2}); n != 0 {
		t.Errorf("l2 adds %d bytes", n)
	}
	b, err := os.ReadFile("../../bpf/include/hops.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("#define FL_HOPS_BYTES %d\n", hopsBytes), fmt.Sprintf("#define FL_HOPS6_BYTES %d ", hopsBytes6)} {
		if !strings.Contains(string(b), want) {
			t.Errorf("hops.h does not say %q", want)
		}
	}
}

// The lines of a VIP of scheme beamer know that after a restart, too: a line
// that is written anew for its next hop keeps its room for hops.
func TestBeamerMTU(t *testing.T) {
	w := newWired(t)
	l := w.open(w.options())
	a := beamerAssignment(buckets.New(16, weights(1)), 11)
	mtu := func() uint16 {
		t.Helper()
		line, ok := l.Line(1, 0)
		if !ok {
			t.Fatal("slot 0 has no line")
		}
		var cpus []bpf.Line
		if err := l.set.maps[mapLines].Lookup(line, &cpus); err != nil {
			t.Fatal(err)
		}
		return cpus[0].Mtu
	}
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	if got := mtu(); got != 1500-36 {
		t.Errorf("MTU %d, want %d", got, 1500-36)
	}
	l.Close()
	l = w.open(w.options())
	l.syncLines()
	if got := mtu(); got != 1500-36 {
		t.Errorf("adopted: MTU %d, want %d", got, 1500-36)
	}
}

// A switch's VIPs are none of a balancer's, whatever they say.
func TestFaildIgnored(t *testing.T) {
	a := assignment(1, 11)
	other := controller.VIP{ID: 2, Name: "switched", Address: netip.MustParseAddr("192.0.2.9"), Port: 80, Protocol: "tcp", Scheme: faild}
	a.VIPs = append([]controller.VIP{other}, a.VIPs...)
	p, err := makePlan(a, nil, moment{now: setsNow}, nil, capacity{4096, 1 << 16, 4096}, 0, hashTables{}, newBucketTables(), rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.vips) != 1 || p.vips[0].id != 1 {
		t.Errorf("VIPs %+v", p.vips)
	}
	for _, e := range p.entries {
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
		p, err := makePlan(a, nil, moment{now: setsNow}, nil, capacity{4096, 1 << 16, 4096}, 0, hashTables{}, nil, rand.New(rand.NewPCG(1, 2)))
		if err != nil {
			t.Fatal(err)
		}
		var service, address bpf.VIP
		for _, e := range p.entries {
			switch {
			case e.Id == 2 && bpf.VIPFlags(e.Flags)&bpf.VIPAddressEntry == 0:
				service = e
			case e.Proto == protoICMP || e.Proto == protoICMPv6:
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
		key := cheetah.Key(a.HashKey)
		b := netip.MustParseAddr(addr).As16()
		if h := cheetah.Hash(key, netip.AddrPortFrom(netip.AddrFrom16(b), 0), 443); netip.MustParseAddr(addr).Is6() && h != address.JoinHash {
			t.Errorf("%s: join_hash %x, want %x", addr, address.JoinHash, h)
		}
		if address.JoinHash == 0 {
			t.Errorf("%s: join_hash is 0", addr)
		}
	}
}
