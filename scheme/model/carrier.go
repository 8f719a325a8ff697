package model

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Carriers: where in a packet a cookie travels (bpf/lb/carrier.h). Each reads what
// it holds into k.word, and says in k.carried whether it does.

// carried is what the packet has of what carries a cookie, as fl_carried.
type carried int

const (
	carriedNone carried = iota // the header is whole and has no such thing
	carriedWhole
	carriedCut // a quote too short to tell
)

// carrier reads a segment or datagram; false: it is malformed, for the reason.
func (k *packet) carrier(c vip.Carrier) (Reason, bool) {
	switch c {
	case vip.TCPTimestamp, "":
		return k.timestamp()
	}
	return 0, true
}

// quotedCarrier is carrier of what an ICMP error quotes.
func (k *packet) quotedCarrier(c vip.Carrier) (Reason, bool) {
	switch c {
	case vip.TCPTimestamp, "":
		return k.quotedTimestamp(k.quote)
	}
	return 0, true
}

// timestamp finds TSecr.
func (k *packet) timestamp() (Reason, bool) {
	if k.proto != wire.ProtoTCP {
		return 0, true
	}
	at, malformed := findTimestamp(k.Options)
	switch {
	case malformed:
		return bpf.DropMalformedOption, false
	case at >= 0:
		k.carried, k.word = carriedWhole, binary.BigEndian.Uint32(k.Options[at+4:])
	}
	return 0, true
}

// quotedTimestamp finds TSval in the quoted bytes of a TCP header.
func (k *packet) quotedTimestamp(tcp []byte) (Reason, bool) {
	if k.proto != wire.ProtoTCP {
		return 0, true
	}
	k.carried = carriedCut
	if len(tcp) < 20 {
		return 0, true
	}
	header := int(tcp[12]>>4) * 4
	if header < 20 {
		return bpf.DropMalformedL4, false
	}
	at, malformed := findTimestamp(tcp[20:min(header, len(tcp))])
	switch {
	case at >= 0:
		k.carried, k.word = carriedWhole, binary.BigEndian.Uint32(tcp[20+at:])
	case header > len(tcp): // it may stand in what was cut off
	case malformed:
		return bpf.DropMalformedOption, false
	default:
		k.carried = carriedNone
	}
	return 0, true
}

// findTimestamp is the offset of TSval within TCP options, -1 where there is
// none. Unlike wire.FindTimestamp, which is strict, it does as the program
// does: the first timestamp ends the search, so that nothing behind it is
// judged.
func findTimestamp(options []byte) (at int, malformed bool) {
	for i := 0; i < len(options); {
		switch {
		case options[i] == wire.OptionEnd:
			return -1, false
		case options[i] == wire.OptionNOP:
			i++
			continue
		case i+1 >= len(options):
			return -1, true
		}
		n := int(options[i+1])
		if n < 2 || i+n > len(options) {
			return -1, true
		}
		if options[i] == wire.OptionTimestamp {
			if n != 10 {
				return -1, true
			}
			return i + 2, false
		}
		i += n
	}
	return -1, false
}
