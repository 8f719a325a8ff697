package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/dchest/siphash"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// A probe and its answer have one form and one length, so that an answerer
// never sends more than it was sent. All numbers are big-endian; addresses are
// 16 octets (IPv4 mapped into IPv6). Octets behind the authenticator are
// padding.
//
//	  0  "FLpr"
//	  4  version 1
//	  5  kind: 1 probe, 2 answer
//	  6  TTL or hop limit that the probe began with
//	  7  TTL that the answer shall begin with; 0: the answerer's own
//	  8  the prober's random number
//	 16  number of the path
//	 20  number of the round
//	 24  flow of the probe as it was sent: source, destination, ports, label
//	 64  source port that the answer shall have; 0: the port it was sent to
//	 66  0
//	 68  label that the answer shall have
//	 72  answers only, else 0: TTL as received
//	 73  0
//	 76  flow as received: source, destination, ports, label
//	116  when it was received, nanoseconds of the answerer's clock
//	124  how long the answerer had it, nanoseconds
//	132  SipHash-2-4 of octets 0 to 131, under a key that derives from the
//	     selector's
//	140  end
const (
	messageSize = 140
	macAt       = 132
)

const (
	kindProbe  = 1
	kindAnswer = 2
)

var magic = []byte("FLpr\x01")

// message is a probe or an answer.
type message struct {
	kind        uint8
	ttl         uint8 // that the probe began with
	answerTTL   uint8
	session     uint64
	path, round uint32
	sent        pathsel.Flow
	answerPort  uint16
	answerLabel uint32

	seenTTL  uint8
	seen     pathsel.Flow
	received int64 // nanoseconds
	held     int64 // nanoseconds
}

// secret is the key of authenticators.
type secret struct{ k0, k1 uint64 }

// secretOf derives the probes' key from the selector's, so that neither tells
// about the other.
func secretOf(key [16]byte) secret {
	a, b := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	return secret{siphash.Hash(a, b, []byte("fairlead probe 0")), siphash.Hash(a, b, []byte("fairlead probe 1"))}
}

// encode writes the message to b, which has at least messageSize octets.
func (s secret) encode(b []byte, m *message) {
	copy(b, magic)
	b[5], b[6], b[7] = m.kind, m.ttl, m.answerTTL
	binary.BigEndian.PutUint64(b[8:], m.session)
	binary.BigEndian.PutUint32(b[16:], m.path)
	binary.BigEndian.PutUint32(b[20:], m.round)
	putFlow(b[24:], m.sent)
	binary.BigEndian.PutUint16(b[64:], m.answerPort)
	b[66], b[67] = 0, 0
	binary.BigEndian.PutUint32(b[68:], m.answerLabel)
	b[72], b[73], b[74], b[75] = m.seenTTL, 0, 0, 0
	putFlow(b[76:], m.seen)
	binary.BigEndian.PutUint64(b[116:], uint64(m.received))
	binary.BigEndian.PutUint64(b[124:], uint64(m.held))
	binary.BigEndian.PutUint64(b[macAt:], siphash.Hash(s.k0, s.k1, b[:macAt]))
}

// errForeign is of what is no message, or of another fabric.
var errForeign = errors.New("not a probe of this fabric")

// decode reads a message and checks its authenticator.
func (s secret) decode(b []byte) (m message, err error) {
	if len(b) < messageSize || !bytes.Equal(b[:len(magic)], magic) ||
		binary.BigEndian.Uint64(b[macAt:]) != siphash.Hash(s.k0, s.k1, b[:macAt]) {
		return m, errForeign
	}
	m = message{
		kind: b[5], ttl: b[6], answerTTL: b[7],
		session: binary.BigEndian.Uint64(b[8:]),
		path:    binary.BigEndian.Uint32(b[16:]), round: binary.BigEndian.Uint32(b[20:]),
		sent:       flowAt(b[24:]),
		answerPort: binary.BigEndian.Uint16(b[64:]), answerLabel: binary.BigEndian.Uint32(b[68:]),
		seenTTL: b[72], seen: flowAt(b[76:]),
		received: int64(binary.BigEndian.Uint64(b[116:])), held: int64(binary.BigEndian.Uint64(b[124:])),
	}
	return m, nil
}

// putFlow writes 40 octets.
func putFlow(b []byte, f pathsel.Flow) {
	src, dst := wide(f.Src), wide(f.Dst)
	copy(b, src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[32:], f.SrcPort)
	binary.BigEndian.PutUint16(b[34:], f.DstPort)
	binary.BigEndian.PutUint32(b[36:], f.Label)
}

func flowAt(b []byte) pathsel.Flow {
	return pathsel.Flow{
		Src: narrow(b), Dst: narrow(b[16:]), Proto: protoUDP,
		SrcPort: binary.BigEndian.Uint16(b[32:]), DstPort: binary.BigEndian.Uint16(b[34:]),
		Label: binary.BigEndian.Uint32(b[36:]),
	}
}

func wide(a netip.Addr) [16]byte {
	if !a.IsValid() {
		return [16]byte{}
	}
	return a.As16()
}

func narrow(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b[:16])).Unmap() }
