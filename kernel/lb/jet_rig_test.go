package lb

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// tracking is a balancer with one VIP of a scheme that tracks, whose packets
// are test runs of its program in force, and whose clocks the test sets. Its
// servers are behind a router, so that one neighbour resolves them all.
type tracking struct {
	*wired
	l    *LB
	a    *controller.Assignment
	v    *controller.VIP
	time time.Time
	down map[uint16]bool
	due  time.Time // of the last apply
	rand *rand.Rand
}

// trackingOf has servers in slots 0 to active-1 that were there when the VIP
// was made.
func trackingOf(t *testing.T, protocol, hash string, active int, flows int) *tracking {
	r := &tracking{wired: newWired(t), time: time.Now(), down: map[uint16]bool{}}
	r.rand = soak.Rand(t)
	inNS(t, r.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		_, far, _ := net.ParseCIDR("10.79.0.0/16")
		check(netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: far, Gw: net.IPv4(10, 77, 0, 1)}))
	})
	o := r.options()
	o.Limits.TableEntries, o.Limits.Flows = 1<<18, flows
	r.reopen(o)
	r.a = assignment(0)
	r.v = &r.a.VIPs[0]
	r.v.Protocol, r.v.Scheme, r.v.Policy, r.v.CookieBits = protocol, "jet", "hash", 0
	r.v.Hash, r.v.HashRows, r.v.WarmUp, r.v.Share = chash.Kind(hash), 16384, 7440*time.Second, true
	if protocol == "udp" {
		r.v.WarmUp = 2 * time.Minute
	}
	if hash == "anchor" || hash == "dx" {
		r.v.Capacity = active + 16
	}
	for n := range active {
		r.add(uint16(n), controller.Active)
	}
	r.apply()
	return r
}

// reopen closes the balancer and opens it again, by the same clock.
func (r *tracking) reopen(o Options) {
	r.t.Helper()
	if r.l != nil {
		r.l.Close()
	}
	r.l = r.open(o)
	r.l.now = func() time.Time { return r.time }
}

// add puts a server into a slot.
func (r *tracking) add(n uint16, state controller.State) *controller.Slot {
	s := controller.Slot{Number: n, Server: "s" + netip.AddrFrom4([4]byte{0, 0, byte(n >> 8), byte(n)}).String(), Address: serverOf(n), Weight: 1, State: state}
	at, _ := slices.BinarySearchFunc(r.v.Slots, n, func(s controller.Slot, n uint16) int { return int(s.Number) - int(n) })
	r.v.Slots = slices.Insert(r.v.Slots, at, s)
	return &r.v.Slots[at]
}

// serverOf is the address of the server in a slot.
func serverOf(slot uint16) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 79, byte(slot >> 8), byte(slot)})
}

func (r *tracking) slot(n uint16) *controller.Slot {
	s, _ := r.v.Slot(n)
	return s
}

// apply brings the assignment and the health as they are into force.
func (r *tracking) apply() {
	r.t.Helper()
	r.a.Version++
	due, err := r.l.Apply(r.a, func(_ uint32, slot uint16) bool { return r.down[slot] })
	if err != nil {
		r.t.Fatal(err)
	}
	r.due = due
}

// drain and undrain are the controller's steps.
func (r *tracking) drain(n uint16) {
	r.slot(n).State, r.slot(n).DrainSince = controller.Draining, r.time
	r.apply()
}

func (r *tracking) activate(n uint16) {
	r.slot(n).State, r.slot(n).DrainSince = controller.Active, time.Time{}
	r.apply()
}

// pass lets time pass: for the plan and for packets.
func (r *tracking) pass(d time.Duration) {
	r.t.Helper()
	r.time = r.time.Add(d)
	c, err := r.l.set.readControl()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.l.set.writeControl(unsafe.Offsetof(bpf.Control{}.ClockBase), c.ClockBase+uint32(d.Milliseconds())); err != nil {
		r.t.Fatal(err)
	}
}

// client is a client whose port nobody had before, nearly surely.
func (r *tracking) client() netip.AddrPort {
	n := r.rand.Uint64()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18 | byte(n>>16)&1, byte(n >> 8), byte(n)}), uint16(n>>32)|1024)
}

// send runs one frame and says to which server it went; invalid: it was
// dropped.
func (r *tracking) send(frame []byte) netip.Addr {
	r.t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1}
	action, err := everyFrame(r.t, r.l.running()).Run(&o)
	if err != nil {
		r.t.Fatal(err)
	}
	if action != xdpTX && action != xdpRedirect {
		return netip.Addr{}
	}
	_, outer, err := wire.Decapsulate(o.DataOut[wire.EthernetLen:])
	if err != nil {
		r.t.Fatal(err)
	}
	return outer.Dst
}

// packet is a client's: its flags in TCP, any datagram in UDP.
func (r *tracking) packet(c netip.AddrPort, flags uint8) []byte {
	dst := netip.AddrPortFrom(r.v.Address, r.v.Port)
	if r.v.Protocol == "udp" {
		return wire.UDP{Src: c, Dst: dst, Payload: []byte("?")}.Frame()
	}
	return wire.TCP{Src: c, Dst: dst, Flags: flags}.Frame()
}

// initial is the first packet of a QUIC connection, version 1.
func (r *tracking) initial(c netip.AddrPort) []byte {
	payload := make([]byte, 1200)
	payload[0], payload[4] = 0xc0, 1
	return wire.UDP{Src: c, Dst: netip.AddrPortFrom(r.v.Address, r.v.Port), Payload: payload}.Frame()
}

// talks are connections and their servers.
type talks map[netip.AddrPort]netip.Addr

// opens opens n connections, of which the handshake is seen, and a packet more.
func (r *tracking) opens(n int) talks {
	r.t.Helper()
	c := talks{}
	for range n {
		client := r.client()
		to := r.send(r.packet(client, wire.SYN))
		if got := r.send(r.packet(client, wire.ACK)); !to.IsValid() || got != to {
			r.t.Fatalf("%v: first packet to %v, second to %v", client, to, got)
		}
		c[client] = to
	}
	return c
}

// goOn sends a packet of each connection, none of which may go elsewhere.
func (r *tracking) goOn(when string, all ...talks) {
	r.t.Helper()
	broken, n := 0, 0
	for _, c := range all {
		for client, to := range c {
			n++
			if got := r.send(r.packet(client, wire.ACK)); got != to {
				if broken++; broken < 4 {
					r.t.Errorf("%s: %v went to %v, was on %v", when, client, got, to)
				}
			}
		}
	}
	if broken > 0 {
		r.t.Fatalf("%s: %d of %d connections broke", when, broken, n)
	}
}

// to counts the connections on the server of a slot.
func (c talks) to(slot uint16) (n int) {
	for _, a := range c {
		if a == serverOf(slot) {
			n++
		}
	}
	return n
}

// counted is the VIP's counters.
func (r *tracking) counted() VIPCounters {
	r.t.Helper()
	return r.counters(r.l).VIPs[0]
}

func (r *tracking) sweep() FlowStats {
	r.t.Helper()
	s, err := r.l.FlowSweep(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// flowLimits are options with another size of the flow table.
func (r *tracking) flowLimits(flows int) Options {
	o := r.l.o
	o.Limits = config.Limits{ServerLines: 256, TableEntries: 1 << 18, Flows: flows, Seats: 1024, RateSources: 256, AskRate: 100}
	return o
}
