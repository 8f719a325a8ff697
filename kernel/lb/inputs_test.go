package lb

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// everyFrame is a balancer's program, which from now on takes frames that did
// not come by its interface, as those of test runs.
func everyFrame(t testing.TB, o *objects) *ebpf.Program {
	t.Helper()
	if err := o.writeControl(unsafe.Offsetof(bpf.Control{}.Inputs), uint32(0)); err != nil {
		t.Fatal(err)
	}
	return o.Programs[progLB]
}

// inputs says which frames are the rig's, of which all have been so far.
func (r *rig) inputs(all ...input) {
	r.t.Helper()
	var cache [1 << bpf.InputBits]bpf.Input
	err := clearInputs(r.o.Inputs)
	for _, i := range all {
		e := i.entry()
		cache[inputLine(e)] = e
		err = errors.Join(err, r.o.Inputs.Put(e, uint32(0)))
	}
	if err := errors.Join(err, r.o.InputCache.Set(cache)); err != nil {
		r.t.Fatal(err)
	}
	r.ways = uint32(len(all))
	r.setClock(rigNow)
}

func inputEntries(m *ebpf.Map) (all []bpf.Input, err error) {
	var e bpf.Input
	var nothing uint32
	entries := m.Iterate()
	for entries.Next(&e, &nothing) {
		all = append(all, e)
	}
	return all, entries.Err()
}

func clearInputs(m *ebpf.Map) error {
	all, err := inputEntries(m)
	for _, e := range all {
		err = errors.Join(err, m.Delete(e))
	}
	return err
}

// A frame that the kernel would not take is not forwarded, nor answered, nor
// changed.
func TestFramesOfOthers(t *testing.T) {
	own, second, other := wire.MAC{2, 0, 0, 0, 0, 2}, wire.MAC{0, 0, 0x5e, 0, 1, 7}, wire.MAC{2, 0, 0, 0, 0, 3}
	r := standard(t, bpf.PolicyRR)
	r.inputs(input{1, 0, own}, input{1, 42, own}, input{1, 0, second}, input{2, 0, other}, input{2, 43, own})
	for _, c := range []netip.AddrPort{client4, client6} {
		syn, udp := segment(c, wire.SYN, wire.MSS(1460)), wire.UDP{Src: c, Dst: segment(c, 0, nil).Dst, Payload: []byte("?")}
		echo := wire.Echo(c.Addr(), syn.Dst.Addr(), 1, 1, nil, false)
		for name, frame := range map[string]func(wire.Link) []byte{
			"known":    func(l wire.Link) []byte { f := known(c, l.VLAN, nil); copy(f, l.Dst[:]); return f },
			"SYN":      func(l wire.Link) []byte { syn.Link = l; return syn.Frame() },
			"datagram": func(l wire.Link) []byte { udp.Link = l; return udp.Frame() },
			"echo":     func(l wire.Link) []byte { echo.Link = l; return echo.Frame() },
			"error":    func(l wire.Link) []byte { e := quoting(c, reply(c, nil).Packet(), 100); e.Link = l; return e.Frame() },
		} {
			for _, l := range []struct {
				link wire.Link
				mine bool
			}{
				{wire.Link{Dst: own}, true}, {wire.Link{Dst: own, VLAN: 42}, true}, {wire.Link{Dst: own, VLAN: 0xe000 | 42}, true}, {wire.Link{Dst: second}, true},
				{wire.Link{Dst: other}, false}, {wire.Link{Dst: other, VLAN: 42}, false}, {wire.Link{Dst: second, VLAN: 42}, false},
				{wire.Link{Dst: own, VLAN: 43}, false}, {wire.Link{Dst: own, VLAN: 41}, false},
				{wire.Link{Dst: wire.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}, false}, {wire.Link{Dst: wire.MAC{1, 0, 0x5e, 0, 0, 2}}, false},
				{wire.Link{Dst: wire.MAC{0x33, 0x33, 0, 0, 0, 2}, VLAN: 42}, false},
			} {
				f := frame(l.link)
				reason, action, out := r.why(f)
				if mine := reason != bpf.PassNotMine; mine != l.mine || !mine && (action != xdpPass || !bytes.Equal(f, out)) {
					t.Errorf("%s of %v to %v in VLAN %d: reason %v action %d", name, c, l.link.Dst, l.link.VLAN, reason, action)
				}
			}
			// A tag without a VLAN is as none.
			if reason, _, _ := r.why(frame(wire.Link{Dst: own, VLAN: 0xe000})); reason == bpf.PassNotMine {
				t.Errorf("%s of %v with a priority alone is not ours", name, c)
			}
		}
	}
	// Go and C agree on the cache's lines: it alone knows these now.
	if err := errors.Join(r.o.Inputs.Delete(input{1, 0, own}.entry()), r.o.Inputs.Delete(input{1, 42, own}.entry())); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []uint16{0, 42} {
		if reason, action, _ := r.why(known(client4, tag, nil)); reason != bpf.ReasonCount || action != xdpTX {
			t.Errorf("tag %d by the cache: reason %v action %d", tag, reason, action)
		}
	}
	// And what the cache has no line for is in the map.
	if err := r.o.InputCache.Set(make([]bpf.Input, 1<<bpf.InputBits)); err != nil {
		t.Fatal(err)
	}
	f := known(client4, 0, nil)
	copy(f, second[:])
	if reason, action, _ := r.why(f); reason != bpf.ReasonCount || action != xdpTX {
		t.Errorf("by the map: reason %v action %d", reason, action)
	}
}

