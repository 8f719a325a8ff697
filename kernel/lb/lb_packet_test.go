package lb

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

var (
	vip4    = netip.MustParseAddr("192.0.2.10")
	vip6    = netip.MustParseAddr("2001:db8::10")
	client4 = netip.MustParseAddrPort("198.51.100.7:40001")
	client6 = netip.MustParseAddrPort("[2001:db8:1::7]:40001")
)

// segment is a client's packet to port 80 of the VIP of its own family.
func segment(src netip.AddrPort, flags uint8, options []byte) wire.TCP {
	dst := netip.AddrPortFrom(vip4, 80)
	if src.Addr().Is6() {
		dst = netip.AddrPortFrom(vip6, 80)
	}
	return wire.TCP{Src: src, Dst: dst, Flags: flags, Seq: 1, Ack: 1, Options: options}
}

// standard is VIPs of both families on TCP port 80 with five servers each by
// ipip, and their address entries. The first IPv4 server is line 1, the first
// of IPv6 line 6.
func standard(t *testing.T, policy bpf.Policy) *rig { return standardOf(t, policy, false) }

// standardOf is standard; tracked as rigVIP.tracked.
func standardOf(t *testing.T, policy bpf.Policy, tracked bool) *rig {
	r := newRig(t)
	for _, a := range []netip.Addr{vip4, vip6} {
		r.add(rigVIP{addr: a, port: 80, proto: wire.ProtoTCP, scheme: bpf.SchemeCheetah,
			policy: policy, servers: servers(5, bpf.FwdIPIP), tracked: tracked})
	}
	r.address(vip4, uint8(bpf.VIPICMPEcho))
	r.address(vip6, uint8(bpf.VIPICMPEcho))
	r.commit()
	return r
}

func TestKnownGoesByCookie(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	for i, c := range []netip.AddrPort{client4, client6} {
		for slot := range uint32(5) {
			for epoch := range uint32(2) {
				for _, age := range []uint32{0, 1, 30_000, 1_046_000} {
					f := segment(c, wire.ACK, wire.Timestamp(7, echo(12, epoch, slot, c, 80, age))).Frame()
					reason, action, out := r.why(f)
					if reason != bpf.ReasonCount || action != xdpTX {
						t.Fatalf("slot %d epoch %d age %d: reason %d action %d", slot, epoch, age, reason, action)
					}
					in, o := inner(t, out, 0)
					if want := netip.AddrFrom4([4]byte{10, 1, 0, byte(slot + 1)}); o.Dst != want {
						t.Fatalf("slot %d went to %v", slot, o.Dst)
					}
					if o.Src.As4()[0] != 10 || o.Src.As4()[1] != 254 {
						t.Fatalf("outer source %v is outside the prefix", o.Src)
					}
					if !bytes.Equal(in, f[14:]) {
						t.Fatalf("the inner packet changed")
					}
				}
			}
			l := r.line(uint32(1 + 5*i + int(slot)))
			if l.Packets != 8 || l.Opened != 0 {
				t.Fatalf("line of slot %d counts %d packets, %d opened", slot, l.Packets, l.Opened)
			}
		}
	}
}

func TestRoundRobin(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	seen := map[netip.Addr]int{}
	for i := range 20 {
		c := netip.AddrPortFrom(client4.Addr(), uint16(2000+i))
		reason, action, out := r.why(segment(c, wire.SYN, wire.SYNOptions(1460, 9)).Frame())
		if reason != bpf.ForwardNew || action != xdpTX {
			t.Fatalf("reason %d action %d", reason, action)
		}
		_, o := inner(t, out, 0)
		seen[o.Dst]++
	}
	// Each CPU walks the table for itself, and the test may move between two.
	for a, n := range seen {
		if n < 3 || n > 5 {
			t.Errorf("%v got %d of 20", a, n)
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d of 5 servers got connections", len(seen))
	}
	for i := range uint32(5) {
		if n, l := r.conns(1+i), r.line(1+i); int(n) != int(l.Opened) || n == 0 {
			t.Errorf("line %d: %d open, %d opened", 1+i, n, l.Opened)
		}
	}
}

// TestComplexity holds the program well below the verifier's limit of a
// million instructions, so that older kernels, which prune less, and later
// issues, which add stages, have room.
func TestComplexity(t *testing.T) {
	const bound = 200_000
	r := newRig(t)
	info, err := r.o.Lb.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok {
		t.Fatal("the kernel does not tell verified instructions (5.16 or newer does)")
	}
	t.Logf("%d instructions verified", n)
	if n > bound {
		t.Errorf("%d instructions verified, more than %d", n, bound)
	}
}
