package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/fairlead/fairlead/bpf"
)

// Hops of a tunnel, as bpf/include/hops.h has them.
const (
	HopsBytes   = 16
	HopsOption  = 0x9e // octet 0 in gue and in ipip over IPv4
	HopsOption6 = 0x1e // in ipip over IPv6
	// HopsChain is how many previous servers they name at most.
	HopsChain = bpf.Chain
	// NoServer stands where a chain names no (further) server.
	NoServer = bpf.BucketNone

	hops6Bytes = 24 // with the destination options header
)

// Hops is what a tunnel of scheme beamer says beside the packet (Beamer,
// NSDI'18, §4.2: previous server and time of reassignment; §4.3: generation).
type Hops struct {
	// Previous is the chain: slots of the servers that had the packet's
	// bucket before the current one, newest first, then NoServer.
	Previous [HopsChain]uint16
	// Time of the bucket's last move, or until when its chain was last known
	// to be needed: shared milliseconds. 0 in a settled bucket's.
	Time uint32
	// Generation of the bucket table that the balancer went by, a serial
	// number (RFC 1982).
	Generation uint32
}

// NewHops is hops with a chain of at most HopsChain slots, newest first.
func NewHops(time, generation uint32, previous ...uint16) Hops {
	h := Hops{Previous: [HopsChain]uint16{NoServer, NoServer, NoServer}, Time: time, Generation: generation}
	if copy(h.Previous[:], previous) < len(previous) {
		panic(fmt.Sprintf("wire: a chain of %d servers", len(previous)))
	}
	return h
}

// Chain is the servers of Previous up to the first NoServer.
func (h Hops) Chain() []uint16 {
	for i, slot := range h.Previous {
		if slot == NoServer {
			return h.Previous[:i]
		}
	}
	return h.Previous[:]
}

// Append appends the sixteen octets of gue and of ipip over IPv4.
func (h Hops) Append(b []byte) []byte { return h.append(append(b, HopsOption, HopsBytes)) }

func (h Hops) append(b []byte) []byte {
	for _, slot := range h.Previous {
		b = binary.BigEndian.AppendUint16(b, slot)
	}
	b = binary.BigEndian.AppendUint32(b, h.Time)
	return binary.BigEndian.AppendUint32(b, h.Generation)
}

// ParseHops reads sixteen octets as Append writes them. The error says which of
// them is not as it must be.
func ParseHops(b []byte) (h Hops, err error) {
	return parseHops(b, HopsOption, HopsBytes)
}

func parseHops(b []byte, kind, length uint8) (h Hops, err error) {
	if len(b) < HopsBytes {
		return h, fmt.Errorf("hops: %d octets, %d are needed", len(b), HopsBytes)
	}
	if b[0] != kind || b[1] != length {
		return h, fmt.Errorf("hops: type %#02x and length %d, want %#02x and %d", b[0], b[1], kind, length)
	}
	for i := range h.Previous {
		h.Previous[i] = binary.BigEndian.Uint16(b[2+2*i:])
	}
	h.Time, h.Generation = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	return h, nil
}

// carry adds the hops to the outer header of ipip.
func (h Hops) carry(ip *IP, four bool) {
	if four {
		ip.Options = h.Append(nil)
		return
	}
	// PadN fills the header up to its multiple of eight octets.
	body := append([]byte{1, 4, 0, 0, 0, 0}, HopsOption6, HopsBytes-2)
	ip.Extensions = []Extension{{Type: ProtoDestOptions, Body: h.append(body)}}
}

// ipipHops reads the hops of an outer header that has been parsed; nil: it has
// none where a balancer puts them.
func ipipHops(packet []byte, p *Parsed) *Hops {
	var h Hops
	var err error
	switch {
	case p.Version == 4 && p.HeaderLen == 20+HopsBytes:
		h, err = ParseHops(packet[p.L3+20:])
	case p.Version == 6 && p.HeaderLen == 40+hops6Bytes && packet[p.L3+6] == ProtoDestOptions && packet[p.L3+41] == hops6Bytes/8-1:
		h, err = parseHops(packet[p.L3+48:], HopsOption6, HopsBytes-2)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	return &h
}