// Neither a wrong checksum of the IPv4 header nor an ended time to live gets to
// a server; one hop left is enough, as at any host.
func TestUnsoundHeaders(t *testing.T) {
	r := standard(t, bpf.PolicyRR)
	at := func(tag uint16) int { return wire.EthernetLen + map[bool]int{true: wire.VLANLen}[tag != 0] }
	for _, c := range []netip.AddrPort{client4, client6} {
		for _, tag := range []uint16{0, 42} {
			for _, options := range [][]byte{nil, wire.NOPs(4), wire.NOPs(40)} {
				s := segment(c, wire.ACK, wire.Timestamp(1, echo(12, 0, 2, c, 80, 0)))
				s.VLAN, s.IP.Options = tag, options
				u := wire.UDP{Src: c, Dst: s.Dst, VLAN: tag, IP: s.IP}
				for name, good := range map[string][]byte{"segment": s.Frame(), "datagram": u.Frame()} {
					ttl := at(tag) + map[bool]int{true: 8, false: 7}[c.Addr().Is4()]
					for value, malformed := range map[byte]bool{0: true, 1: false, 255: false} {
						f := bytes.Clone(good)
						f[ttl] = value
						summed(f)
						if reason, action, _ := r.why(f); (reason == bpf.DropMalformedIP && action == xdpDrop) != malformed {
							t.Errorf("%s of %v, tag %d, %d bytes of options, %d hops left: reason %v action %d", name, c, tag, len(options), value, reason, action)
						}
					}
					for i := 0; c.Addr().Is4() && i < 20+len(options); i++ {
						f := bytes.Clone(good)
						f[at(tag)+i] ^= 0x10
						reason, _, out := r.why(f)
						if i < 16 && i != 0 && reason != bpf.DropMalformedIP || i >= 16 && i < 20 && reason != bpf.PassNoVIP || i >= 20 && reason != bpf.DropMalformedIP {
							t.Errorf("%s, tag %d, %d bytes of options, byte %d of the header changed: reason %v, % x", name, tag, len(options), i, reason, out)
						}
					}
				}
			}
		}
	}
}

