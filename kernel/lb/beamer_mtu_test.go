package lb

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables"
)

// Hops take room of the path's MTU: 16 bytes, over IPv6 without GUE 24.
func TestOverhead(t *testing.T) {
	for _, c := range []struct {
		addr       string
		forwarding bpf.Forwarding
		plain      int
		hops       int
	}{
		{"10.0.0.1", bpf.FwdIPIP, 20, 36},
		{"fd00::1", bpf.FwdIPIP, 40, 64},
		{"10.0.0.1", bpf.FwdGUE, 32, 48},
		{"fd00::1", bpf.FwdGUE, 52, 68},
	} {
		s := tables.Line{Addr: netip.MustParseAddr(c.addr), Forwarding: c.forwarding}
		if n := overhead(s); n != c.plain {
			t.Errorf("%+v: %d bytes, want %d", s, n, c.plain)
		}
		s.Hops = true
		if n := overhead(s); n != c.hops {
			t.Errorf("%+v: %d bytes, want %d", s, n, c.hops)
		}
	}
	if n := overhead(tables.Line{Addr: netip.MustParseAddr("10.0.0.1"), Forwarding: bpf.FwdL2}); n != 0 {
		t.Errorf("l2 adds %d bytes", n)
	}
}

// The lines of a VIP of scheme beamer know that after a restart, too: a line
// that is written anew for its next hop keeps its room for hops.
func TestBeamerMTU(t *testing.T) {
	t.Parallel()
	w := newWired(t)
	l := w.open(w.options())
	a := beamerAssignment(buckets.New(16, weights(1)), 11)
	mtu := func() uint16 {
		t.Helper()
		line, ok := l.Line(1, 0)
		if !ok {
			t.Fatal("slot 0 has no line")
		}
		var cpus []bpf.Line
		if err := l.set.Maps[mapLines].Lookup(line, &cpus); err != nil {
			t.Fatal(err)
		}
		return cpus[0].Mtu
	}
	if _, err := l.Apply(a, nil); err != nil {
		t.Fatal(err)
	}
	if got := mtu(); got != 1500-36 {
		t.Errorf("MTU %d, want %d", got, 1500-36)
	}
	l.Close()
	l = w.open(w.options())
	l.syncLines()
	if got := mtu(); got != 1500-36 {
		t.Errorf("adopted: MTU %d, want %d", got, 1500-36)
	}
}
