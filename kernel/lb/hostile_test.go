package lb

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/policy"
	schemebeamer "github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/scheme/rates"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// hostile makes balancers' tables and frames for them: mostly plausible ones,
// then spoiled. Everything follows from the random source.
type hostile struct {
	*rand.Rand
	tables *model.Tables
	now    uint32
	// pace is how far the clock may jump: 2^pace ms at most.
	pace   int
	recent []hostileFlow
	seats  map[netip.AddrPort]uint32 // of clients whose connections were given one
}

// hostileFlow is a flow that was seen before, so that more of it may come.
type hostileFlow struct {
	v           *model.VIP
	client, vip netip.AddrPort
}

const hostileLines = 600

// hostileAskKey is one in all tables: a constant of the programs, which are kept.
var hostileAskKey = hash.Key{0x13579bdf02468ace, 0xfdb97531eca86420}

// balanced are the schemes of balancers. (Of jet, there is the most to get wrong.)
func balanced() (all []vip.Scheme) {
	for _, r := range vip.Schemes() {
		if !r.Switched {
			all = append(all, r.Name)
		}
	}
	return all
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (h *hostile) address(six bool, net byte) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, net, 14: byte(h.IntN(2)), 15: byte(1 + h.IntN(250))})
	}
	return netip.AddrFrom4([4]byte{10, net, byte(h.IntN(2)), byte(1 + h.IntN(250))})
}

// newHostile makes tables with every scheme, policy, forwarding and family.
func newHostile(r *rand.Rand) *hostile {
	h := &hostile{Rand: r, now: r.Uint32(), pace: pick(r, 13, 17, 28), seats: map[netip.AddrPort]uint32{}}
	h.tables = &model.Tables{
		Services: map[model.Key]*model.VIP{}, Addresses: map[netip.Addr]*model.Address{},
		Fragments: map[model.Key]*model.VIP{}, Lines: make([]model.Line, hostileLines),
		Source4: netip.MustParsePrefix("192.168.64.0/20"), Source6: netip.MustParsePrefix("fd00:7::/64"),
		GUEChecksum6: r.IntN(2) == 0, Steering: r.IntN(2) == 0, AskRate: pick[uint32](r, 3, 1<<20), AskKey: hostileAskKey, Ingress: 1, Inputs: hostileInputs(r),
	}
	if h.tables.GUEChecksum6 == h.tables.Steering { // no constants of their own: each value is a program to verify
		h.tables.TierAddr, h.tables.TierSources = netip.MustParseAddr(map[bool]string{false: "10.4.0.1", true: "fd00:4::1"}[h.tables.Steering]), []netip.Prefix{h.tables.Source4, h.tables.Source6}
	}
	hashKey := hash.Key{r.Uint64(), r.Uint64()}
	line := uint32(1)
	for id := uint32(1); id <= 20; id++ {
		six := id%2 == 0
		v := &model.VIP{ID: id, Addr: h.address(six, 1), Port: pick[uint16](r, 80, 443, 0), Proto: pick[uint8](r, wire.ProtoTCP, wire.ProtoTCP, wire.ProtoUDP),
			FirstLine: line, Slots: uint32(1 + r.IntN(24)), Keys: [2]hash.Key{{r.Uint64(), r.Uint64()}, {r.Uint64(), r.Uint64()}},
			Epochs: uint8(1 + r.IntN(3)), HashKey: hashKey, Layout: cheetah.Layout{Bits: 10 + r.IntN(6)},
			Scheme: pick(r, append(balanced(), vip.JET)...), Carrier: vip.Carrier(pick(r, vip.CarrierNames()...)),
			Policy: pick(r, policy.RR, policy.WRR, policy.P2C, policy.LeastConn, policy.Hash), Affinity: r.IntN(4) == 0, Share: r.IntN(2) == 0, TrackAll: r.IntN(6) == 0}
		v.Migrates = v.Scheme.Row().Finds == vip.ByCookie && r.IntN(2) == 0
		v.Enters = v.Migrates || v.Scheme.Row().Finds == vip.ByCookie && id%3 == 0
		if v.Scheme.Row().Seats > 0 {
			v.Layout.SeatBits, v.OpenEpoch = seats.MinBits+r.IntN(min(seats.MaxBits, v.Layout.Bits-2)-seats.MinBits+1), r.IntN(2)
		}
		switch most := v.Layout.Bits - 2 - v.Layout.SeatBits; {
		case !v.Scheme.Row().Tiers || most < 1:
		case r.IntN(3) == 0:
			v.Layout.TierBits = 1 + r.IntN(min(most, vip.MaxTierBits))
			v.Tier = r.Uint32N(1 << v.Layout.TierBits)
		case r.IntN(2) == 0 && v.Layout.SeatBits == 0:
			v.TierOne, v.Layout.SeatBits = true, v.Layout.Bits-1-(1+r.IntN(min(most, vip.MaxTierBits)))
		}
		h.limit(v)
		key := model.Key{Addr: v.Addr, Port: v.Port, Proto: v.Proto}
		if h.tables.Services[key] != nil {
			continue
		}
		h.tables.Services[key] = v
		h.lines(v)
		h.pool(v)
		line += v.Slots
		address := h.tables.Addresses[v.Addr]
		if address == nil {
			address = &model.Address{ID: v.ID, Addr: v.Addr, Proto: map[bool]uint8{false: wire.ProtoICMP, true: wire.ProtoICMPv6}[six], ICMPEcho: r.IntN(2) == 0}
			h.tables.Addresses[v.Addr] = address
		}
		if v.Scheme == vip.Beamer && v.Proto == wire.ProtoTCP && !address.Joins && r.IntN(2) == 0 {
			address.Joins, address.JoinHash, address.ID = true, r.Uint64(), v.ID
			address.HashKey, address.Scheme, address.FirstLine, address.Slots, address.Generation = v.HashKey, v.Scheme, v.FirstLine, v.Slots, v.Generation
		}
		if v.FragmentsByAddress = r.IntN(3) > 0; v.FragmentsByAddress || r.IntN(2) == 0 {
			h.tables.Fragments[model.Key{Addr: v.Addr, Proto: v.Proto}] = v
		}
	}
	return h
}

