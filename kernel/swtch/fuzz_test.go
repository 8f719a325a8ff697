package swtch

import (
	"bytes"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// FuzzNetlink: whatever stands in a message of the kernel's, nothing is read
// beyond it, and it stays as it is.
func FuzzNetlink(f *testing.F) {
	f.Add(append(make([]byte, unix.SizeofNhmsg), 8, 0, nhaID, 0, 1, 0, 0, 0, 8, 0, nhaOIF, 0, 3, 0, 0, 0, 8, 0, nhaGateway, 0, 10, 0, 0, 1))
	f.Add(append(make([]byte, unix.SizeofNhmsg), 12, 0, unix.NHA_GROUP, 0, 1, 0, 0, 0, 0, 0, 0, 0))
	f.Add(append(make([]byte, unix.SizeofNdMsg), 8, 0, unix.NDA_DST, 0, 10, 0, 0, 1, 10, 0, unix.NDA_LLADDR, 0, 2, 0, 0, 0, 0, 1, 0, 0))
	f.Add(append(make([]byte, unix.SizeofRtMsg), 8, 0, unix.RTA_DST, 0, 10, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		m := netlink.Message{Data: b}
		_, _, _ = parseNexthop(m)
		if n, err := parseNeighbour(m); err == nil && n.family != b[0] {
			t.Errorf("%x is %+v", b, n)
		}
		if r, err := parseRoute(m); err == nil && r.bits != int(b[1]) {
			t.Errorf("%x is %+v", b, r)
		}
		if !bytes.Equal(b, before) {
			t.Error("a parser changed what it read")
		}
	})
}
