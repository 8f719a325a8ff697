package trace

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/vip"
)

const testChainTime = 4 * time.Minute

// bucketVIP is one of scheme beamer with eight buckets. Bucket 0 has moved from
// the first server to the second and, with three servers, to the last; all
// others are the first one's.
func bucketVIP(id uint32, name, addr, proto string, forwarding vip.Forwarding, servers ...string) controller.VIP {
	v := testVIP(id, name, addr, proto, forwarding, servers...)
	table := buckets.New(8, []buckets.Server{{Number: 0, Weight: 1}})
	o := buckets.Options{Now: uint32(time.Now().Unix()), ChainTime: uint32(testChainTime.Seconds())}
	for to := range servers[1:] {
		table, _ = table.Apply([]buckets.Move{{Bucket: 0, To: uint16(to + 1)}}, o)
	}
	v.Scheme, v.Policy, v.CookieBits, v.Buckets, v.ChainTime, v.MPTCP = "beamer", "hash", 0, table, testChainTime, proto == "tcp"
	return v
}

// What becomes of packets by their bucket, and what the server will ask.
func TestBucketStories(t *testing.T) {
	pinDir, _ := loaded(t)
	tracer, err := Open(pinDir, testAssignment)
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	moved, settled := 0, 0 // ports of such connections
	for port := 1024; moved == 0 || settled == 0; port++ {
		s := tracer.quiet(t, fmt.Sprintf("tcp 203.0.113.7:%d > 192.0.2.14:80", port))
		if s.Bucket == nil || s.Bucket.Of != 8 || s.Bucket.Generation != 3 || s.Server.Slot != int(s.Bucket.Current.Slot) {
			t.Fatalf("port %d: %+v %+v", port, s.Bucket, s.Server)
		}
		if s.Bucket.Number == 0 {
			moved = port
		} else {
			settled = port
		}
	}
	tables, _, err := tracer.twin.Model(tracer.cpu)
	if err != nil {
		t.Fatal(err)
	}
	join := beamer.JoinPort(tables.Addresses[netip.MustParseAddr("192.0.2.14")].JoinHash, 1)
	quote := "icmp 198.51.100.1 > 192.0.2.14 too-big mtu=1400 quoting tcp 192.0.2.14:80 > 203.0.113.7:%d"
	for _, c := range []struct {
		packet, reason, server string
		chain                  string
		says                   []string
	}{
		{fmt.Sprintf("tcp 203.0.113.7:%d > 192.0.2.14:80", moved), "KNOWN", "beamer-3", "[{1 beamer-2} {0 beamer-1}]",
			[]string{"whether it has a socket", "goes on to slot 1 (beamer-2), then slot 0 (beamer-1)", "RST"}},
		{fmt.Sprintf("tcp 203.0.113.7:%d > 192.0.2.14:80 syn", moved), "FORWARD_NEW", "beamer-3", "[{1 beamer-2} {0 beamer-1}]",
			[]string{"nothing: it opens a connection"}},
		{fmt.Sprintf("tcp 203.0.113.7:%d > 192.0.2.14:80", settled), "KNOWN", "beamer-1", "[]",
			[]string{"nothing: no other server", "generation 3"}},
		{fmt.Sprintf(quote, moved), "FORWARD_ICMP", "beamer-3", "[{1 beamer-2} {0 beamer-1}]",
			[]string{"whether the connection that is quoted is its own"}},
		{fmt.Sprintf("tcp 203.0.113.7:%d > 192.0.2.14:%d syn", settled, join), "FORWARD_NEW", "beamer-2", "[]", []string{"opens"}},
		{fmt.Sprintf("tcp 203.0.113.7:%d > 192.0.2.14:%d", settled, join), "KNOWN", "beamer-2", "[]", []string{"the port named the server"}},
	} {
		s := tracer.must(t, c.packet)
		if s.Verdict.Reason != c.reason || s.Server == nil || s.Server.Name != c.server || s.Bucket == nil || fmt.Sprint(s.Bucket.Chain) != c.chain {
			t.Errorf("%s: %+v %+v %+v", c.packet, s.Verdict, s.Server, s.Bucket)
			continue
		}
		for _, words := range c.says {
			if !strings.Contains(s.Bucket.Asks, words) {
				t.Errorf("%s: %q does not say %q", c.packet, s.Bucket.Asks, words)
			}
		}
		if len(s.Bucket.Chain) > 0 && (s.Bucket.AgeMS < -1000 || s.Bucket.AgeMS > 60_000 || s.Bucket.ChainMS != testChainTime.Milliseconds()) {
			t.Errorf("%s: age %d ms, chain_time %d ms", c.packet, s.Bucket.AgeMS, s.Bucket.ChainMS)
		}
		if s.Outer == nil || s.Outer.Bytes != 36 {
			t.Errorf("%s: outer %+v, want 36 bytes: a header and hops", c.packet, s.Outer)
		}
	}
	for port := 1024; ; port++ {
		s := tracer.quiet(t, fmt.Sprintf("udp 203.0.113.7:%d > 192.0.2.14:53", port))
		if s.Bucket.Number != 0 {
			continue
		}
		if s.Verdict.Reason != "KNOWN" || !strings.Contains(s.Bucket.Asks, "comes back to this server") || s.Outer.Bytes != 48 {
			t.Errorf("a datagram: %+v %+v", s.Verdict, s.Bucket)
		}
		break
	}
	if s := tracer.must(t, fmt.Sprintf("tcp 203.0.113.7:1024 > 192.0.2.14:%d", join^0x5555|0x8000)); s.Bucket != nil || s.Verdict.Explain != "its port names no server of this VIP" {
		t.Errorf("a join of nobody's: %+v %+v", s.Verdict, s.Bucket)
	}
}

// Of VIPs that switches serve no balancer knows anything: the error says where
// to look.
func TestRefusesFaild(t *testing.T) {
	pinDir, _ := loaded(t)
	names := testAssignment.Clone()
	faild := testVIP(9, "anycast", "192.0.2.15", "tcp", "l2", "10.78.0.11")
	faild.Scheme = "faild"
	names.VIPs = append(names.VIPs, faild)
	tracer, err := Open(pinDir, names)
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	for _, packet := range []string{"tcp 203.0.113.7:4711 > 192.0.2.15:80 syn", "icmp 203.0.113.7 > 192.0.2.15 echo"} {
		spec, err := ParseSpec(packet)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = tracer.Spec(spec); err == nil || !strings.Contains(err.Error(), "anycast") || !strings.Contains(err.Error(), "docs/faild.md") {
			t.Errorf("%s: %v names no VIP or remedy", packet, err)
		}
	}
}