// limit gives one VIP in five limits of rates.
func (h *hostile) limit(v *model.VIP) {
	if h.IntN(5) > 0 {
		return
	}
	step := func() uint64 { return rates.Step(pick(h.Rand, 1, 3, 20, 1000, rates.Most)) }
	v.Rates, v.Steps = uint8(1+h.IntN(7)), bpf.Rates{Connection: step(), Packets: step(), Opens: step()}
	v.Steps.Mask4, v.Steps.Mask6 = rates.Masks(1+h.IntN(32), 1+h.IntN(128))
}

// lines gives a VIP its servers.
func (h *hostile) lines(v *model.VIP) {
	for s := range v.Slots {
		if h.IntN(8) > 0 { // else a gap between slots
			h.tables.Lines[v.FirstLine+s] = h.line(s)
		}
	}
}

func (h *hostile) line(s uint32) model.Line {
	var row *model.Steer
	if h.IntN(2) == 0 {
		row = &model.Steer{}
		for i := range row {
			if h.IntN(4) > 0 { // else by the hash
				row[i] = model.Spread{Port: uint16(h.Uint32()), Label: h.Uint32() & 0xfffff}
			}
		}
	}
	return model.Line{Steer: row, Forwarding: vip.Forwarding(pick(h.Rand, vip.ForwardingNames()...)), Unresolved: h.IntN(12) == 0,
		MACDst: wire.MAC{2, 1, byte(s), byte(h.Uint32()), 3, 4}, MACSrc: pick(h.Rand, wire.MAC{2, 0, 0, 0, 0, 2}, wire.MAC{2, 2, byte(h.Uint32()), 1, 1, 1}),
		VLAN: pick[uint16](h.Rand, 0, 0, 7, 4094), Addr: h.address(h.IntN(2) == 0, 2),
		Ifindex: pick[uint32](h.Rand, 1, 1, 9), MTU: pick(h.Rand, 1280, 1400, 1452, 1480, 9000)}
}

