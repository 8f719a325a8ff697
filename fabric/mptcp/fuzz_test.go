package mptcp

import "testing"

// FuzzNetlink: whatever stands in a message of the kernel's, nothing is read
// beyond it, and what is taken has its header.
func FuzzNetlink(f *testing.F) {
	whole := message(f)
	f.Add(whole)
	f.Add(whole[:diagMessageSize+10])
	f.Add([]byte{1, 0, 0, 0, 8, 0, eventToken, 0, 1, 2, 3, 4, 5, 0, eventError, 0, 9, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseSubflow(b); ok && (len(b) < diagMessageSize || s.State != b[1]) {
			t.Errorf("%x is %+v", b, s)
		}
		if e, ok := parseEvent(b); ok && (len(b) < 4 || e.kind != b[0]) {
			t.Errorf("%x is %+v", b, e)
		}
		parseInfo(b)
	})
}
