package bench

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/tables"
)

// Kinds of packets, as the program writes them.
const (
	kindSYN = iota
	kindSegment
	kindFIN
)

// handshakeGap is how many packets of others come between a SYN and the handshake's
// last: 0.8 ms at five million a second.
const handshakeGap = 4096

// plainLayout is the layout of scheme cheetah's cookies (statefulCookie: the other's).
var plainLayout = cheetah.Layout{Bits: cookieBits}

// client is a connection that is open, as its packets show it.
type client struct {
	addr  uint32 // as it lies in the packet, in this machine's order
	ports uint32
	field [2]uint16 // its cookies, by layout
	rss   uint32
	seat  uint16
	seen  bool // its cookie came back
}

// stream is what the clients of a VIP send: of `live` connections, of which one closes
// for each that opens. Who opens, closes or speaks is drawn evenly. Where a connection
// of scheme cheetah-stateful sits is what the balancer's Go model says (scheme/seats),
// which is held to the program's by tests.
type stream struct {
	random *rand.Rand
	rss    fig5LinearHash
	seats  *seats.Table
	live   []client
	daddr  uint32 // the VIP's that RSS goes by
	// now is the shared clock in ms; packets in milliseconds past it.
	now     uint32
	rest    float64
	credit  int
	sent    int
	waiting []handshake // the handshake's last, in the order they are due
	opening int         // of live, whose SYN is next; -1: none
}

type handshake struct{ client, due int }

func newStream(live, seatCount int, daddr netip.Addr) *stream {
	a := daddr.As4()
	return &stream{random: rand.New(rand.NewPCG(seed, 5)), rss: linear(toeplitz), seats: seats.New(seatCount),
		live: make([]client, live), daddr: binary.LittleEndian.Uint32(a[:]), now: sharedNow, opening: -1}
}

// hash is the client's as the cookies go by it.
func (c *client) hash() uint64 { return hash.IPv4(&benchKeys[0], c.addr, c.ports) }

func (s *stream) packet(c *client, kind uint32) fig5ScriptPacket {
	p := fig5ScriptPacket{Saddr: c.addr, Ports: c.ports, Rss: c.rss, Kind: kind}
	if kind != kindSYN {
		echoed := s.now - s.random.Uint32N(1000)
		for i, l := range []cheetah.Layout{plainLayout, statefulCookie} {
			ts := l.WireTS(uint32(c.field[i]), echoed)
			p.Ecr[i] = bits.ReverseBytes32(ts)
		}
	}
	return p
}

// open makes connection i a new one: its SYN.
func (s *stream) open(i int) fig5ScriptPacket {
	c := &s.live[i]
	port := uint16(1024 + s.random.Uint32N(60000))
	addr := [4]byte{byte(1 + s.random.Uint32N(223)), byte(s.random.Uint32()), byte(s.random.Uint32()), byte(s.random.Uint32())}
	*c = client{addr: binary.LittleEndian.Uint32(addr[:]),
		ports: uint32(tables.Key{Port: port}.PortBE()) | uint32(tables.Key{Port: 80}.PortBE())<<16}
	var t tuple
	binary.LittleEndian.PutUint32(t[:], c.addr)
	binary.LittleEndian.PutUint32(t[4:], s.daddr)
	binary.LittleEndian.PutUint32(t[8:], c.ports)
	c.rss = s.rss.of(&t)
	h := c.hash()
	c.field[0] = uint16(plainLayout.Encode(h, s.random.Uint32N(serverCount), 0))
	seat := s.seats.Open(seats.Packet{Hash: [2]uint64{h}, Unit: seats.Unit(s.now)}, statefulCookie.SeatBits, 0, bpf.SeatAbout{})
	c.seat = uint16(seat)
	c.field[1] = uint16(statefulCookie.Encode(h, statefulCookie.Join(s.random.Uint32N(uint32(statefulCookie.Slots())), seat), 0))
	return s.packet(c, kindSYN)
}

// touch tells the model of seats what the program sees.
func (s *stream) touch(c *client, closes bool) {
	if c.seen && !closes {
		return
	}
	c.seen = true
	s.seats.Touch(seats.Packet{Hash: [2]uint64{c.hash()}, Unit: seats.Unit(s.now), Closes: closes}, statefulCookie.SeatBits, 0, -1, 0, uint32(c.seat))
}

func (s *stream) data(i int) fig5ScriptPacket {
	s.touch(&s.live[i], false)
	return s.packet(&s.live[i], kindSegment)
}

func (s *stream) finish(i int) fig5ScriptPacket {
	s.touch(&s.live[i], true)
	return s.packet(&s.live[i], kindFIN)
}

// fill draws the packets of a deployment that sends so many a second, of which
// rate are SYNs and as many FINs. It returns how many SYNs they are.
func (s *stream) fill(out []fig5ScriptPacket, rate, packetRate int) (opened int) {
	perMS := float64(packetRate) / 1000
	for i := range out {
		s.sent++
		if s.rest++; s.rest >= perMS {
			s.rest -= perMS
			s.now++
		}
		s.credit += rate
		switch {
		case s.opening >= 0:
			out[i] = s.open(s.opening)
			s.waiting = append(s.waiting, handshake{s.opening, s.sent + handshakeGap})
			s.opening = -1
			opened++
		case s.credit >= packetRate:
			s.credit -= packetRate
			s.opening = s.random.IntN(len(s.live))
			out[i] = s.finish(s.opening)
		case len(s.waiting) > 0 && s.waiting[0].due <= s.sent:
			out[i] = s.data(s.waiting[0].client)
			s.waiting = s.waiting[1:]
		default:
			out[i] = s.data(s.random.IntN(len(s.live)))
		}
	}
	return opened
}

// establish yields the packets that open every connection, in runs of up to size.
func (s *stream) establish(size int, send func([]fig5ScriptPacket) error) error {
	b := batches{size: size, send: send}
	for i := range s.live {
		b.add(s.open(i), s.data(i))
	}
	return b.flush()
}

// age yields packets that are not measured: twice as many connections as are open close,
// and others come, in eight turns a second apart, in each of which everybody speaks. What
// keeps entries of connections that are over is full of them then, or has many.
func (s *stream) age(size int, send func([]fig5ScriptPacket) error) error {
	b := batches{size: size, send: send}
	const turns = 8
	for range turns {
		for range 2 * len(s.live) / turns {
			i := s.random.IntN(len(s.live))
			b.add(s.finish(i), s.open(i), s.data(i))
		}
		for i := range s.live {
			b.add(s.data(i))
		}
		if err := b.flush(); err != nil {
			return err
		}
		s.now += 1024
	}
	return nil
}

// batches cuts packets into whole runs of the program.
type batches struct {
	size int
	send func([]fig5ScriptPacket) error
	all  []fig5ScriptPacket
	err  error
}

func (b *batches) add(p ...fig5ScriptPacket) {
	b.all = append(b.all, p...)
	for len(b.all) >= b.size && b.err == nil {
		b.err = b.send(b.all[:b.size])
		b.all = append(b.all[:0], b.all[b.size:]...)
	}
}

// flush sends what is left; the last of it again, until it is a whole run.
func (b *batches) flush() error {
	for b.err == nil && len(b.all) > 0 && len(b.all)%packetsPerRun != 0 {
		last := b.all[len(b.all)-1]
		last.Kind = kindSegment
		b.all = append(b.all, last)
	}
	if b.err == nil && len(b.all) > 0 {
		b.err = b.send(b.all)
	}
	b.all = b.all[:0]
	return b.err
}