// pool says what the servers of a VIP do now, and gives it its tables. Mostly
// as the daemon does; sometimes the lines' flags contradict the tables, or the
// tables are nonsense.
func (h *hostile) pool(v *model.VIP) {
	if v.Scheme == vip.Beamer {
		h.buckets(v)
		return
	}
	var takers []policy.Member
	var rows []chash.Member
	kind := pick(h.Rand, chash.Kinds()...)
	if h.IntN(3) == 0 {
		kind = chash.KindAnchor
	}
	buckets := make([]chash.BucketState, v.Slots)
	for s := range v.Slots {
		l := &h.tables.Lines[v.FirstLine+s]
		if l.Forwarding == "" {
			continue
		}
		weight := 1
		if kind.Weighted() {
			weight += h.IntN(5)
		}
		m := chash.Member{Name: l.Addr.String() + string(rune('a'+s)), Number: int(s), Horizon: weight}
		l.Closed, l.Down, buckets[s] = true, false, chash.Horizon
		switch h.IntN(8) {
		case 0: // standby; or down, under UDP
			l.Down = h.IntN(2) == 0
		case 1, 2: // draining; or down, under TCP
			m.Held, buckets[s] = weight, chash.Draining
			l.Down = h.IntN(2) == 0
		case 3: // warming up
			m.New, l.Closed = weight, false
		default:
			m.New, m.Held, l.Closed, buckets[s] = weight, weight, false, chash.Working
		}
		if h.IntN(20) == 0 {
			l.Closed, l.Down = h.IntN(2) == 0, h.IntN(2) == 0
		}
		rows = append(rows, m)
		if m.New > 0 {
			takers = append(takers, policy.Member{Slot: uint16(s), Weight: weight, Name: m.Name})
		}
	}
	v.NewTable = policy.Table(v.Policy, takers)
	v.Hash = h.hash(kind, rows, buckets)
	v.NoNew = len(v.NewTable) == 0
	if v.Policy == policy.Hash {
		v.NoNew = v.Hash == nil || len(takers) == 0
	}
	v.NoNew = v.NoNew || h.IntN(12) == 0
}

// hash is a consistent hash of any form; nil: none.
func (h *hostile) hash(kind chash.Kind, rows []chash.Member, buckets []chash.BucketState) model.Placer {
	capacity := len(buckets) + h.IntN(40)
	switch {
	case h.IntN(20) == 0:
		return nil
	case h.IntN(20) == 0: // rows of nonsense: slots that there are not, no server
		t := &chash.Table{Entries: make([]uint32, 1+h.IntN(100))}
		for i := range t.Entries {
			slot := func() int { return pick(h.Rand, h.IntN(len(buckets)+2), chash.None, h.IntN(chash.MaxSlots)) }
			t.Entries[i] = chash.Entry(slot(), slot(), h.IntN(2) == 0)
		}
		return t
	case h.IntN(20) == 0: // walks that do not end, or end anywhere
		t := &chash.AnchorTable{Entries: make([]uint32, 2+h.IntN(100)), Held: h.Uint32N(50), Track: h.Uint32N(100)}
		for i := range t.Entries {
			if h.IntN(8) > 0 {
				t.Entries[i] = (1 + h.Uint32N(uint32(len(t.Entries)-1))) | h.Uint32N(uint32(len(t.Entries)))<<16
			}
		}
		return t
	case kind == chash.KindAnchor:
		t, err := chash.NewAnchorTable(capacity, buckets)
		if err != nil {
			panic(err)
		}
		if len(t.Entries) == 0 {
			return nil
		}
		return t
	}
	t, err := chash.Compile(chash.Spec{Kind: kind, Rows: 64, Capacity: capacity}, rows)
	if err != nil {
		panic(err)
	}
	return t
}

// change makes the pools of some VIPs anew.
func (h *hostile) change() {
	for id := uint32(1); id <= 20; id++ { // in an order that the seed decides
		for _, v := range h.tables.Services {
			if v.ID != id || h.IntN(2) == 0 {
				continue
			}
			for s := range v.Slots { // servers go and come
				if l := &h.tables.Lines[v.FirstLine+s]; h.IntN(4) > 0 {
				} else if l.Forwarding == "" {
					*l = h.line(s)
				} else {
					*l = model.Line{}
				}
			}
			h.pool(v)
		}
	}
	for key, f := range h.tables.Fragments { // the same VIPs, or copies
		for _, v := range h.tables.Services {
			if v.ID == f.ID {
				h.tables.Fragments[key] = v
			}
		}
	}
}

// services in an order that the seed decides.
func (h *hostile) service() *model.VIP {
	for {
		id := uint32(1 + h.IntN(20))
		for _, v := range h.tables.Services {
			if v.ID == id {
				return v
			}
		}
	}
}

