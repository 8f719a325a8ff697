package lb

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"github.com/fairlead/fairlead/bpf"
)

// A host that floods errors takes none of others' share of what is asked about:
// not before a second assignment either, when half 0 of the VIP table was never
// filled, nor with addresses of its own choice.
func TestAskFlood(t *testing.T) {
	const genuine, seconds, rate = 195, 10, 100
	for _, c := range []struct {
		name     string
		perError int // made-up errors for each genuine one
		sender   func(i int) netip.Addr
		flooder  func(victim netip.Addr, i int) netip.Addr
	}{
		{"one host", 285 * seconds / genuine,
			func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) },
			func(netip.Addr, int) netip.Addr { return router4 }},
		{"one IPv6 host", 285 * seconds / genuine, sixth,
			func(netip.Addr, int) netip.Addr { return router6 }},
		{"one host of both families", 2 * 285 * seconds / genuine,
			func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}) },
			func(_ netip.Addr, i int) netip.Addr { return []netip.Addr{router4, router6}[i%2] }},
		{"a prefix of IPv6", 60, sixth,
			func(_ netip.Addr, i int) netip.Addr { return inPrefix(uint64(i)) }},
		{"beside the one that comes next", 60, sixth,
			func(victim netip.Addr, _ int) netip.Addr { return beside(victim) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, release, err := OneCPU() // bounds are a CPU's own
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(release)
			r := standard(t, bpf.PolicyRR)
			r.vips[0], r.vips[1] = r.vips[1], r.vips[0]
			if err := r.o.Vips.Set(unsafe.Slice((*byte)(unsafe.Pointer(&r.vips)), unsafe.Sizeof(r.vips))); err != nil {
				t.Fatal(err)
			}
			frame := func(sender netip.Addr) []byte {
				client := client4
				if sender.Is6() {
					client = client6
				}
				quote := quoting(client, reply(client, nil).Packet(), header(client)+8)
				quote.Src = sender
				return quote.Frame()
			}
			asks := r.asks()
			asked := 0
			for i := range genuine {
				now := rigNow + 1000 + uint32(i*seconds*1000/genuine)
				if err := r.o.Control.Set(bpf.Control{Active: 1, ClockBase: now, VipSeed: [2]uint64{0, r.seed}, AskRate: rate}); err != nil {
					t.Fatal(err)
				}
				for n := range c.perError {
					r.run(frame(c.flooder(c.sender(i), i*c.perError+n)))
				}
				if why, _, _ := r.why(frame(c.sender(i))); why == bpf.AskICMP {
					asked++
				}
				asks.SetDeadline(time.Now())
				for err == nil { // or the ring fills
					_, err = asks.Read()
				}
				err = nil
			}
			if asked < genuine*95/100 {
				t.Errorf("%d of %d genuine errors were asked about beside the flood", asked, genuine)
			}
		})
	}
}

// sixth are hosts of IPv6, each in a network of its own.
func sixth(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::9", i)) }

// inPrefix is a host of one network.
func inPrefix(host uint64) netip.Addr {
	b := netip.MustParseAddr("2001:db8:bad::").As16()
	binary.LittleEndian.PutUint64(b[8:], host)
	return netip.AddrFrom16(b)
}

// beside is the host of that network whose words fold to what the victim's do
// in the VIP table (fl_vip_product), whatever its seed.
func beside(victim netip.Addr) netip.Addr {
	const factor = 0x9e3779b97f4a7c15
	own, other := words(inPrefix(0)), words(victim)
	return inPrefix(own[0]*factor ^ other[0]*factor ^ other[1])
}

// A balancer's senders are spread by a secret of its own.
func TestAskKeyIsDrawn(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	w.open(w.options())
	s, err := OpenReadOnly(w.pinDir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	twin, err := TwinOf(s)
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	if twin.askKey[0] == 0 || twin.askKey[1] == 0 {
		t.Errorf("key %x", twin.askKey)
	}
}
