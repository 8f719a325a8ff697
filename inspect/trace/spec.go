package trace

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/wire"
)

// Grammar is the packet language of `fairlead trace`, for its help.
const Grammar = `PACKET is one line:

  tcp SRC:PORT > DST:PORT [syn] [ack] [fin] [rst] [psh]
      [ts=VAL[/ECR]]        timestamp option with these values
      [cookie-of=SERVER]    TSecr as an echo of SERVER's stamp would be now
      [age=SECONDS]         how old that echo is (default 0)
      [no-ts]               no timestamp option
      [options=HEX]         exactly these option bytes
  udp SRC:PORT > DST:PORT
      [initial[=2]]         starts a QUIC connection (version 1 or 2)
  icmp SRC > DST echo
  icmp SRC > DST unreachable|too-big|time-exceeded [mtu=N] [quote=BYTES] quoting PACKET

and any of: [len=PAYLOAD] [vlan=TAG] [ttl=N] [df] [frag=OFFSET] [more].
IPv6 addresses before a port go in brackets. SERVER is a name, an address or
a slot. In a quoted packet cookie-of stamps TSval, as the server does. A TCP
packet without syn is an ACK, and carries a timestamp unless it says no-ts.`

// Spec is a packet described in the language of Grammar.
type Spec struct {
	Protocol string // tcp, udp, icmp
	Src, Dst netip.AddrPort
	Flags    uint8
	// TS is the timestamp option; nil: the default one, see NoTS.
	TS       *wire.TimestampOption
	NoTS     bool
	CookieOf string
	AgeMS    uint32
	Options  []byte // replaces all options when not nil
	Initial  uint32 // QUIC version of the Initial that a datagram carries; 0: none
	ICMP     string // echo, unreachable, too-big, time-exceeded
	MTU      uint32
	Quote    int
	Quoted   *Spec
	Len      int
	IP       wire.IP
	VLAN     uint16
}

// quicMinimum is the least payload of a client's first datagram (RFC 9000
// §14.1).
const quicMinimum = 1200

// Stamp gives the wire timestamp by which a client's packet names a server:
// what the server stamped age milliseconds ago. It is asked with the
// connection as the client sees it (src is the client).
type Stamp func(server string, src, dst netip.AddrPort, ageMS uint32) (uint32, error)

var flagNames = map[string]uint8{"syn": wire.SYN, "ack": wire.ACK, "fin": wire.FIN, "rst": wire.RST, "psh": wire.PSH, "push": wire.PSH, "urg": wire.URG}

// ParseSpec reads one packet. Errors name the word and what would be right.
func ParseSpec(text string) (*Spec, error) {
	// Brackets around the flags are allowed: "[syn]"; those of an IPv6
	// address end in a port and stay.
	words := strings.Fields(text)
	for i, w := range words {
		if strings.HasPrefix(w, "[") && strings.HasSuffix(w, "]") {
			words[i] = w[1 : len(w)-1]
		}
	}
	s, rest, err := parseSpec(words)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q is left over", strings.Join(rest, " "))
	}
	if err != nil {
		return nil, fmt.Errorf("packet %q: %w", text, err)
	}
	return s, nil
}

func parseSpec(w []string) (*Spec, []string, error) {
	if len(w) < 4 || w[2] != ">" {
		return nil, nil, fmt.Errorf(`it must start like "tcp 203.0.113.7:4711 > 192.0.2.10:80"`)
	}
	s := &Spec{Protocol: w[0]}
	var err error
	switch s.Protocol {
	case "tcp", "udp":
		if s.Src, err = netip.ParseAddrPort(w[1]); err == nil {
			s.Dst, err = netip.ParseAddrPort(w[3])
		}
	case "icmp", "icmpv6":
		s.Protocol = "icmp"
		var src, dst netip.Addr
		if src, err = netip.ParseAddr(w[1]); err == nil {
			dst, err = netip.ParseAddr(w[3])
		}
		s.Src, s.Dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
	default:
		return nil, nil, fmt.Errorf("protocol %q: tcp, udp or icmp", s.Protocol)
	}
	if err != nil {
		return nil, nil, err
	}
	if s.Src.Addr().Is4() != s.Dst.Addr().Is4() {
		return nil, nil, fmt.Errorf("%s and %s are of two families", s.Src.Addr(), s.Dst.Addr())
	}
	w = w[4:]
	for len(w) > 0 {
		word := w[0]
		w = w[1:]
		if word == "quoting" {
			if s.Quoted, w, err = parseSpec(w); err != nil {
				return nil, nil, fmt.Errorf("quoted packet: %w", err)
			}
			continue
		}
		if err := s.word(word); err != nil {
			return nil, nil, err
		}
	}
	return s, w, s.check()
}