// frame is a packet to one of the VIPs, or nearly; three in ten are spoiled.
func (h *hostile) frame() []byte {
	f := h.good()
	if h.tables.TierAddr.IsValid() && h.IntN(4) == 0 {
		f = h.tunnelled(f)
	}
	switch h.IntN(10) {
	case 0: // cut anywhere; a test run takes 14 bytes or more
		f = f[:14+h.IntN(len(f)-13)]
	case 1: // a header byte becomes anything
		for range 1 + h.IntN(3) {
			f[12+h.IntN(min(len(f), 130)-12)] = pick(h.Rand, 0, 1, 0xff, byte(h.Uint32()))
		}
		if h.IntN(3) > 0 {
			summed(f)
		}
	case 2: // padding, as a driver leaves it
		f = append(f, make([]byte, h.IntN(60))...)
	}
	return f[:min(len(f), maxRun)]
}

// tunnelled has the frame come from tier one, or from somebody who is not there.
func (h *hostile) tunnelled(f []byte) []byte {
	l2 := 14
	if f[12] == 0x81 {
		l2 = 18
	}
	o := wire.Outer{Dst: h.tables.TierAddr, Tunnel: wire.Tunnel(pick(h.Rand, vip.IPIP, vip.GUE)), SrcPort: uint16(h.Uint32())}
	if o.Src = netip.MustParseAddr("192.168.70.3"); o.Dst.Is6() {
		o.Src = netip.MustParseAddr("fd00:7::9")
	}
	if h.IntN(12) == 0 {
		o.Src = h.address(o.Dst.Is6(), 9)
	}
	if h.IntN(12) == 0 {
		o.Dst = h.address(o.Dst.Is6(), 5)
	}
	f = append(bytes.Clone(f[:l2]), o.Encapsulate(f[l2:])...)
	kind := uint16(0x0800)
	if o.Dst.Is6() {
		kind = 0x86dd
	}
	binary.BigEndian.PutUint16(f[l2-2:], kind)
	if h.IntN(4) == 0 { // a router's mark
		if o.Dst.Is6() {
			f[l2+1] |= 0x30
		} else {
			f[l2+1] |= 3
			summed(f)
		}
	}
	return f
}

// summed gives an IPv4 header its checksum, so that it is judged by the rest.
func summed(f []byte) {
	l3, kind := wire.EthernetLen, binary.BigEndian.Uint16(f[12:])
	if kind == wire.EtherTypeVLAN && len(f) >= 18 {
		l3, kind = l3+wire.VLANLen, binary.BigEndian.Uint16(f[16:])
	}
	if kind != wire.EtherTypeIPv4 || len(f) <= l3 {
		return
	}
	if size := int(f[l3]&15) * 4; size >= 20 && len(f) >= l3+size {
		binary.BigEndian.PutUint16(f[l3+10:], 0)
		binary.BigEndian.PutUint16(f[l3+10:], wire.Checksum(f[l3:l3+size]))
	}
}

// link is the balancer's, mostly.
func (h *hostile) link() wire.Link {
	l := wire.Link{VLAN: pick[uint16](h.Rand, 0, 0, 0, 5)}
	switch h.IntN(60) {
	case 0:
		l.Dst = pick(h.Rand, wire.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, wire.MAC{2, 0, 0, 0, 0, 3}, wire.MAC{1, 0, 0x5e, 0, 0, 1})
	case 1:
		l.VLAN = pick[uint16](h.Rand, 6, 0x2005) // the latter: 5, with a priority
	}
	return l
}

// hostileInputs are what link's frames are for; nil: every frame.
func hostileInputs(r *rand.Rand) map[model.Input]bool {
	if r.IntN(4) == 0 {
		return nil
	}
	own := wire.MAC{2, 0, 0, 0, 0, 2} // wire's
	return map[model.Input]bool{{Ifindex: 1, MAC: own}: true, {Ifindex: 1, VLAN: 5, MAC: own}: true, {Ifindex: 2, VLAN: 6, MAC: own}: true}
}

func mapped(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }

