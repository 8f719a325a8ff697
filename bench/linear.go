package bench

import (
	"encoding/binary"
	"hash/crc32"
)

// toeplitzKey is that of Microsoft's verification suite, which NICs begin with.
var toeplitzKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// tuple is what a NIC hashes of a TCP segment: source, destination, their ports.
type tuple [12]byte

// toeplitz is a NIC's hash, for receive-side scaling (RSS): the exclusive or of the
// 32 bits of the key that begin at each bit of the tuple that is set.
func toeplitz(t tuple) (h uint32) {
	for i, octet := range t {
		for bit := range 8 {
			if octet>>(7-bit)&1 == 0 {
				continue
			}
			five := uint64(binary.BigEndian.Uint32(toeplitzKey[i:]))<<8 | uint64(toeplitzKey[i+4])
			h ^= uint32(five >> (8 - bit))
		}
	}
	return h
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(t tuple) uint32 { return crc32.Checksum(t[:], castagnoli) }

// linear is a hash that is linear in the tuple, as the program looks it up
// (bpf/bench/linear.h): what each octet adds to the hash of nothing.
func linear(of func(tuple) uint32) (l fig5LinearHash) {
	l.Empty = of(tuple{})
	for i := range l.Octet {
		for octet := range l.Octet[i] {
			var t tuple
			t[i] = byte(octet)
			l.Octet[i][octet] = of(t) ^ l.Empty
		}
	}
	return l
}

// of is the hash of a tuple by the table, as the program reckons it.
func (l *fig5LinearHash) of(t *tuple) uint32 {
	h := l.Empty
	for i, octet := range t {
		h ^= l.Octet[i][octet]
	}
	return h
}
