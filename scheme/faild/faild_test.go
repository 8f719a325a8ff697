package faild

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

const none = wire.NoServer

func row(current uint16, previous ...uint16) beamer.Row {
	r := beamer.Settled(current)
	copy(r.Previous[:], previous)
	return r
}

func TestMAC(t *testing.T) {
	for _, c := range []struct {
		row  beamer.Row
		want wire.MAC
		ok   bool
	}{
		{row(0), wire.MAC{0x9a, 0, 0x40, 0, 0, 0}, true},
		{row(1022), wire.MAC{0x9a, 0xff, 0xc0, 0, 0, 0}, true},
		{row(0, 1, 2, 3), wire.MAC{0x9a, 0, 0x40, 0x20, 0x0c, 0x04}, true},
		{row(1023), wire.MAC{}, false},
		{row(none), wire.MAC{}, false},
		{row(4, 4), wire.MAC{}, false},
		{row(4, none, 5), wire.MAC{}, false},
	} {
		mac, err := MAC(c.row)
		if (err == nil) != c.ok || c.ok && mac != c.want {
			t.Errorf("%v: %x, %v; want %x", c.row, mac, err, c.want)
		}
	}
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		dst         wire.MAC
		slot        uint16
		faild, mine bool
		want        beamer.Packet
	}{
		"a card's own": {wire.MAC{2, 0, 0, 0, 9, 1}, 5, false, true, beamer.Packet{From: beamer.Balancer}},
		"another's":    {wire.MAC{0x9a, 0, 0x40, 0, 0, 0}, 1, true, false, beamer.Packet{}},
		"nobody's":     {wire.MAC{0x9a}, 0, true, false, beamer.Packet{}},
		"settled": {wire.MAC{0x9a, 0, 0x40, 0, 0, 0}, 0, true, true,
			beamer.Packet{From: beamer.Balancer, Carried: true, Untimed: true, Hops: wire.NewHops(0, 0)}},
		"a chain": {wire.MAC{0x9a, 0, 0x40, 0x20, 0x0c, 0x04}, 0, true, true,
			beamer.Packet{From: beamer.Balancer, Carried: true, Untimed: true, Hops: wire.NewHops(0, 0, 1, 2, 3)}},
		"a copy": {wire.MAC{0x9e, 0, 0x40, 0, 0, 0}, 0, true, true,
			beamer.Packet{From: beamer.Passed, Carried: true, Untimed: true, Copy: true, Hops: wire.NewHops(0, 0)}},
		"on its way back": {wire.MAC{0x96, 0, 0x40, 0x20, 0, 0}, 0, true, true,
			beamer.Packet{From: beamer.Passed, Carried: true, Untimed: true, Hops: wire.NewHops(0, 0, 1)}},
		"a hole": {wire.MAC{0x9a, 0, 0x40, 0, 0x0c, 0}, 0, true, true,
			beamer.Packet{From: beamer.Balancer, Carried: true, Untimed: true, Hops: wire.Hops{Previous: [3]uint16{none, 2, none}}}},
	} {
		var got beamer.Packet
		faild, mine := Read(c.dst, c.slot, &got)
		if faild != c.faild || mine != c.mine || got != c.want {
			t.Errorf("%s: %t, %t, %+v; want %t, %t, %+v", name, faild, mine, got, c.faild, c.mine, c.want)
		}
	}
}

// Frames of random rows go through random servers: each comes to the one that
// owns its flow if the row names it, within as many hops as the row has
// servers; a datagram that nobody owns ends at the first, a segment at the last.
func TestWay(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		n := 1 + r.IntN(4)
		servers := make([]uint16, 0, 4)
		for len(servers) < n {
			if s := uint16(r.IntN(1023)); !slices.Contains(servers, s) {
				servers = append(servers, s)
			}
		}
		mac, err := MAC(row(servers[0], servers[1:]...))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		owner, udp := none, r.IntN(2) == 0
		if r.IntN(3) > 0 {
			owner = int(servers[r.IntN(n)])
		}
		var path []uint16
		for {
			f, _, err := wire.DecodeFaild(mac)
			if err != nil {
				t.Fatalf("seed %d: row %d, after %d: %v", seed, servers, path, err)
			}
			path = append(path, f.Current)
			p := beamer.Packet{UDP: udp, Flags: wire.ACK}
			s := beamer.Server{Slot: f.Current, ChainTime: 1, Peers: func(uint16) beamer.Peer { return beamer.Unresolved }}
			Read(mac, f.Current, &p)
			a := s.Decide(&p, r.Uint32(), func() (k beamer.Socket) {
				if owner == int(f.Current) {
					k.State = beamer.Established
				}
				return k
			}, func() bool { return owner == int(f.Current) })
			if a.Verdict == beamer.Take {
				break
			}
			if a.Verdict != beamer.PassOn || len(path) > n+1 {
				t.Fatalf("seed %d: row %d, owner %d: %s after %d (%s)", seed, servers, owner, a.Verdict, path, a.Reasons)
			}
			mac = Next(mac, a)
		}
		want := slices.Clone(servers)
		switch at := slices.Index(servers, uint16(owner)); {
		case n == 1: // settled: nothing is asked
		case owner != none:
			want = want[:at+1]
		case udp:
			want = append(want, servers[0])
		}
		if !slices.Equal(path, want) {
			t.Fatalf("seed %d: row %d, owner %d, udp %t: came to %d, want %d", seed, servers, owner, udp, path, want)
		}
	}
}

func TestAsks(t *testing.T) {
	a := Asks[string]{Rate: 80}
	allowed := func(sender string, now uint32, tries int) (n int) {
		for range tries {
			if a.Allow(sender, now) {
				n++
			}
		}
		return n
	}
	const now = 100_000
	for _, c := range []struct {
		sender    string
		at        uint32
		want      int
		allOfThem string
	}{
		{"a", now, 10, "one sender has an eighth"},
		{"b", now, 10, "another has its own"},
		{"a", now + 99, 0, "not yet"},
		{"a", now + 200, 2, "ten a second"},
		{"a", now + 1_000_000, 10, "no more than a second's are kept"},
	} {
		if got := allowed(c.sender, c.at, 50); got != c.want {
			t.Errorf("%s: %d copies of %s, want %d", c.allOfThem, got, c.sender, c.want)
		}
	}
	all := 0
	for i := range 100 {
		all += allowed(string(rune('A'+i)), now+5_000_000, 10)
	}
	if all != 80 {
		t.Errorf("%d copies of all senders at once, want 80", all)
	}
	one := Asks[string]{Rate: 1}
	if !one.Allow("a", now) || one.Allow("b", now) {
		t.Error("a rate of one does not allow one")
	}
}