func (h *hostile) good() []byte {
	v := h.service()
	six := v.Addr.Is6()
	client := netip.AddrPortFrom(h.address(six, 3), uint16(1024+h.IntN(8)))
	port := v.Port
	if a := h.tables.Addresses[v.Addr]; a.Joins && h.IntN(3) == 0 {
		port = schemebeamer.JoinPort(a.JoinHash, h.Uint32N(a.Slots+2))
	} else if port == 0 || h.IntN(20) == 0 {
		port = pick(h.Rand, 80, 443, uint16(h.Uint32()))
	}
	vip := netip.AddrPortFrom(v.Addr, port)
	if h.IntN(20) == 0 {
		vip = netip.AddrPortFrom(h.address(six, 1), port)
	}
	if n := len(h.recent); n > 0 && h.IntN(3) > 0 {
		f := h.recent[h.IntN(n)]
		v, client, vip, six = f.v, f.client, f.vip, f.v.Addr.Is6()
	} else if h.recent = append(h.recent, hostileFlow{v, client, vip}); n > 40 {
		h.recent = h.recent[h.IntN(n):]
	}
	ip := h.ip(six)
	link := h.link()
	payload := make([]byte, pick(h.Rand, 0, 0, 1, h.IntN(1500), h.IntN(3000)))
	switch n := h.IntN(20); {
	case n < 2:
		m := wire.Echo(client.Addr(), vip.Addr(), 1, uint16(h.Uint32()), payload, h.IntN(8) == 0)
		m.IP, m.Link = ip, link
		return m.Frame()
	case n < 6:
		return h.icmpError(v, client, vip, ip, link)
	case n < 8 && v.Proto == wire.ProtoTCP || v.Proto == wire.ProtoUDP:
		if h.IntN(4) == 0 { // opens a connection of QUIC, or nearly
			payload = wire.QUICInitial(pick[uint32](h.Rand, wire.QUIC1, wire.QUIC2, 0, 0xff00001d), h.Uint64(), pick(h.Rand, 1200, 1200, 1199, 1350))
			payload[0] = pick(h.Rand, payload[0], payload[0], byte(h.Uint32()))
		}
		return wire.UDP{Src: client, Dst: vip, Payload: payload, IP: ip, Link: link, BadChecksum: h.IntN(8) == 0}.Frame()
	}
	var options []byte // as the clients that jet and the fallback are for
	if h.IntN(4) > 0 {
		options = h.options(h.cookie(v, client, vip.Port()))
	}
	if h.IntN(40) == 0 { // what would pass for IPv4's
		client = netip.AddrPortFrom(mapped(h.address(false, 3)), client.Port())
		if !six || h.IntN(4) == 0 {
			vip = netip.AddrPortFrom(mapped(h.address(false, 1)), vip.Port())
			if v.Addr.Is4() {
				vip = netip.AddrPortFrom(mapped(v.Addr), vip.Port())
			}
		}
		ip = h.ip(true)
	}
	return wire.TCP{Src: client, Dst: vip, Flags: h.flags(), Options: options, Payload: payload,
		IP: ip, Link: link, BadChecksum: h.IntN(8) == 0, DataOffset: uint8(pick(h.Rand, 0, 0, 0, 0, 0, 0, 0, h.IntN(16)))}.Frame()
}

func (h *hostile) flags() uint8 {
	return pick(h.Rand, wire.SYN, wire.SYN, wire.ACK, wire.ACK, wire.ACK|wire.PSH, wire.SYN|wire.FIN, wire.ACK|wire.FIN, wire.RST, wire.RST|wire.ACK, wire.SYN|wire.ACK, uint8(h.Uint32()))
}

// ip gives odd IP headers now and then: options, extensions, fragments.
func (h *hostile) ip(six bool) wire.IP {
	ip := wire.IP{TTL: uint8(1 + h.IntN(255)), TOS: uint8(h.Uint32()), DontFragment: h.IntN(2) == 0, ID: h.Uint32(), FlowLabel: h.Uint32() & 0xfffff}
	ip.BadChecksum = h.IntN(16) == 0
	if h.IntN(10) == 0 {
		ip.FragmentOffset = pick[uint16](h.Rand, 0, 0, 1, 185)
		ip.MoreFragments = h.IntN(2) == 0
		ip.Atomic = true
	}
	if h.IntN(6) > 0 {
		return ip
	}
	ip.Options = wire.NOPs(h.IntN(41))
	if six {
		for range h.IntN(10) {
			body := make([]byte, pick(h.Rand, 6, 6, 6, 14, 30, 300))
			if h.IntN(20) == 0 {
				body = make([]byte, 2046)
			}
			ip.Extensions = append(ip.Extensions, wire.Extension{Type: pick[uint8](h.Rand, wire.ProtoHopByHop, wire.ProtoRouting, wire.ProtoDestOptions), Body: body})
		}
	}
	return ip
}

