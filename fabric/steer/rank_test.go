package steer

import (
	"net/netip"
	"testing"
)

// Servers that come and go change no other server's number, and what a daemon
// before chose stays where it is.
func TestRanks(t *testing.T) {
	var r Ranks
	server := func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, i}) }
	want := func(i byte, rank int) {
		t.Helper()
		if got := r.Of(server(i)); got != rank {
			t.Errorf("server %d has rank %d, want %d", i, got, rank)
		}
	}
	for i := range byte(4) {
		want(9-i, int(i))
	}
	want(1, 4) // a lower address than all others
	want(9, 0)
	r.Leave(server(8))
	r.Leave(server(99))
	want(7, 2)
	want(2, 1) // what became free
	if r.Has(server(8)) || !r.Has(server(2)) {
		t.Error("Has")
	}

	r = Ranks{}
	for i, path := range []int{2, 2, 0} { // of three
		if got := r.Keep(server(byte(i)), path, 3); got%3 != path {
			t.Errorf("server %d on path %d has rank %d", i, path, got)
		}
	}
	want(8, 1) // the path that nobody has
	if got := r.Keep(server(8), 0, 3); got != 1 {
		t.Errorf("a number changed: %d", got)
	}
}

func TestOnePathOf(t *testing.T) {
	server, err := open(t, leafSpine(4, 1, config(16, "ports", "ports"))).Server(netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.1.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	good := []bool{true, true, true, true}
	if got := server.OnePathOf(server.Row(OnePath, good, 6)); got != 2 {
		t.Errorf("one path: %d, want 2", got)
	}
	for _, row := range []Row{{}, server.Row(AllPaths, good, 0)} {
		if got := server.OnePathOf(row); got != -1 {
			t.Errorf("no path or several: %d", got)
		}
	}
}
