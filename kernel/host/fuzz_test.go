package host

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzNetlink: whatever stands in a message of the kernel's, nothing is read
// beyond it.
func FuzzNetlink(f *testing.F) {
	f.Add([]byte{5, 0, pmAddrID, 0, 7, 0, 0, 0, 8, 0, pmAddr4, 0, 10, 0, 0, 1, 6, 0, pmAddrPort, 0, 80, 0, 0, 0, 8, 0, pmAddrFlags, 0, 1, 0, 0, 0})
	f.Add([]byte{4, 0, pmAddrID, 0}) // an attribute without a value
	f.Add([]byte{5, 0, pmAddrPort, 0, 80, 0, 0, 0})
	f.Add(append([]byte{unix.AF_INET, 1}, make([]byte, 70)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e := parseEndpoint(b); e.id != 0 && len(b) < 5 {
			t.Errorf("%x is %+v", b, e)
		}
		if s, ok := parseSocket(b); ok != (len(b) >= 72) || ok && s.state != b[1] {
			t.Errorf("%x is %+v, %v", b, s, ok)
		}
	})
}
