package wire

import "encoding/binary"

// Versions of QUIC whose Initial packets open connections (RFC 9000, RFC
// 9369).
const (
	QUIC1 = 0x00000001
	QUIC2 = 0x6b3343cf
)

// QUICInitial is a UDP payload of size bytes (1,200 and more are what a client
// sends; at least 7) that begins like a client's first packet: an Initial with
// a connection id of 8 bytes or what fits. What a server would decrypt is
// zero. version is QUIC1 or QUIC2.
func QUICInitial(version uint32, id uint64, size int) []byte {
	b := make([]byte, size)
	b[0] = 0xc0 // long header, fixed bit, Initial
	if version == QUIC2 {
		b[0] = 0xd0
	}
	binary.BigEndian.PutUint32(b[1:], version)
	if size >= 15 {
		b[5] = 8
		binary.BigEndian.PutUint64(b[6:], id)
	}
	return b
}
