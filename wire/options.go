package wire

import (
	"encoding/binary"
	"fmt"
)

// TCP option kinds.
const (
	OptionEnd           = 0
	OptionNOP           = 1
	OptionMSS           = 2
	OptionWindowScale   = 3
	OptionSACKPermitted = 4
	OptionSACK          = 5
	OptionTimestamp     = 8
)

// Timestamp is the form that nearly every packet carries: NOP NOP TS.
func Timestamp(val, ecr uint32) []byte {
	return append([]byte{OptionNOP, OptionNOP}, BareTimestamp(val, ecr)...)
}

// BareTimestamp is the option alone: 10 bytes, wherever it comes to stand.
func BareTimestamp(val, ecr uint32) []byte {
	b := []byte{OptionTimestamp, 10}
	b = binary.BigEndian.AppendUint32(b, val)
	return binary.BigEndian.AppendUint32(b, ecr)
}

// MSS is the maximum segment size option.
func MSS(bytes uint16) []byte { return []byte{OptionMSS, 4, byte(bytes >> 8), byte(bytes)} }

// WindowScale is the window scale option, without padding.
func WindowScale(shift uint8) []byte { return []byte{OptionWindowScale, 3, shift} }

// SACKPermitted is the option of a SYN.
func SACKPermitted() []byte { return []byte{OptionSACKPermitted, 2} }

// SACK is a selective acknowledgement with the given edges (pairs).
func SACK(edges ...uint32) []byte {
	b := []byte{OptionSACK, byte(2 + 4*len(edges))}
	for _, e := range edges {
		b = binary.BigEndian.AppendUint32(b, e)
	}
	return b
}

// NOPs is n bytes of padding.
func NOPs(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = OptionNOP
	}
	return b
}

// SYNOptions is what Linux sends in a SYN: MSS SACKOK TS NOP WS.
func SYNOptions(mss uint16, tsval uint32) []byte {
	b := append(MSS(mss), SACKPermitted()...)
	b = append(b, BareTimestamp(tsval, 0)...)
	return append(append(b, OptionNOP), WindowScale(7)...)
}

// TimestampOption is a timestamp found in a segment.
type TimestampOption struct {
	Val, Ecr uint32
	// At is where TSval starts, in bytes from the start of the options.
	At int
}

// FindTimestamp walks TCP options up to the end-of-options kind and returns
// the first timestamp (ok is false when there is none). The error says which
// option is malformed: shorter than 2 bytes, past the end, or a timestamp
// that is not 10 bytes.
func FindTimestamp(options []byte) (ts TimestampOption, ok bool, err error) {
	for i := 0; i < len(options); {
		kind := options[i]
		if kind == OptionEnd {
			return ts, ok, nil
		}
		if kind == OptionNOP {
			i++
			continue
		}
		if i+1 >= len(options) {
			return ts, ok, fmt.Errorf("option kind %d at byte %d has no length", kind, i)
		}
		n := int(options[i+1])
		if n < 2 {
			return ts, ok, fmt.Errorf("option kind %d at byte %d has length %d, at least 2 is needed", kind, i, n)
		}
		if i+n > len(options) {
			return ts, ok, fmt.Errorf("option kind %d at byte %d has length %d, %d past the end", kind, i, n, i+n-len(options))
		}
		if kind == OptionTimestamp {
			if n != 10 {
				return ts, ok, fmt.Errorf("timestamp at byte %d has length %d, not 10", i, n)
			}
			if !ok {
				ts = TimestampOption{binary.BigEndian.Uint32(options[i+2:]), binary.BigEndian.Uint32(options[i+6:]), i + 2}
				ok = true
			}
		}
		i += n
	}
	return ts, ok, nil
}