func TestInputsOf(t *testing.T) {
	mac := func(n int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 1, byte(n)} }
	attrs := func(index, parent, master, address int) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Index, a.ParentIndex, a.MasterIndex, a.HardwareAddr = index, parent, master, mac(address)
		return a
	}
	vlan := func(a netlink.LinkAttrs, id int, protocol netlink.VlanProtocol) netlink.Link {
		return &netlink.Vlan{LinkAttrs: a, VlanId: id, VlanProtocol: protocol}
	}
	elsewhere := attrs(9, 2, 0, 9)
	elsewhere.NetNsID = 3
	tunnel := attrs(10, 2, 0, 0)
	tunnel.HardwareAddr = nil
	for _, c := range []struct {
		name     string
		attached []int
		links    []netlink.Link
		want     string // interface/VLAN/last byte of the address
	}{
		{"a card", []int{2}, []netlink.Link{&netlink.Device{LinkAttrs: attrs(2, 0, 0, 1)}, &netlink.Device{LinkAttrs: attrs(3, 0, 0, 2)}}, "2/0/1"},
		{"two cards", []int{2, 3}, []netlink.Link{&netlink.Device{LinkAttrs: attrs(2, 0, 0, 1)}, &netlink.Device{LinkAttrs: attrs(3, 0, 0, 2)}}, "2/0/1 3/0/2"},
		{"VLANs, one with an address of its own, and of two tags", []int{2}, []netlink.Link{&netlink.Device{LinkAttrs: attrs(2, 0, 0, 1)},
			vlan(attrs(3, 2, 0, 1), 42, netlink.VLAN_PROTOCOL_8021Q), vlan(attrs(4, 2, 0, 4), 43, netlink.VLAN_PROTOCOL_8021Q),
			vlan(attrs(5, 3, 0, 5), 7, netlink.VLAN_PROTOCOL_8021Q), vlan(attrs(6, 2, 0, 6), 8, netlink.VLAN_PROTOCOL_8021AD)},
			"2/0/1 2/0/4 2/42/1 2/43/1 2/43/4"},
		{"VRRP's macvlan, and on a VLAN", []int{2}, []netlink.Link{&netlink.Device{LinkAttrs: attrs(2, 0, 0, 1)},
			&netlink.Macvlan{LinkAttrs: attrs(3, 2, 0, 3)}, vlan(attrs(4, 2, 0, 1), 42, netlink.VLAN_PROTOCOL_8021Q), &netlink.Macvlan{LinkAttrs: attrs(5, 4, 0, 5)}},
			"2/0/1 2/0/3 2/0/5 2/42/1 2/42/5"},
		{"a bond", []int{4}, []netlink.Link{&netlink.Device{LinkAttrs: attrs(2, 0, 4, 1)}, &netlink.Device{LinkAttrs: attrs(3, 0, 4, 2)},
			&netlink.Bond{LinkAttrs: attrs(4, 0, 0, 1)}, vlan(attrs(5, 4, 0, 1), 42, netlink.VLAN_PROTOCOL_8021Q)},
			"2/0/1 2/42/1 3/0/1 3/0/2 3/42/1 3/42/2 4/0/1 4/42/1"},
		{"a member of a bond", []int{2}, []netlink.Link{&netlink.Device{LinkAttrs: attrs(2, 0, 4, 1)}, &netlink.Device{LinkAttrs: attrs(3, 0, 4, 2)},
			&netlink.Bond{LinkAttrs: attrs(4, 0, 0, 9)}}, "2/0/1 2/0/9"},
		{"a bridge's port", []int{2}, []netlink.Link{&netlink.Device{LinkAttrs: attrs(2, 0, 4, 1)}, &netlink.Device{LinkAttrs: attrs(3, 0, 4, 2)},
			&netlink.Bridge{LinkAttrs: attrs(4, 0, 0, 4)}}, "2/0/1 2/0/4"},
		{"a veth's other end, another namespace's macvlan, a device without address", []int{2}, []netlink.Link{&netlink.Veth{LinkAttrs: attrs(2, 3, 0, 1)},
			&netlink.Veth{LinkAttrs: attrs(3, 2, 0, 3)}, &netlink.Macvlan{LinkAttrs: elsewhere}, &netlink.Macvlan{LinkAttrs: tunnel}}, "2/0/1"},
		{"gone", []int{2}, nil, ""},
	} {
		attached := map[int]bool{}
		for _, i := range c.attached {
			attached[i] = true
		}
		var got []string
		for i := range inputsOf(c.links, attached) {
			got = append(got, fmt.Sprintf("%d/%d/%d", i.ifindex, i.vlan, i.mac[5]))
		}
		slices.Sort(got)
		if fmt.Sprint(got) != "["+c.want+"]" {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

// In a network: what is flooded reaches no server, and what is this machine's
// does, also when its addresses change.
func TestInputsFollowTheInterface(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	if _, err := l.Apply(assignment(1, 11), nil); err != nil {
		t.Fatal(err)
	}
	w.run(l)
	port := uint16(2000)
	arrives := func(dst wire.MAC, vlan uint16) bool {
		port++
		frame := wire.TCP{Link: wire.Link{Src: w.netMAC, Dst: dst, VLAN: vlan}, Src: netip.AddrPortFrom(netip.MustParseAddr(wiredClient), port),
			Dst: netip.AddrPortFrom(netip.MustParseAddr(wiredVIP), 80), Flags: wire.SYN}.Frame()
		w.transmit(frame)
		return w.receive(100*time.Millisecond, func(f []byte) bool {
			in, _, err := wire.Decapsulate(wire.Parse(f).Packet())
			return err == nil && wire.ParsePacket(in).SrcPort == port
		}) != nil
	}
	all := wire.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	eventually(t, "the server gets packets", func() bool { return arrives(w.lbMAC, 0) })
	for _, dst := range []wire.MAC{all, {0x33, 0x33, 0, 0, 0, 1}, {2, 7, 7, 7, 7, 7}} {
		if arrives(dst, 0) {
			t.Errorf("a frame to %v was forwarded", dst)
		}
	}
	if arrives(w.lbMAC, 42) {
		t.Error("a frame of another VLAN was forwarded")
	}
	if n := w.counters(l).reason("pass_not_mine"); n < 4 {
		t.Errorf("%d packets counted", n)
	}

	moved, virtual := wire.MAC{2, 8, 8, 8, 8, 8}, wire.MAC{0, 0, 0x5e, 0, 1, 9}
	inNS(t, w.lb, func() {
		dev := must(netlink.LinkByName("lb0"))
		check(netlink.LinkSetHardwareAddr(dev, moved[:]))
		over := netlink.NewLinkAttrs()
		over.Name, over.ParentIndex, over.HardwareAddr = "vrrp", dev.Attrs().Index, virtual[:]
		check(netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: over, Mode: netlink.MACVLAN_MODE_PRIVATE}))
	})
	eventually(t, "frames to the new addresses are forwarded", func() bool { return arrives(moved, 0) && arrives(virtual, 0) })
	if arrives(w.lbMAC, 0) || arrives(all, 0) {
		t.Error("a frame to the address before, or to all, was forwarded")
	}
}

