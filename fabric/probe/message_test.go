package probe

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

func sample(src, dst string) message {
	flow := pathsel.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: protoUDP, SrcPort: 40000, DstPort: 6081, Label: 0xabcde}
	seen := flow
	seen.SrcPort = 1234
	return message{
		kind: kindAnswer, ttl: 64, answerTTL: 63, session: 1 << 63, path: 7, round: trainBit | 9, sent: flow,
		answerPort: 50000, answerLabel: 0x12345, seenTTL: 61, seen: seen, received: 1 << 60, held: 12345,
	}
}

// Messages come back as they went, for both families, and with padding.
func TestMessage(t *testing.T) {
	s := secretOf([16]byte{1, 2, 3})
	for _, m := range []message{sample("10.0.0.1", "10.0.0.2"), sample("fd00::1", "fd00::2")} {
		b := make([]byte, trainSize)
		s.encode(b, &m)
		got, err := s.decode(b)
		if err != nil || got != m {
			t.Errorf("decode(encode(%+v)) = %+v, %v", m, got, err)
		}
	}
}

// What is cut short, changed in any bit or of another key is foreign.
func TestMessageForeign(t *testing.T) {
	s := secretOf([16]byte{1, 2, 3})
	m := sample("10.0.0.1", "10.0.0.2")
	b := make([]byte, messageSize)
	s.encode(b, &m)
	for n := range b {
		if _, err := s.decode(b[:n]); !errors.Is(err, errForeign) {
			t.Errorf("%d octets of a message: %v", n, err)
		}
		for bit := range 8 {
			b[n] ^= 1 << bit
			if _, err := s.decode(b); !errors.Is(err, errForeign) {
				t.Errorf("bit %d of octet %d changed: %v", bit, n, err)
			}
			b[n] ^= 1 << bit
		}
	}
	if _, err := secretOf([16]byte{1, 2, 4}).decode(b); !errors.Is(err, errForeign) {
		t.Errorf("another key: %v", err)
	}
}
