package dataplane

import (
	"net/netip"
	"testing"
)

func (c Counters) reason(name string) uint64 {
	for _, r := range c.Reasons {
		if r.Name == name {
			return r.Packets
		}
	}
	return 0
}

func (w *wired) counters(l *LB) Counters {
	w.t.Helper()
	c, err := l.Counters()
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *wired) apply(l *LB, servers ...int) {
	w.t.Helper()
	w.t.Logf("apply %v", servers)
	if err := l.Apply(assignment(1, servers...), nil); err != nil {
		w.t.Fatal(err)
	}
}

// From nothing to a packet that comes out encapsulated to a server whose MAC
// nobody typed.
func TestOpenApplyForward(t *testing.T) {
	w := newWired(t)
	l := w.open(w.options())
	if err := l.SetClock(func() uint32 { return 12345 }); err != nil {
		t.Fatal(err)
	}
	w.apply(l, 11, 12)
	seen := map[netip.Addr]bool{}
	for port := range uint16(8) {
		to, _ := w.forwarded(1000 + port)
		seen[to] = true
	}
	if len(seen) != 2 {
		t.Errorf("round robin over two servers reached %v", seen)
	}
	c := w.counters(l)
	if n := c.reason("forward_new"); n < 8 {
		t.Errorf("forward_new %d, want 8 or more", n)
	}
	if len(c.VIPs) != 1 || len(c.VIPs[0].Servers) != 2 || c.VIPs[0].Packets < 8 || c.VIPs[0].NewConnections < 8 {
		t.Errorf("counters %+v", c.VIPs)
	}
	s := l.Status()
	t.Logf("%+v", s)
	if s.Interfaces[0].Mode != "native" || s.HZ == 0 {
		t.Errorf("status %+v", s)
	}
}
