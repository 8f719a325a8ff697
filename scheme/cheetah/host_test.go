package cheetah

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/wire"
)

// What a server stamped and a client echoes comes back, by every way in, with
// right checksums; a cookie of another slot stays as it is, and so does what is
// sent to another server.
func TestHostIn(t *testing.T) {
	const own, now, slot = 0x1234_5678, 0x8765_4321, 5
	key, l := hash.Key{1, 2}, Layout{Bits: 12}
	client, vip := netip.MustParseAddrPort("198.51.100.7:40000"), netip.MustParseAddrPort("192.0.2.1:80")
	h := Host{Layout: l, Keys: [2]hash.Key{key}, Epochs: 1, Slots: [2]uint32{slot, 9}, NowMS: now, ClockD: now - own,
		Services: []Service{{vip, netip.MustParseAddr("10.0.0.5")}}}
	for _, c := range []struct {
		slot   uint32
		outer  *wire.Outer
		echoed bool // the client's timestamp is seen as it was stamped
		taken  bool // out of its tunnel
	}{
		{slot, nil, true, false},
		{9, nil, true, false},
		{6, nil, false, false},
		{slot, &wire.Outer{Tunnel: wire.IPIP, Dst: netip.MustParseAddr("10.0.0.5")}, true, true},
		{slot, &wire.Outer{Tunnel: wire.GUE, Dst: netip.MustParseAddr("10.0.0.5"), SrcPort: 50000}, true, true},
		{slot, &wire.Outer{Tunnel: wire.IPIP, Dst: netip.MustParseAddr("10.0.0.6")}, false, false},
	} {
		ecr := l.Stamp(key, 0, client, vip.Port(), c.slot, now)
		sent := wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: wire.Timestamp(7, ecr)}
		packet := sent.Packet()
		if c.outer != nil {
			c.outer.Src = netip.MustParseAddr("10.254.0.9")
			packet = c.outer.Encapsulate(packet)
		}
		frame := wire.Link{}.Frame(packet)
		out, ok := h.In(frame)
		if !ok {
			t.Errorf("%+v: dropped", c)
			continue
		}
		if errs := wire.Parse(out).ChecksumErrors(); errs != nil {
			t.Errorf("%+v: %v", c, errs)
		}
		if taken := len(out) < len(frame); taken != c.taken {
			t.Errorf("%+v: taken out: %v", c, taken)
		}
		want := sent
		want.Options = wire.Timestamp(7, uint32(own))
		if got := bytes.Equal(out, want.Frame()); got != c.echoed {
			t.Errorf("%+v: %x, restored: %v", c, out, got)
		}
	}
	if _, ok := h.In(wire.TCP{Src: client, Dst: vip, Flags: wire.ACK, Options: []byte{8, 0, 0, 0}}.Frame()); ok {
		t.Error("broken options are not dropped")
	}
}
