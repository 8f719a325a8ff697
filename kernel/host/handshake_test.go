package host

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// handshakes runs host_handshake on one packet at a time, in a namespace that has
// listeners at the VIPs, beside scheme/cheetah's model of the SYN cookie.
type handshakes struct {
	*packets
	rig    *hosttest.Rig
	random *rand.Rand
}

const (
	tcUnspec, tcShot, tcRedirect = -1, 2, 7
	handshakeScale               = 7
)

var handshakeKey = hash.Key{0x1122334455667788, 0x99aabbccddeeff00}

func loadHandshakes(t *testing.T) *handshakes {
	t.Helper()
	h := &handshakes{packets: loadPackets(t), random: soak.Rand(t)}
	h.flags = uint16(bpf.HostVIPOffload)
	h.fill()
	var err error
	if h.rig, err = hosttest.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.rig.Close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(h.rig.Server.Sysctl("net.ipv4.tcp_syncookies", "1"))
	must(h.rig.Server.Do(func() error {
		for _, file := range forwardingFiles {
			if err := os.WriteFile(file, []byte("1"), 0); err != nil {
				return err
			}
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, vip := range []netip.AddrPort{packetVIP4, packetVIP6} {
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(vip.Addr().AsSlice()), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
			var c net.ListenConfig
			c.SetMultipathTCP(false)
			l, err := c.Listen(context.Background(), "tcp", vip.String())
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
		}
		return nil
	}))
	h.settings(bpf.OffloadOn | bpf.OffloadSack | bpf.OffloadWscale | bpf.OffloadEcn)
	for id := range uint32(2) {
		must(h.o.HostOffloaded.Put(id+1, make([]bpf.OffloadCount, ebpf.MustPossibleCPU())))
	}
	return h
}

func (h *handshakes) settings(flags bpf.OffloadFlags) {
	h.t.Helper()
	if err := h.o.HostOffload.Put(uint32(0), bpf.Offload{Key: handshakeKey, Flags: uint32(flags), Wscale: handshakeScale, Ttl: 33, HopLimit: 44}); err != nil {
		h.t.Fatal(err)
	}
}

// run is the program's verdict, the frame as it left it, and the reason that it counted.
func (h *handshakes) run(frame []byte) (verdict int32, out []byte, reason string) {
	h.t.Helper()
	before := h.reasons()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+128)}
	err := h.rig.Server.Do(func() error {
		ret, err := h.o.HostHandshake.Run(&o)
		verdict = int32(ret)
		return err
	})
	if err != nil {
		h.t.Fatalf("test run of %d bytes: %v", len(frame), err)
	}
	for name, n := range h.reasons() {
		if n != before[name] {
			reason += name
		}
	}
	return verdict, o.DataOut, reason
}

func (h *handshakes) reasons() map[string]uint64 {
	h.t.Helper()
	list, err := kernel.ReadReasons(h.o.HostReasons, reasonNames)
	if err != nil {
		h.t.Fatal(err)
	}
	m := map[string]uint64{}
	for _, r := range list {
		m[r.Name] = r.Packets
	}
	return m
}

// ends are a client that the server has a route to, and the VIP.
func (h *handshakes) ends(ipv6 bool) (client, vip netip.AddrPort) {
	port := uint16(1024 + h.random.IntN(60000))
	if ipv6 {
		b := hosttest.Client6.As16()
		binary.BigEndian.PutUint32(b[12:], h.random.Uint32()|1<<31)
		return netip.AddrPortFrom(netip.AddrFrom16(b), port), packetVIP6
	}
	b := hosttest.Client4.As4()
	b[3] = byte(3 + h.random.IntN(250))
	return netip.AddrPortFrom(netip.AddrFrom4(b), port), packetVIP4
}