// cookie is a timestamp that names a slot of the VIP, or nearly.
func (h *hostile) cookie(v *model.VIP, client netip.AddrPort, port uint16) uint32 {
	epoch := h.Uint32N(2)
	age := h.Uint32N(uint32(v.Layout.IdleLimit().Milliseconds()))
	value := h.Uint32N(v.Slots + 1)
	if v.Layout.SeatBits > 0 {
		seat := h.seats[client]
		if h.IntN(4) == 0 || v.TierOne {
			seat = h.Uint32N(1 << v.Layout.SeatBits)
		}
		value = v.Layout.Join(value, seat)
	}
	if n := v.Layout.Bits - 1 - v.Layout.TierBits; v.Layout.TierBits > 0 {
		tier := v.Tier
		if h.IntN(4) == 0 {
			tier = h.Uint32N(1 << v.Layout.TierBits)
		}
		value = value&(1<<n-1) | tier<<n
	}
	ts := v.Layout.Stamp(v.Keys[epoch], epoch, client, port, value, h.now-age)
	switch h.IntN(6) {
	case 0:
		ts ^= 1 << h.IntN(32)
	case 1:
		ts = h.Uint32()
	}
	return ts
}

func (h *hostile) options(ecr uint32) []byte {
	val := h.Uint32()
	switch h.IntN(16) {
	case 0:
		return nil
	case 1:
		return wire.NOPs(h.IntN(41))
	case 2: // last, at any offset
		return append(wire.NOPs(h.IntN(31)), wire.BareTimestamp(val, ecr)...)
	case 3: // doubled
		return append(wire.Timestamp(val, ecr), wire.Timestamp(val, h.Uint32())...)
	case 4: // behind the end of options
		return append([]byte{wire.OptionEnd}, wire.BareTimestamp(val, ecr)...)
	case 5: // a length of 0, 1, or any
		return append([]byte{wire.OptionSACK, byte(pick(h.Rand, 0, 1, h.IntN(60)))}, wire.Timestamp(val, ecr)...)
	case 6: // the same behind a timestamp
		return append(wire.Timestamp(val, ecr), wire.OptionSACK, byte(h.IntN(60)))
	case 7: // a timestamp of another length
		b := append(wire.NOPs(h.IntN(4)), wire.BareTimestamp(val, ecr)...)
		b[len(b)-9] = byte(h.IntN(16))
		return append(b, wire.NOPs(h.IntN(8))...)
	case 8:
		return wire.SYNOptions(1460, val)
	case 9: // Linux' SYN layout with an echo
		return append(append(wire.MSS(1460), wire.SACKPermitted()...), wire.BareTimestamp(val, ecr)...)
	case 10:
		b := make([]byte, h.IntN(41))
		for i := range b {
			b[i] = byte(h.Uint32())
		}
		return b
	case 11:
		return append(wire.Timestamp(val, ecr), append(wire.NOPs(2), wire.SACK(1, 2)...)...)
	}
	return wire.Timestamp(val, ecr)
}

// icmpError quotes a packet that a server sent to the client.
func (h *hostile) icmpError(v *model.VIP, client, vip netip.AddrPort, ip wire.IP, link wire.Link) []byte {
	var quoted []byte
	inner := wire.IP{TTL: 60}
	switch {
	case h.IntN(6) == 0:
		inner = h.ip(v.Addr.Is6())
	case v.Scheme.Row().Hops && h.IntN(4) == 0: // of a later fragment
		inner.FragmentOffset = 185
	}
	if h.IntN(4) == 0 {
		quoted = wire.UDP{Src: vip, Dst: client, Payload: make([]byte, 40), IP: inner}.Packet()
	} else {
		options := h.options(h.Uint32())
		if h.IntN(3) > 0 {
			options = wire.Timestamp(h.cookie(v, client, vip.Port()), h.Uint32())
		}
		quoted = wire.TCP{Src: vip, Dst: client, Flags: wire.ACK, Options: options, Payload: make([]byte, h.IntN(200)), IP: inner}.Packet()
	}
	if h.IntN(10) == 0 {
		quoted[h.IntN(min(len(quoted), 60))] = byte(h.Uint32())
	}
	src := client.Addr()
	if h.IntN(2) == 0 {
		src = h.address(v.Addr.Is6(), 4)
	}
	e := wire.ICMPError{Src: src, Dst: vip.Addr(), Type: pick[uint8](h.Rand, 3, 3, 3, 11, 12, 4, 5, 13), Code: uint8(h.IntN(6)), MTU: 1280, Quoted: quoted, IP: ip, Link: link}
	if v.Addr.Is6() {
		e.Type = pick[uint8](h.Rand, 1, 2, 2, 3, 4, 100, 127, 128, 135)
	}
	e.QuoteBytes = pick(h.Rand, len(quoted), len(quoted), h.IntN(len(quoted)+1), binary.Size(uint64(0))+20)
	return e.Frame()
}
