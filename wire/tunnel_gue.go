package wire

import "fmt"

// gue is GUE variant 0 without control bit and flags: the length of the private
// data in words, which hops are, then the inner protocol (bpf/include/gue.h).
var gue = overUDP{
	name: GUE, port: 6080,
	header: func(proto uint8, hops *Hops) []byte {
		if hops == nil {
			return []byte{0, proto, 0, 0}
		}
		return hops.Append([]byte{HopsBytes / 4, proto, 0, 0})
	},
	parse: func(b []byte) (proto uint8, at int, hops *Hops, err error) {
		if len(b) < 4 {
			return 0, 0, nil, fmt.Errorf("GUE header of %d bytes, 4 are needed", len(b))
		}
		// Variant (2 bits) and control (1) must be 0.
		if b[0]&0xe0 != 0 {
			return 0, 0, nil, fmt.Errorf("GUE first byte %#02x: only variant 0 data is understood", b[0])
		}
		if at = 4 + int(b[0]&0x1f)*4; len(b) < at {
			return 0, 0, nil, fmt.Errorf("GUE header of %d bytes is cut at %d", at, len(b))
		}
		if b[2] != 0 || b[3] != 0 {
			return 0, 0, nil, fmt.Errorf("GUE flags %#02x%02x: none is understood", b[2], b[3])
		}
		if at > 4 {
			h, err := ParseHops(b[4:at])
			if err != nil || at != 4+HopsBytes {
				return 0, 0, nil, fmt.Errorf("GUE has %d bytes of private data that are no hops", at-4)
			}
			hops = &h
		}
		return b[1], at, hops, nil
	},
}
