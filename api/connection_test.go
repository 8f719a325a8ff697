package api

import (
	"net/netip"
	"slices"
	"testing"
)

// What is appended is read again, and what was cut is not.
func TestConnections(t *testing.T) {
	all := []Connection{{netip.MustParseAddrPort("203.0.113.7:4711"), 443}, {netip.MustParseAddrPort("[2001:db8::7]:1"), 65535}}
	var b []byte
	for _, c := range all {
		b = AppendConnection(b, c)
	}
	if got, err := Connections(b); err != nil || !slices.Equal(got, all) {
		t.Errorf("%v, %v", got, err)
	}
	for n := range b {
		if _, err := Connections(b[:n]); (err == nil) != (n%connectionOctets == 0) {
			t.Errorf("%d octets: %v", n, err)
		}
	}
}