// word takes one word behind the addresses.
func (s *Spec) word(word string) error {
	for _, part := range strings.Split(word, "|") {
		if f, ok := flagNames[strings.ToLower(part)]; ok && s.Protocol == "tcp" {
			s.Flags |= f
			continue
		}
		key, value, has := strings.Cut(part, "=")
		if err := s.setting(key, value, has); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) setting(key, value string, has bool) (err error) {
	number := func(bits int) uint64 {
		n, e := strconv.ParseUint(value, 0, bits)
		if e != nil {
			err = fmt.Errorf("%s=%s: a number from 0 to %d is wanted", key, value, uint64(1)<<bits-1)
		}
		return n
	}
	switch key {
	case "ts":
		val, ecr, both := strings.Cut(value, "/")
		s.TS = &wire.TimestampOption{}
		value = val
		s.TS.Val = uint32(number(32))
		if value = ecr; both && err == nil {
			s.TS.Ecr = uint32(number(32))
		}
	case "cookie-of":
		s.CookieOf = value
		if !has || value == "" {
			err = fmt.Errorf("cookie-of= needs a server's name, address or slot")
		}
	case "age":
		seconds, e := strconv.ParseFloat(value, 64)
		if e != nil || !(seconds >= 0 && seconds <= 1<<22) { // NaN is neither
			err = fmt.Errorf("age=%s: seconds are wanted, at most 4194304", value)
		}
		s.AgeMS = uint32(seconds * 1000)
	case "no-ts":
		s.NoTS = true
	case "options":
		if s.Options, err = hex.DecodeString(value); err != nil || len(s.Options) > 40 {
			err = fmt.Errorf("options=%s: up to 40 bytes in hex are wanted", value)
		}
		if s.Options == nil {
			s.Options = []byte{}
		}
	case "initial":
		switch value {
		case "", "1":
			s.Initial = wire.QUIC1
		case "2":
			s.Initial = wire.QUIC2
		default:
			err = fmt.Errorf("initial=%s: version 1 or 2 of QUIC is wanted", value)
		}
	case "echo", "unreachable", "too-big", "time-exceeded":
		s.ICMP = key
	case "mtu":
		s.MTU = uint32(number(32))
	case "quote":
		s.Quote = int(number(15))
	case "len":
		s.Len = int(number(15))
	case "vlan":
		s.VLAN = uint16(number(12))
	case "ttl":
		s.IP.TTL = uint8(number(8))
	case "frag":
		s.IP.FragmentOffset = uint16(number(16)) / 8
	case "more":
		s.IP.MoreFragments = true
	case "df":
		s.IP.DontFragment = true
	default:
		err = fmt.Errorf("%q is not understood; see `fairlead trace --help`", key)
	}
	return err
}

// check refuses words that do not belong to the protocol.
func (s *Spec) check() error {
	switch {
	case s.Protocol == "icmp" && s.ICMP == "":
		return fmt.Errorf("icmp needs echo, unreachable, too-big or time-exceeded")
	case s.Protocol != "icmp" && (s.ICMP != "" || s.Quoted != nil):
		return fmt.Errorf("%s: only icmp echoes and quotes", s.Protocol)
	case s.ICMP != "" && s.ICMP != "echo" && s.Quoted == nil:
		return fmt.Errorf(`%s needs "quoting PACKET", the packet that the server sent`, s.ICMP)
	case s.Quoted != nil && s.Quoted.Src.Addr().Is4() != s.Src.Addr().Is4():
		return fmt.Errorf("the quoted packet is of the other family")
	case s.Initial != 0 && s.Protocol != "udp":
		return fmt.Errorf("%s: only udp carries QUIC's initial", s.Protocol)
	case s.Initial != 0 && s.Len > 0 && s.Len < quicMinimum:
		return fmt.Errorf("len=%d: a datagram with QUIC's initial has %d bytes or more", s.Len, quicMinimum)
	case s.Protocol != "tcp" && (s.CookieOf != "" || s.TS != nil || s.NoTS || s.Options != nil):
		return fmt.Errorf("%s has no TCP options", s.Protocol)
	case s.CookieOf != "" && (s.NoTS || s.Options != nil):
		return fmt.Errorf("cookie-of needs a timestamp: leave out no-ts and options")
	}
	return nil
}

// Frame builds the packet's Ethernet frame. now is the shared clock in ms,
// from which the default timestamp comes.
func (s *Spec) Frame(now uint32, stamp Stamp) ([]byte, error) {
	packet, err := s.packet(now, stamp, false)
	if err != nil {
		return nil, err
	}
	return wire.Link{VLAN: s.VLAN}.Frame(packet), nil
}

func (s *Spec) packet(now uint32, stamp Stamp, quoted bool) ([]byte, error) {
	payload := make([]byte, s.Len)
	switch s.Protocol {
	case "udp":
		if s.Initial != 0 {
			payload = wire.QUICInitial(s.Initial, 0, max(s.Len, quicMinimum))
		}
		return wire.UDP{Src: s.Src, Dst: s.Dst, Payload: payload, IP: s.IP}.Packet(), nil
	case "icmp":
		return s.icmp(now, stamp, payload)
	}
	flags := s.Flags
	if flags&(wire.SYN|wire.RST) == 0 {
		flags |= wire.ACK
	}
	ts := wire.TimestampOption{Val: now}
	if s.TS != nil {
		ts = *s.TS
	}
	if s.CookieOf != "" {
		src, dst, at := s.Src, s.Dst, &ts.Ecr
		if quoted { // sent by the server: it is TSval that carries the cookie
			src, dst, at = s.Dst, s.Src, &ts.Val
		}
		var err error
		if *at, err = stamp(s.CookieOf, src, dst, s.AgeMS); err != nil {
			return nil, err
		}
	}
	options := s.Options
	if options == nil && !s.NoTS {
		if options = wire.Timestamp(ts.Val, ts.Ecr); flags&wire.SYN != 0 {
			options = append(append(wire.MSS(1460), wire.SACKPermitted()...), wire.BareTimestamp(ts.Val, ts.Ecr)...)
		}
	}
	return wire.TCP{Src: s.Src, Dst: s.Dst, Flags: flags, Options: options, Payload: payload, IP: s.IP}.Packet(), nil
}

func (s *Spec) icmp(now uint32, stamp Stamp, payload []byte) ([]byte, error) {
	src, dst := s.Src.Addr(), s.Dst.Addr()
	if s.ICMP == "echo" {
		m := wire.Echo(src, dst, 1, 1, payload, false)
		m.IP = s.IP
		return m.Packet(), nil
	}
	quoted, err := s.Quoted.packet(now, stamp, true)
	if err != nil {
		return nil, err
	}
	e := wire.ICMPError{Src: src, Dst: dst, MTU: s.MTU, Quoted: quoted, QuoteBytes: s.Quote, IP: s.IP}
	if e.QuoteBytes == 0 {
		e.QuoteBytes = min(len(quoted), 548) // as Linux: up to 576 in all
	}
	switch {
	case src.Is4() && s.ICMP == "time-exceeded":
		e.Type = wire.ICMPTimeExceeded
	case src.Is4():
		e.Type, e.Code = wire.ICMPUnreachable, 1
		if s.ICMP == "too-big" {
			e.Code = wire.ICMPFragNeeded
		}
	default:
		e.Type = map[string]uint8{"unreachable": wire.ICMPv6Unreachable, "too-big": wire.ICMPv6TooBig,
			"time-exceeded": wire.ICMPv6TimeExceeded}[s.ICMP]
	}
	return e.Packet(), nil
}
