package beamer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

const (
	testNow   = uint32(0x4000_0000)
	testChain = uint32(240_000)
	testGen   = uint32(1000)
)

// testServer is at slot 4; slots below 10 are others, of which 8 is unresolved.
func testServer() *Server {
	return &Server{Slot: 4, Generation: testGen, ChainTime: testChain, Peers: func(slot uint16) Peer {
		switch {
		case slot == 8:
			return Unresolved
		case slot < 10:
			return Reachable
		}
		return Unknown
	}}
}

// decide is a question that has one socket, and knows a flow or not.
func decide(s *Server, p Packet, k Socket, flow bool) string {
	a := s.Decide(&p, testNow, func() Socket { return k }, func() bool { return flow })
	said := a.Verdict.String()
	if a.Verdict == PassOn {
		said += fmt.Sprintf(" to %d %d", a.Next, a.Hops.Chain())
		if a.Hops.Time != p.Hops.Time || a.Hops.Generation != p.Hops.Generation {
			said += " with another time or generation"
		}
	}
	if len(a.Reasons) > 0 {
		said += ": " + strings.Join(a.Reasons, " ")
	}
	return said
}

func carried(from From, previous ...uint16) Packet {
	return Packet{From: from, Carried: true, Flags: wire.ACK, Hops: wire.NewHops(testNow-1000, testGen, previous...)}
}

func with(p Packet, edit func(*Packet)) Packet { edit(&p); return p }