// Entries that share a line of the cache do not push each other out, and a line
// that is free goes to one that is left.
func TestInputsOnOneLine(t *testing.T) {
	set := newPair(t, 1).twin.set
	first := input{1, 0, wire.MAC{2, 0, 0, 0, 0, 2}}
	second := first
	for second.vlan++; inputLine(second.entry()) != inputLine(first.entry()); second.ifindex++ {
	}
	write := func(inputs ...input) (onLine bpf.Input) {
		want := map[bpf.Input]bool{}
		for _, i := range inputs {
			want[i.entry()] = true
		}
		err := set.writeInputs(want)
		all, readErr := inputEntries(set.Maps[mapInputs])
		cacheErr := set.readAt(mapInputCache, int64(inputLine(first.entry()))*int64(unsafe.Sizeof(onLine)), &onLine)
		if err := errors.Join(err, readErr, cacheErr); err != nil {
			t.Fatal(err)
		}
		if len(all) != len(want) || !want[all[0]] || !want[all[len(all)-1]] {
			t.Errorf("map has %v, want %v", all, want)
		}
		if c, err := set.readControl(); err != nil || c.Inputs != uint32(len(want)) {
			t.Errorf("%d inputs (%v)", c.Inputs, err)
		}
		return onLine
	}
	write(first)
	for range 20 { // maps are read in any order
		if e := write(first, second); e != first.entry() {
			t.Fatalf("line has %+v", e)
		}
	}
	if e := write(second); e != second.entry() {
		t.Errorf("line has %+v", e)
	}
}