// offer draws what a SYN offers, and its options.
func (h *handshakes) offer() (o cheetah.Offer, options []byte, tsval uint32, timestamps bool) {
	r := h.random
	o = cheetah.Offer{Scale: cheetah.NoScale}
	var parts [][]byte
	if r.IntN(8) > 0 {
		o.MSS = []uint16{536, 1220, 1300, 1459, 1460, 8960, 9000, uint16(400 + r.IntN(9000))}[r.IntN(8)]
		parts = append(parts, wire.MSS(o.MSS))
	}
	timestamps = r.IntN(4) > 0
	tsval = r.Uint32()
	if timestamps {
		parts = append(parts, wire.BareTimestamp(tsval, 0))
	}
	if r.IntN(4) > 0 {
		parts = append(parts, wire.SACKPermitted())
		o.SACK = true
	}
	if r.IntN(4) > 0 {
		scale := uint8(r.IntN(16))
		parts = append(parts, wire.WindowScale(scale))
		o.Scale = min(scale, 14)
	}
	if r.IntN(4) == 0 {
		parts = append(parts, []byte{34, 2}) // a cookie of TCP Fast Open is asked for
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, p := range parts {
		options = append(options, p...)
		options = append(options, wire.NOPs(r.IntN(3))...)
	}
	for len(options)%4 != 0 {
		options = append(options, 1)
	}
	if len(options) > 40 {
		return h.offer()
	}
	if !timestamps {
		o.Scale, o.SACK = cheetah.NoScale, false
	}
	return o, options, tsval, timestamps
}

// answered holds an answer against the model.
func (h *handshakes) answered(what string, client, vip netip.AddrPort, isn, tsval uint32, offer cheetah.Offer, timestamps bool, out []byte) {
	h.t.Helper()
	p := wire.Parse(out)
	if p.Err != nil || len(p.ChecksumErrors()) > 0 {
		h.t.Fatalf("%s: answer %x: %v, %v", what, out, p.Err, p.ChecksumErrors())
	}
	ipv6 := vip.Addr().Is6()
	flags := uint8(wire.SYN | wire.ACK)
	if offer.ECN {
		flags |= 0x40
	}
	if p.Source() != vip || p.Destination() != client || p.Flags != flags || p.Ack != isn+1 {
		h.t.Fatalf("%s: %v to %v, flags %#x, acknowledges %#x (sent %#x)", what, p.Source(), p.Destination(), p.Flags, p.Ack, isn)
	}
	if ttl := map[bool]uint8{false: 33, true: 44}[ipv6]; p.TTL != ttl {
		h.t.Fatalf("%s: TTL %d, want %d", what, p.TTL, ttl)
	}
	m := cheetah.Handshake{Timestamps: timestamps, Scale: handshakeScale}
	want := wire.MSS(1300) // the VIP's, which is less than the device's
	if timestamps {
		if p.Timestamp == nil || p.Timestamp.Ecr != tsval {
			h.t.Fatalf("%s: timestamp %+v, want an echo of %#x", what, p.Timestamp, tsval)
		}
		now := uint32(kernel.MonotonicMS()) + packetD
		d := h.layout().Decode(packetKeys, packetEpochs, client, vip.Port(), p.Timestamp.Val, now)
		if d.Slot != packetSlot || d.AgeMS < 0 || d.AgeMS > 10000 {
			h.t.Fatalf("%s: TSval %#x is decoded as %+v at %#x", what, p.Timestamp.Val, d, now)
		}
		m.Connection, m.Time = d.Hash, p.Timestamp.Val
		if offer.SACK {
			want = append(want, wire.SACKPermitted()...)
		} else {
			want = append(want, 1, 1)
		}
		want = append(want, wire.BareTimestamp(p.Timestamp.Val, tsval)...)
		if offer.Scale == cheetah.NoScale {
			want = append(want, 1, 1, 1, 1)
		} else {
			want = append(append(want, 1), wire.WindowScale(handshakeScale)...)
		}
	} else {
		m.Connection = cheetah.Bare(handshakeKey, client, vip.Port(), map[bool]uint32{false: 1, true: 2}[ipv6])
		m.Time = (uint32(kernel.MonotonicMS()) + packetD) / (cheetah.OffloadMS / 2)
	}
	if string(p.Options) != string(want) {
		h.t.Fatalf("%s: options %x, want %x", what, p.Options, want)
	}
	n, ok := m.Number(handshakeKey, isn, offer, ipv6)
	if !timestamps && p.Seq != n {
		m.Time-- // the clock went on
		n, ok = m.Number(handshakeKey, isn, offer, ipv6)
	}
	if !ok || p.Seq != n {
		h.t.Fatalf("%s: number %#x, the model says %#x, %v", what, p.Seq, n, ok)
	}
}

// Answers are the model's, whatever SYNs offer and in whatever order.
func TestHandshakeSYN(t *testing.T) {
	t.Parallel()
	h := loadHandshakes(t)
	rounds := 600
	if soak.On() {
		rounds = 20000
	}
	answers := 0
	for range rounds {
		ipv6 := h.random.IntN(2) == 1
		client, vip := h.ends(ipv6)
		offer, options, tsval, timestamps := h.offer()
		flags := uint8(wire.SYN)
		if h.random.IntN(3) == 0 {
			flags |= 0xc0
			offer.ECN = timestamps
		}
		isn := h.random.Uint32()
		frame := wire.TCP{Src: client, Dst: vip, Seq: isn, Flags: flags, Options: options, Window: 64240}.Frame()
		least := map[bool]uint16{false: 536, true: 1220}[ipv6]
		if offer.MSS == 0 && len(options) == 0 || !hasMSS(options) {
			offer.MSS = least
		}
		verdict, out, reason := h.run(frame)
		if offer.MSS < least {
			if verdict != tcUnspec || reason != "stack_form" {
				t.Fatalf("MSS %d: verdict %d, %s", offer.MSS, verdict, reason)
			}
			continue
		}
		if verdict != tcRedirect || reason != "handshake_answered" {
			t.Fatalf("%x: verdict %d, %q", frame, verdict, reason)
		}
		answers++
		h.answered("SYN", client, vip, isn, tsval, offer, timestamps, out)
	}
	if answers < rounds/2 {
		t.Errorf("%d of %d SYNs were answered", answers, rounds)
	}
}

// whole is the least that test runs take: an IP header.
func whole(frame []byte) int {
	if frame[14]>>4 == 6 {
		return 14 + 40
	}
	return 14 + 20
}

func hasMSS(options []byte) bool {
	for i := 0; i < len(options); {
		switch {
		case options[i] == 1:
			i++
		case options[i] == wire.OptionMSS:
			return true
		default:
			i += int(options[i+1])
		}
	}
	return false
}

// What is not answered goes to the stack as it came, with its reason; and so do right
// packets that are cut off anywhere.
func TestHandshakeStack(t *testing.T) {
	t.Parallel()
	h := loadHandshakes(t)
	client, vip := h.ends(false)
	client6, vip6 := h.ends(true)
	syn := wire.TCP{Src: client, Dst: vip, Seq: 7, Flags: wire.SYN, Options: wire.SYNOptions(1460, 9)}
	syn6 := wire.TCP{Src: client6, Dst: vip6, Seq: 7, Flags: wire.SYN, Options: wire.SYNOptions(1440, 9)}
	with := func(f func(*wire.TCP)) []byte {
		s := syn
		f(&s)
		return s.Frame()
	}
	damaged := syn.Frame()
	damaged[len(damaged)-1] ^= 1
	for _, c := range []struct {
		what, reason string
		frame        []byte
	}{
		{"data", "stack_form", with(func(s *wire.TCP) { s.Payload = []byte("GET /") })},
		{"MD5", "stack_form", with(func(s *wire.TCP) { s.Options = append([]byte{19, 18}, make([]byte, 18)...) })},
		{"an option that is too long", "stack_form", with(func(s *wire.TCP) { s.Options = []byte{2, 9, 1, 1} })},
		{"wrong checksum", "stack_form", damaged},
		{"nobody listens", "", with(func(s *wire.TCP) { s.Dst = netip.AddrPortFrom(vip.Addr(), 81) })},
		{"no route", "stack_route", with(func(s *wire.TCP) { s.Src = netip.MustParseAddrPort("203.0.113.9:99") })},
		{"SYN and FIN", "", with(func(s *wire.TCP) { s.Flags |= wire.FIN })},
		{"SYN and RST", "", with(func(s *wire.TCP) { s.Flags |= wire.RST })},
		{"SYN and ACK", "", with(func(s *wire.TCP) { s.Flags |= wire.ACK })},
		{"RST", "", with(func(s *wire.TCP) { s.Flags = wire.RST })},
		{"an ACK of nothing", "", with(func(s *wire.TCP) { s.Flags, s.Options = wire.ACK, wire.Timestamp(1, 2) })},
	} {
		verdict, out, reason := h.run(c.frame)
		if verdict != tcUnspec || reason != c.reason || string(out) != string(c.frame) {
			t.Errorf("%s: verdict %d, %q, want %q; changed: %v", c.what, verdict, reason, c.reason, string(out) != string(c.frame))
		}
	}
	for _, frame := range [][]byte{syn.Frame(), syn6.Frame()} {
		for n := whole(frame); n < len(frame); n++ {
			if verdict, out, reason := h.run(frame[:n]); verdict != tcUnspec || string(out) != string(frame[:n]) {
				t.Errorf("cut off at %d: verdict %d, %q", n, verdict, reason)
			}
		}
	}
	h.settings(0)
	if verdict, _, reason := h.run(syn.Frame()); verdict != tcUnspec || reason != "stack_settings" {
		t.Errorf("switched off: verdict %d, %q", verdict, reason)
	}
}

// ACKs are told apart as the model tells them apart: the first segment, later ones, late
// ones, and what is forged.
func TestHandshakeACK(t *testing.T) {
	t.Parallel()
	h := loadHandshakes(t)
	rounds := 800
	if soak.On() {
		rounds = 20000
	}
	seen := map[string]int{}
	for range rounds {
		r := h.random
		ipv6 := r.IntN(2) == 1
		client, vip := h.ends(ipv6)
		timestamps := r.IntN(3) > 0
		offer := cheetah.Offer{MSS: 1460, Scale: cheetah.NoScale}
		isn, age := r.Uint32(), uint32(r.IntN(40000))
		m := cheetah.Handshake{Timestamps: timestamps, Scale: handshakeScale}
		if timestamps {
			offer = cheetah.Offer{MSS: 1460, Scale: uint8(r.IntN(16)), SACK: r.IntN(2) == 1, ECN: r.IntN(2) == 1}
			m.Time = h.cookie(client, vip, packetSlot, 0, age)
			m.Connection = hash.Tuple(packetKeys[0], client, vip.Port())
		} else {
			m.Time = packetNow/(cheetah.OffloadMS/2) - age%3
			m.Connection = cheetah.Bare(handshakeKey, client, vip.Port(), map[bool]uint32{false: 1, true: 2}[ipv6])
		}
		number, _ := m.Number(handshakeKey, isn, offer, ipv6)
		seq, ack := isn+1, number+1
		switch r.IntN(5) {
		case 0:
			seq += uint32(1 + r.IntN(3000))
		case 1:
			ack ^= 1 << r.IntN(32)
		}
		options := []byte{}
		if timestamps {
			options = wire.Timestamp(r.Uint32(), m.Time)
		}
		frame := wire.TCP{Src: client, Dst: vip, Seq: seq, Ack: ack, Flags: wire.ACK, Options: options, Payload: make([]byte, r.IntN(20))}.Frame()
		end := m.End(handshakeKey, ack-1, seq-1, ipv6)
		if !timestamps && !end.Early { // whichever of the two halves fits
			for back := range uint32(2) {
				m.Time = packetNow/(cheetah.OffloadMS/2) - back
				if e := m.End(handshakeKey, ack-1, seq-1, ipv6); e.Early && !end.Early {
					end = e
				}
			}
		} else if !timestamps && age%3 == 2 {
			end = cheetah.Ended{}
		}
		// The kernel takes nothing outside of a device's own way in: it is asked, and refuses.
		want, verdict := "", int32(tcUnspec)
		switch {
		case !end.Early:
		case !end.Whole:
			want, verdict = "drop_early", tcShot
		case timestamps && age > cheetah.OffloadMS:
			want = "handshake_late"
		default:
			want = "handshake_"
		}
		got, out, reason := h.run(frame)
		if want == "handshake_" && (reason == "handshake_opened" || reason == "handshake_refused") {
			want = reason
		}
		if got != verdict || reason != want || string(out) != string(frame) {
			t.Fatalf("age %d, timestamps %v, %+v: verdict %d, %q; want %d, %q", age, timestamps, end, got, reason, verdict, want)
		}
		seen[want]++
		for n := whole(frame); n < len(frame) && seen[want] < 3; n++ {
			if got, _, reason := h.run(frame[:n]); got != tcUnspec {
				t.Fatalf("cut off at %d: verdict %d, %q", n, got, reason)
			}
		}
	}
	for _, what := range []string{"", "drop_early", "handshake_late"} {
		if seen[what] == 0 {
			t.Errorf("%q was never met: %v", what, seen)
		}
	}
}
