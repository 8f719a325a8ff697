package lb

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// What the tests of scheme beamer share: a balancer in the rig of
// netns_test.go, whose program frames are run through one by one.

const beamerChainTime = 240

// beamerStart is where these tests' time begins, s since 1970: near the clock
// that an opened balancer reads before a test sets it.
var beamerStart = uint32(time.Now().Unix())

// muxed is what the program made of a packet.
type muxed struct {
	to         netip.Addr
	previous   [buckets.Chain]uint16
	time       uint32 // shared ms
	generation uint32
}

func (m muxed) String() string {
	return fmt.Sprintf("to %v, chain %v, time %d, generation %d", m.to, m.previous, m.time, m.generation)
}

// beamerAssignment is one VIP of scheme beamer with servers 10.77.0.N in slots
// 0, 1, …, as assignment's.
func beamerAssignment(t *buckets.Table, servers ...int) *controller.Assignment {
	a := assignment(uint64(t.Generation), servers...)
	v := &a.VIPs[0]
	v.Scheme, v.Policy, v.CookieBits, v.Buckets, v.ChainTime = vip.Beamer, "hash", 0, t, beamerChainTime*time.Second
	return a
}

// weights are servers 0 to n-1 of weight 1.
func weights(n int) (s []buckets.Server) {
	for i := range n {
		s = append(s, buckets.Server{Number: uint16(i), Weight: 1})
	}
	return s
}

// portOf is a client's port whose connections are of bucket b of n.
func portOf(t testing.TB, key hash.Key, b, n int) uint16 {
	t.Helper()
	for port := uint16(1024); port != 0; port++ {
		if clientBucket(key, port, n) == b {
			return port
		}
	}
	t.Fatalf("no port is of bucket %d of %d", b, n)
	return 0
}

// clientBucket is the bucket of n of a client's port.
func clientBucket(key hash.Key, port uint16, n int) int {
	h := hash.Flow(key, netip.AddrPortFrom(netip.MustParseAddr(wiredClient), port), 80, true)
	return int(h >> 32 * uint64(n) >> 32)
}

// mux runs a segment from a port through the program that is attached.
func (w *wired) mux(l *LB, port uint16) muxed {
	w.t.Helper()
	m, err := muxFrame(everyFrame(w.t, l.running()), w.segment(port))
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *wired) segment(port uint16) []byte {
	return wire.TCP{Link: wire.Link{Src: w.netMAC, Dst: w.lbMAC},
		Src: netip.AddrPortFrom(netip.MustParseAddr(wiredClient), port), Dst: netip.AddrPortFrom(netip.MustParseAddr(wiredVIP), 80),
		Flags: wire.ACK}.Frame()
}

// muxFrame takes the hops off what a frame becomes: an IPv4 option of ipip.
func muxFrame(p *ebpf.Program, frame []byte) (m muxed, err error) {
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	action, err := p.Run(&o)
	if err != nil {
		return m, err
	}
	return muxOutput(action, o.DataOut)
}

func muxOutput(action uint32, out []byte) (m muxed, err error) {
	if action != xdpTX && action != xdpRedirect {
		return m, fmt.Errorf("the program's verdict is %d: the packet was not forwarded", action)
	}
	_, o, err := wire.Decapsulate(out[wire.EthernetLen:])
	if err != nil || o.Hops == nil {
		return m, fmt.Errorf("no hops in % x: %v", out, err)
	}
	return muxed{o.Dst, o.Hops.Previous, o.Hops.Time, o.Hops.Generation}, nil
}

// at makes a balancer's clock stand at s seconds after the tests' begin.
func at(l *LB, s int) {
	l.now = func() time.Time { return begun(s) }
}

// begun is s seconds after the tests' begin.
func begun(s int) time.Time { return time.Unix(int64(beamerStart)+int64(s), 0) }

func serverAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}) }

// chain is previous servers, filled up.
func chain(slots ...uint16) (c [buckets.Chain]uint16) {
	c = buckets.NoPrevious
	copy(c[:], slots)
	return c
}