func TestDecide(t *testing.T) {
	moved := carried(Balancer, 1, 2)
	udp := with(moved, func(p *Packet) { p.UDP, p.Flags = true, 0 })
	onward, unowned := "pass on to 1 [2]: forward_previous", "take: in_unowned"
	for name, c := range map[string]struct {
		p      Packet
		socket Socket
		flow   bool
		want   string
	}{
		"foreign":                   {with(moved, func(p *Packet) { p.From = Nobody }), Socket{State: Established}, false, "drop: drop_foreign_source"},
		"a health check":            {Packet{From: Balancer, Flags: wire.ACK}, Socket{}, false, "take"},
		"settled":                   {carried(Balancer), Socket{}, false, "take"},
		"settled, from a server":    {carried(Passed), Socket{}, false, "take"},
		"moved":                     {moved, Socket{}, false, onward},
		"moved, owned":              {moved, Socket{State: Established}, false, "take: in_owned"},
		"moved, passed on":          {with(moved, func(p *Packet) { p.From = Passed }), Socket{}, false, onward},
		"a listener":                {moved, Socket{State: Listener}, false, onward},
		"SYN":                       {with(moved, func(p *Packet) { p.Flags = wire.SYN }), Socket{}, false, "take: in_opening"},
		"SYN, ECN":                  {with(moved, func(p *Packet) { p.Flags = wire.SYN | 0xc0 }), Socket{}, false, "take: in_opening"},
		"SYN-ACK":                   {with(moved, func(p *Packet) { p.Flags = wire.SYN | wire.ACK }), Socket{}, false, onward},
		"a cookie":                  {moved, Socket{State: Listener, Cookie: true}, false, "take: in_syncookie"},
		"a cookie, FIN":             {with(moved, func(p *Packet) { p.Flags |= wire.FIN }), Socket{State: Listener, Cookie: true}, false, "take: in_syncookie"},
		"a cookie, RST":             {with(moved, func(p *Packet) { p.Flags |= wire.RST }), Socket{State: Listener, Cookie: true}, false, onward},
		"a cookie, quoted":          {with(moved, func(p *Packet) { p.Quote = true }), Socket{State: Listener, Cookie: true}, false, onward},
		"request, ACK":              {with(moved, func(p *Packet) { p.Ack = 8 }), Socket{State: Request, ISN: 7}, false, "take: in_owned"},
		"request, ACK that wraps":   {moved, Socket{State: Request, ISN: 0xffff_ffff}, false, "take: in_owned"},
		"request, another's ACK":    {with(moved, func(p *Packet) { p.Ack = 9 }), Socket{State: Request, ISN: 7}, false, onward},
		"request, no ACK":           {with(moved, func(p *Packet) { p.Ack, p.Flags = 8, wire.RST }), Socket{State: Request, ISN: 7}, false, onward},
		"request, SYN-ACK quoted":   {with(moved, func(p *Packet) { p.Quote, p.Seq = true, 7 }), Socket{State: Request, ISN: 7}, false, "take: in_owned"},
		"request, data quoted":      {with(moved, func(p *Packet) { p.Quote, p.Seq = true, 8 }), Socket{State: Request, ISN: 7}, false, "take: in_owned"},
		"request, another quoted":   {with(moved, func(p *Packet) { p.Quote, p.Seq = true, 6 }), Socket{State: Request, ISN: 7}, false, onward},
		"TIME_WAIT":                 {with(moved, func(p *Packet) { p.Seq = 100 }), Socket{State: TimeWait, Next: 100}, false, "take: in_owned"},
		"TIME_WAIT, late":           {with(moved, func(p *Packet) { p.Seq = 0xffff_0064 }), Socket{State: TimeWait, Next: 100}, false, "take: in_owned"},
		"TIME_WAIT, too late":       {with(moved, func(p *Packet) { p.Seq = 0xffff_0000 }), Socket{State: TimeWait, Next: 1}, false, onward},
		"TIME_WAIT, wide window":    {with(moved, func(p *Packet) { p.Seq = 0xffff_0000 }), Socket{State: TimeWait, Next: 1, Window: 1 << 20}, false, "take: in_owned"},
		"TIME_WAIT, ahead":          {with(moved, func(p *Packet) { p.Seq = 101 }), Socket{State: TimeWait, Next: 100}, false, onward},
		"TIME_WAIT, quoted":         {with(moved, func(p *Packet) { p.Seq, p.Quote = 100, true }), Socket{State: TimeWait, Next: 100}, false, onward},
		"FIN_WAIT2, ahead":          {with(moved, func(p *Packet) { p.Seq = 101 }), Socket{State: FinWait2, Next: 100}, false, "take: in_owned"},
		"FIN_WAIT2, far ahead":      {with(moved, func(p *Packet) { p.Seq = 101 + 65536 }), Socket{State: FinWait2, Next: 100}, false, onward},
		"quoted, owned":             {with(moved, func(p *Packet) { p.Quote = true }), Socket{State: Established}, false, "take: in_owned"},
		"quoted, end of the chain":  {with(moved, func(p *Packet) { p.Quote = true; p.Hops.Time = testNow - testChain - 1 }), Socket{}, false, "take"},
		"a flow":                    {udp, Socket{}, true, "take: in_owned"},
		"no flow":                   {udp, Socket{}, false, "pass on to 1 [2 4]: forward_previous"},
		"no flow, passed on":        {with(udp, func(p *Packet) { p.From = Passed }), Socket{}, false, onward},
		"no flow, either":           {with(udp, func(p *Packet) { p.From = Either }), Socket{}, false, onward},
		"no flow, quoted":           {with(udp, func(p *Packet) { p.Quote = true }), Socket{}, false, onward},
		"no flow, back":             {with(carried(Passed), func(p *Packet) { p.UDP = true }), Socket{}, false, "take: in_returned"},
		"a flow, back":              {with(carried(Passed), func(p *Packet) { p.UDP = true }), Socket{}, true, "take: in_owned"},
		"no flow, nobody to ask":    {with(carried(Balancer, 99), func(p *Packet) { p.UDP = true }), Socket{}, false, "take: unknown_previous in_unowned"},
		"QUIC opens":                {with(udp, func(p *Packet) { p.Opening = true }), Socket{}, false, "take: in_opening"},
		"the last millisecond":      {with(moved, func(p *Packet) { p.Hops.Time = testNow - testChain }), Socket{}, false, onward},
		"over":                      {with(moved, func(p *Packet) { p.Hops.Time = testNow - testChain - 1 }), Socket{}, false, unowned},
		"half the clock's round":    {with(moved, func(p *Packet) { p.Hops.Time = 0xc000_0001 }), Socket{}, false, unowned},
		"a little ahead":            {with(moved, func(p *Packet) { p.Hops.Time = testNow + 2000 }), Socket{}, false, onward},
		"ahead":                     {with(moved, func(p *Packet) { p.Hops.Time = testNow + 2001 }), Socket{}, false, "pass on to 1 [2]: clock_ahead forward_previous"},
		"no chain, ahead":           {with(carried(Balancer), func(p *Packet) { p.Hops.Time, p.Hops.Generation = testNow+5000, testGen-1 }), Socket{}, false, "drop: drop_stale"},
		"itself":                    {carried(Balancer, 1, 2, 4), Socket{}, false, "drop: drop_loop"},
		"itself, owned":             {carried(Balancer, 4), Socket{State: Established}, false, "take: in_owned"},
		"itself, over":              {with(carried(Balancer, 4), func(p *Packet) { p.Hops.Time = 0 }), Socket{}, false, unowned},
		"no hop left":               {with(moved, func(p *Packet) { p.Spent = true }), Socket{}, false, "drop: drop_loop"},
		"unknown and unresolved":    {carried(Balancer, 99, 8, 3), Socket{}, false, "pass on to 3 []: unknown_previous unresolved_previous forward_previous"},
		"nobody left":               {carried(Balancer, 8), Socket{}, false, "take: unresolved_previous in_unowned"},
		"a hole":                    {carried(Balancer, wire.NoServer, 3), Socket{}, false, "pass on to 3 []: forward_previous"},
		"a hole, a datagram's":      {with(carried(Balancer, 1, wire.NoServer, 3), func(p *Packet) { p.UDP = true }), Socket{}, false, "pass on to 1 [4 3]: forward_previous"},
		"stale":                     {with(carried(Balancer), func(p *Packet) { p.Hops.Generation-- }), Socket{}, false, "drop: drop_stale"},
		"stale, owned":              {with(carried(Balancer), func(p *Packet) { p.Hops.Generation-- }), Socket{State: Established}, false, "take: in_owned"},
		"stale, a chain":            {with(moved, func(p *Packet) { p.Hops.Generation-- }), Socket{}, false, onward},
		"stale, nobody left":        {with(carried(Passed, 99), func(p *Packet) { p.Hops.Generation -= 1 << 31 }), Socket{}, false, "drop: unknown_previous drop_stale"},
		"stale, quoted":             {with(carried(Balancer), func(p *Packet) { p.Hops.Generation--; p.Quote = true }), Socket{}, false, "take"},
		"stale, a datagram":         {with(carried(Balancer), func(p *Packet) { p.Hops.Generation--; p.UDP = true }), Socket{}, false, "take: in_unowned"},
		"stale, a datagram back":    {with(carried(Passed), func(p *Packet) { p.Hops.Generation--; p.UDP = true }), Socket{}, false, "take: in_returned"},
		"jump":                      {with(carried(Balancer), func(p *Packet) { p.Hops.Generation += bpf.GenerationAhead + 1 }), Socket{}, false, "take: generation_jump"},
		"jump, from a server":       {with(carried(Passed), func(p *Packet) { p.Hops.Generation += bpf.GenerationAhead + 1 }), Socket{}, false, "take"},
		"faild: moved":              {with(moved, func(p *Packet) { p.Untimed, p.Hops = true, wire.NewHops(0, 0, 8, 2) }), Socket{}, false, "pass on to 8 [2]: forward_previous"},
		"faild: error":              {with(moved, func(p *Packet) { p.Untimed, p.Quote = true, true }), Socket{}, false, "ask"},
		"faild: error, settled":     {with(carried(Balancer), func(p *Packet) { p.Untimed, p.Quote = true, true }), Socket{}, false, "ask"},
		"faild: error, owned":       {with(carried(Balancer), func(p *Packet) { p.Untimed, p.Quote = true, true }), Socket{State: Established}, false, "take: in_owned"},
		"faild: copy":               {with(carried(Passed), func(p *Packet) { p.Untimed, p.Quote, p.Copy = true, true, true }), Socket{}, false, "drop: drop_not_mine"},
		"faild: copy, owned":        {with(carried(Passed), func(p *Packet) { p.Untimed, p.Quote, p.Copy = true, true, true }), Socket{State: Established}, false, "take: in_owned"},
		"faild: copy of no error":   {with(carried(Passed, 1), func(p *Packet) { p.Untimed, p.Copy = true, true }), Socket{}, false, "drop: drop_not_mine"},
		"faild: stale is not known": {with(carried(Balancer), func(p *Packet) { p.Untimed = true; p.Hops.Generation = 0 }), Socket{}, false, "take"},
	} {
		if got := decide(testServer(), c.p, c.socket, c.flow); got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

func TestUnsettled(t *testing.T) {
	s := testServer()
	s.Unsettled = true
	for _, untimed := range []bool{false, true} {
		p := with(carried(Balancer), func(p *Packet) { p.Untimed = untimed })
		if got := decide(s, p, Socket{}, false); got != "drop: drop_stale" {
			t.Errorf("untimed %t: nobody's: %s", untimed, got)
		}
		if got := decide(s, p, Socket{State: Established}, false); got != "take: in_owned" {
			t.Errorf("untimed %t: owned: %s", untimed, got)
		}
	}
}

func TestGenerations(t *testing.T) {
	for _, base := range []uint32{testGen, 0xffff_fffe, 0x7fff_ffff, 5} {
		s := testServer()
		s.Generation = base
		see := func(from From, ahead int32, want string, seen uint32) {
			t.Helper()
			p := with(carried(from), func(p *Packet) { p.Hops.Generation = base + uint32(ahead) })
			if got := decide(s, p, Socket{}, false); got != want || s.Seen != seen {
				t.Errorf("base %#x, %+d: %s, seen %#x; want %s, %#x", base, ahead, got, s.Seen, want, seen)
			}
		}
		see(Balancer, 0, "take", 0)
		see(Passed, 3, "take", 0)
		see(Balancer, 3, "take", base+3)
		see(Balancer, 2, "drop: drop_stale", base+3)
		if s.StaleMS != testNow|1 {
			t.Errorf("stale at %#x, want %#x", s.StaleMS, testNow|1)
		}
		// No further from the agent's, however small the step is.
		see(Either, bpf.GenerationAhead, "take", base+bpf.GenerationAhead)
		see(Balancer, bpf.GenerationAhead+1, "take: generation_jump", base+bpf.GenerationAhead)
		// The agent's is later again; what was seen does not count any more.
		s.Generation = base + 10*bpf.GenerationAhead
		see(Balancer, 10*bpf.GenerationAhead, "take", base+bpf.GenerationAhead)
		// Nor does what was seen ahead of a table that the agent no longer has.
		s.Generation = base - 1
		see(Balancer, -1, "take", base+bpf.GenerationAhead)
	}
	s := testServer()
	s.StaleMS = 0
	decide(s, with(carried(Passed), func(p *Packet) { p.Hops.Generation-- }), Socket{}, false)
	if s.StaleMS != 0 {
		t.Error("what a server passed on counts as a balancer's older table")
	}
}

func TestFlows(t *testing.T) {
	for _, base := range []uint32{testNow, 0xffff_ff00} {
		f := Flows[int]{}
		if f.Known(1, base, testChain) {
			t.Error("an empty table knows a flow")
		}
		f.Take(1, base)
		f.Take(1, base+999)
		if f[1] != base {
			t.Error("written again within a second")
		}
		for age, known := range map[int64]bool{0: true, int64(testChain): true, int64(testChain) + 1: false, -1: true, -5000: true} {
			if got := f.Known(1, base+uint32(age), testChain); got != known {
				t.Errorf("base %#x, age %d: known %t", base, age, got)
			}
		}
		f.Take(1, base+1000)
		if f[1] != base+1000 {
			t.Error("not written after a second")
		}
	}
}

func TestBucket(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		n := 1 + r.IntN(1<<23)
		b := Bucket(r.Uint64(), n)
		if b < 0 || b >= n {
			t.Fatalf("seed %d: bucket %d of %d", seed, b, n)
		}
	}
	if Bucket(0, 7) != 0 || Bucket(1<<64-1, 7) != 6 || Bucket(1<<64-1, 1<<23) != 1<<23-1 {
		t.Error("the ends of the table are not reached")
	}
}

// rows is a table of one bucket each.
type rows []Row

func (r rows) Len() int      { return len(r) }
func (r rows) Row(b int) Row { return r[b] }

func TestWay(t *testing.T) {
	table := rows{Settled(3), {Current: 5, Previous: [3]uint16{3, 1, wire.NoServer}, Time: 99}, Settled(wire.NoServer)}
	third := uint64(1) << 63 / 3 * 2
	for b, want := range []string{"3 [] 0 7 true", "5 [3 1] 99 7 true", "65535 [] 0 7 false"} {
		slot, hops, ok := Way(table, uint64(b)*third+third/2, 7)
		if got := fmt.Sprint(slot, hops.Chain(), hops.Time, hops.Generation, ok); got != want {
			t.Errorf("bucket %d: %s, want %s", b, got, want)
		}
	}
	if _, _, ok := Way(rows{}, 5, 7); ok {
		t.Error("a table without buckets has a way")
	}
}

// A bucket wanders among servers while connections and flows are opened: each
// packet comes to the server that has its connection, as long as the chain
// names it, and to one that takes it in any case.
func TestWandering(t *testing.T) {
	seed := soak.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 2000 {
		now, gen := r.Uint32(), r.Uint32()
		row := Settled(uint16(r.IntN(6)))
		type conn struct {
			udp   bool
			owner uint16
		}
		var conns []conn
		for range 40 {
			now += uint32(r.IntN(60_000))
			switch r.IntN(4) {
			case 0:
				to := uint16(r.IntN(6))
				if to == row.Current {
					continue
				}
				chain := slices.DeleteFunc(append([]uint16{row.Current}, wire.Hops{Previous: row.Previous}.Chain()...), func(s uint16) bool { return s == to })
				row = Row{Current: to, Previous: wire.NewHops(0, 0, chain[:min(3, len(chain))]...).Previous, Time: now}
				gen++
				continue
			case 1:
				conns = append(conns, conn{udp: r.IntN(2) == 0, owner: wire.NoServer})
			}
			if len(conns) == 0 {
				continue
			}
			c := &conns[r.IntN(len(conns))]
			p := Packet{UDP: c.udp, Flags: wire.ACK, From: Balancer, Carried: true, Hops: wire.Hops{Previous: row.Previous, Time: row.Time, Generation: gen}}
			if !c.udp && c.owner == wire.NoServer {
				p.Flags = wire.SYN
			}
			at, hops := row.Current, 0
			for {
				s := Server{Slot: at, Generation: gen, ChainTime: testChain, Peers: func(uint16) Peer { return Reachable }}
				mine := func() bool { return c.owner == at }
				a := s.Decide(&p, now, func() (k Socket) {
					if mine() {
						k.State = Established
					}
					return k
				}, mine)
				if a.Verdict == Take {
					break
				}
				if hops++; a.Verdict != PassOn || hops > 4 {
					t.Fatalf("seed %d, round %d: row %v, owner %d: %s at %d after %d hops (%s)", seed, round, row, c.owner, a.Verdict, at, hops, a.Reasons)
				}
				p.From, p.Hops, at = Passed, a.Hops, a.Next
			}
			named := c.owner == row.Current || slices.Contains(row.Previous[:], c.owner) && now-row.Time <= testChain
			switch {
			case c.owner == wire.NoServer && at != row.Current:
				t.Fatalf("seed %d, round %d: row %v: a new one is taken by %d", seed, round, row, at)
			case c.owner != wire.NoServer && named && at != c.owner:
				t.Fatalf("seed %d, round %d: row %v: of %d, came to %d", seed, round, row, c.owner, at)
			}
			if c.owner == wire.NoServer || c.udp {
				c.owner = at // a datagram makes its flow known wherever it is taken
			}
		}
	}
}
