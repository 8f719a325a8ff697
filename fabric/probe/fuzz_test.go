package probe

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/dchest/siphash"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// FuzzMessage: a message with a right authenticator is the same encoded anew; with
// a wrong one it is foreign.
func FuzzMessage(f *testing.F) {
	s := secretOf([16]byte{1, 2, 3})
	flow := func(src, dst string) pathsel.Flow {
		return pathsel.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: protoUDP, SrcPort: 1, DstPort: 2, Label: 3}
	}
	for _, m := range []message{
		{kind: kindProbe, ttl: 64, session: 7, path: 1, round: 2, sent: flow("10.0.0.1", "10.0.0.2")},
		{kind: kindAnswer, ttl: 64, answerTTL: 60, sent: flow("fd00::1", "fd00::2"), seen: flow("fd00::1", "fd00::2"), seenTTL: 61, received: 1, held: 2},
	} {
		b := make([]byte, messageSize)
		s.encode(b, &m)
		f.Add(b)
		f.Add(b[:macAt])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < messageSize {
			if _, err := s.decode(b); err == nil {
				t.Error("too short, and taken")
			}
			return
		}
		b = append([]byte(nil), b...)
		copy(b, magic)
		binary.BigEndian.PutUint64(b[macAt:], siphash.Hash(s.k0, s.k1, b[:macAt]))
		m, err := s.decode(b)
		if err != nil {
			t.Fatal(err)
		}
		again := make([]byte, messageSize)
		s.encode(again, &m)
		if n, err := s.decode(again); err != nil || n != m {
			t.Errorf("%+v, then %+v (%v)", m, n, err)
		}
		b[int(b[20])%messageSize] ^= 1
		if _, err := s.decode(b); err == nil {
			t.Error("damaged, and taken")
		}
	})
}
