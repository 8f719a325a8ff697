package wire

import (
	"bytes"
	"net/netip"
	"testing"
)

// FuzzDecode: whatever arrives, no decoder panics or changes what it reads.
func FuzzDecode(f *testing.F) {
	for _, a := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
		vip := netip.MustParseAddrPort(a)
		frame := TCP{Src: netip.AddrPortFrom(vip.Addr().Next(), 1024), Dst: vip, Flags: SYN, Options: SYNOptions(1460, 1000)}.Frame()
		f.Add(frame)
		f.Add(frame[EthernetLen:])
		f.Add(frame[:len(frame)-3])
	}
	f.Add(SYNOptions(1460, 1000))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		Parse(b).ChecksumErrors()
		ParsePacket(b).ChecksumErrors()
		_, _, _ = FindTimestamp(b)
		for _, port := range []uint16{0, 6080} {
			if inner, _, err := Decapsulate(b, port); err == nil && len(inner) > len(b) {
				t.Errorf("%d bytes out of %d", len(inner), len(b))
			}
		}
		_, _ = ParseHops(b)
		if !bytes.Equal(b, before) {
			t.Error("a decoder changed what it read")
		}
	})
}
