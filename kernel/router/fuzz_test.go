package router

import (
	"bytes"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// FuzzNetlink: whatever stands in a message of the kernel's, nothing is read
// beyond it, and it stays as it is.
func FuzzNetlink(f *testing.F) {
	gateway := []byte{8, 0, unix.RTA_GATEWAY, 0, 10, 0, 0, 1, 8, 0, unix.RTA_OIF, 0, 3, 0, 0, 0}
	f.Add(append([]byte{unix.AF_INET, 24, 0, 0, unix.RT_TABLE_MAIN, 0, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, gateway...))
	f.Add(append([]byte{unix.AF_INET, 24, 0, 0, unix.RT_TABLE_MAIN, 0, 0, unix.RTN_UNICAST, 0, 0, 0, 0,
		20, 0, unix.RTA_MULTIPATH, 0, 16, 0, 0, 1, 3, 0, 0, 0}, gateway[:8]...))
	f.Add(append(make([]byte, unix.SizeofIfInfomsg), 7, 0, unix.IFLA_IFNAME, 0, 'e', '1', 0, 0, 12, 0, unix.IFLA_LINKINFO, 0, 8, 0, unix.IFLA_INFO_KIND, 0, 'v', 'l', 'a', 'n'))
	f.Add(append(make([]byte, unix.SizeofNhmsg), 12, 0, unix.NHA_GROUP, 0, 1, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		everyParser(netlink.Message{Data: b})
		if ways, err := parseWays(b); err == nil && 8*len(ways) > len(b) {
			t.Errorf("%d ways out of %d bytes", len(ways), len(b))
		}
		if !bytes.Equal(b, before) {
			t.Error("a parser changed what it read")
		}
	})
}
