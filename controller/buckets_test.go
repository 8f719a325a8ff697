package controller

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/vip"
)

// beamer is an assignment with one VIP of scheme beamer and two servers.
func beamer(t *testing.T, vip string) *Assignment {
	t.Helper()
	cfg, err := config.Parse("f", fmt.Appendf(nil, `secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb, interfaces: [eth0], source: 10.200.0.0/16}, {name: lc, interfaces: [eth0], source: 10.200.0.0/16}]
servers: [{name: s1, address: 10.0.0.1}, {name: s2, address: 10.0.0.2}]
vips: [{name: v, address: 192.0.2.1, port: 80, scheme: beamer, buckets: 8, servers: [s1, s2]%s}]
controllers: [{name: c1}]
`, vip))
	if err != nil {
		t.Fatal(err)
	}
	a, err := First(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSourcesAreThereOnce(t *testing.T) {
	a := beamer(t, "")
	if want := netip.MustParsePrefix("10.200.0.0/16"); len(a.Sources) != 1 || a.Sources[0] != want {
		t.Errorf("sources %v, want %s", a.Sources, want)
	}
}

// moved is a with one bucket more of s2's, one version and generation on.
func moved(a *Assignment) *Assignment {
	b := a.Clone()
	b.Version++
	b.VIPs[0].Buckets, _ = a.VIPs[0].Buckets.Apply([]buckets.Move{{Bucket: 0, To: 1}}, buckets.Options{Now: 1_800_000_000, ChainTime: 240})
	return b
}

func TestTablesGoForward(t *testing.T) {
	a := beamer(t, "")
	b := moved(a)
	if err := Accept(a, b, 1, false); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(c *Assignment){
		"generation 1: runs backwards, 2 is in force; servers would drop its packets": func(c *Assignment) {
			c.VIPs[0].Buckets = a.VIPs[0].Buckets
		},
		"generation 2: is in force already with another content; hand out the change as generation 3": func(c *Assignment) {
			c.VIPs[0].Buckets = c.VIPs[0].Buckets.Clone()
			c.VIPs[0].Buckets.Current[5] = 0
		},
		"16 buckets, was 8: it is fixed for the VIP's life": func(c *Assignment) {
			c.VIPs[0].Buckets = buckets.New(16, c.VIPs[0].BucketServers())
		},
	} {
		// Whoever was away must not go back either.
		for _, catchUp := range []bool{false, true} {
			c := b.Clone()
			c.Version++
			change(c)
			if err := Accept(b, c, 2, catchUp); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
	}
	// Another VIP at the same place begins anew.
	c := b.Clone()
	c.Version++
	c.VIPs[0].ID, c.VIPs[0].Buckets = 7, a.VIPs[0].Buckets
	if err := Accept(b, c, 2, true); err != nil {
		t.Error(err)
	}
}

func TestInvalidTables(t *testing.T) {
	for want, change := range map[string]func(v *VIP){
		"buckets: 0: out of range; write 1 to 8388608":              func(v *VIP) { v.Buckets = nil },
		"bucket 3: current 9: no server has this number":            func(v *VIP) { v.Buckets.Current[3] = 9 },
		"bucket 0: previous[0] 0: is its current server":            func(v *VIP) { v.Buckets.Previous[0][0] = 0 },
		"chain_time: 0s: out of range; write 1s to 24h0m0s":         func(v *VIP) { v.ChainTime = 0 },
		"mptcp: true: the VIP's protocol is udp":                    func(v *VIP) { v.MPTCP, v.Protocol = true, vip.UDP },
		"forwarding l2 has no header that could carry them":         func(v *VIP) { v.Forwarding = vip.L2 },
		"buckets: 8: scheme jet has no buckets":                     func(v *VIP) { v.Scheme = vip.JET },
		"hash: anchor: scheme beamer goes by its buckets":           func(v *VIP) { v.Hash, v.Capacity = chash.KindAnchor, 4 },
		"previous: 7 buckets, and current has 8; both must have as": func(v *VIP) { v.Buckets.Previous = v.Buckets.Previous[:7] },
	} {
		a := beamer(t, "").Clone()
		a.VIPs[0].Buckets = a.VIPs[0].Buckets.Clone()
		change(&a.VIPs[0])
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "vip v") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestHostMayNotLagBehindChains: an agent that does not know a server cannot
// pass its packets on.
func TestHostMayNotLagBehindChains(t *testing.T) {
	a := beamer(t, "")
	now := time.Unix(1_800_000_000, 0)
	steps, _, err := Change(a, LiveCounts{}, now, false, Op{Kind: Add, VIP: "v", Server: "s3", Address: netip.MustParseAddr("10.0.0.3")})
	if err != nil {
		t.Fatal(err)
	}
	b := steps[len(steps)-1]
	steps, _, err = Change(b, LiveCounts{}, now.Add(time.Second), false, Op{Kind: Drain, VIP: "v", Server: "s3"})
	if err != nil {
		t.Fatal(err)
	}
	c := steps[len(steps)-1]
	if err := HostMayLag(a, c, "s1"); err == nil || !strings.Contains(err.Error(), "slot 2 of vip v") {
		t.Errorf("s1 may stay at version 1: %v", err)
	}
	if err := HostMayLag(b, c, "s1"); err != nil {
		t.Error(err)
	}
}

func TestReportsOfAnotherTableSayNothing(t *testing.T) {
	a := beamer(t, "")
	v := &a.VIPs[0]
	at := time.Unix(1_800_000_000, 0)
	l := LiveCounts{Owned: map[LiveKey]Owned{
		{v.ID, "s1"}: {Connections: 3, Buckets: 4, Bitmap: []byte{0xff}, At: at},
		{v.ID, "s2"}: {Connections: 1, Buckets: 8, Bitmap: []byte{1 << 6}, At: at},
	}}
	owns, owners := l.Owns(v), l.Owners(v)
	if owned, at := owns(0, 5); owned || at != 0 {
		t.Error("a report of 4 buckets says something of bucket 5 of 8")
	}
	if owned, when := owns(1, 6); !owned || when != uint32(at.Unix()) {
		t.Error("s2 owns bucket 6")
	}
	if owned, when := owns(1, 5); owned || when != uint32(at.Unix()) {
		t.Error("s2 owns nothing of bucket 5")
	}
	for b := range 8 {
		if got := owners(b); (b == 6) != (len(got) == 1) {
			t.Errorf("bucket %d: owners %v", b, got)
		}
	}
}
