package host

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

// "Avoiding reset connections in corner cases" (Beamer, NSDI'18, slides): what a
// move of a bucket from server A to B can meet. Time goes down; C is the client,
// M the mux, [A] the chain that a packet carries.

func corner(t *testing.T, test func(c *client, a, b *ownHost)) {
	t.Helper()
	n := newOwnNet(t, 3)
	n.listenAll()
	eachDelivery(t, n, func(c *client) { test(c, n.hosts[0], n.hosts[1]) })
}

// The bucket moves between SYN and ACK.
//
//	C              M              A              B
//	│── SYN ──────▶│─────────────▶│ request      │
//	│◀───────────────── SYN-ACK ──│              │
//	│              │ A → B        │              │
//	│── ACK ──────▶│── [A] ──────────────────────▶│ no socket
//	│              │              │◀── [] ───────│
//	│              │              │ established  │
//	│── data ─────▶│── [A] ──────────────────────▶│
//	│              │              │◀── [] ───────│
//	│◀─────────────────── data ───│              │
func TestCornerACKAtTheNewOwner(t *testing.T) {
	t.Parallel()
	corner(t, func(c *client, a, b *ownHost) {
		c.ack = c.synAck(a).Seq + 1
		c.seq++
		c.expect("ACK", b, wire.ACK, taken("", 2, 1), 1)
		c.talk(b, a, 1)
	})
}

// The client, which has not seen A's answer yet, sends its SYN again; B answers
// that one, too. The client goes by the answer that comes first, A's, and B's
// request is no reason to keep its ACK.
//
//	C              M              A              B
//	│── SYN ──────▶│─────────────▶│ request a    │
//	│      (slow) ◁── SYN-ACK a ──│              │
//	│              │ A → B        │              │
//	│── SYN ──────▶│── [A] ──────────────────────▶│ request b
//	│◀── SYN-ACK a │              │              │
//	│◀──────────────────────────────── SYN-ACK b ─│
//	│── ACK a+1 ──▶│── [A] ──────────────────────▶│ b+1 it is not
//	│              │              │◀── [] ───────│
//	│              │              │ established  │
//	│── ACK a+1, a challenge to SYN-ACK b ───────▶│ as before
//	│              │              │◀── [] ───────│
func TestCornerSYNAgainAtTheNewOwner(t *testing.T) {
	t.Parallel()
	corner(t, func(c *client, a, b *ownHost) {
		old := c.synAck(a).Seq
		c.synAck(b, 1)
		c.seq++
		c.ack = old + 1
		c.expect("ACK of the old owner's answer", b, wire.ACK, taken("", 2, 1), 1)
		c.talk(b, a, 1)
		c.expect("challenge ACK", b, wire.ACK, taken("", 2, 1), 1)
		c.talk(b, a, 1)
		b.silent(c.addr, c.from(wire.SYN|wire.ACK, 0))
	})
}

// The same, but the client goes by the new owner's answer: A's came never. A's
// request is left alone, and gives up by itself.
func TestCornerTheNewOwnersAnswerCounts(t *testing.T) {
	t.Parallel()
	corner(t, func(c *client, a, b *ownHost) {
		c.synAck(a)
		c.ack = c.synAck(b, 1).Seq + 1
		c.seq++
		c.expect("ACK of the new owner's answer", b, wire.ACK, taken("in_owned", 2), 1)
		c.talk(b, b, 1)
		a.silent(c.addr, c.from(wire.SYN|wire.ACK, 0))
	})
}

// A connection of the client's port is in TIME_WAIT at B; a newer one of the
// same port was opened with A and lives when the bucket comes back to B.
//
//	C              M              A              B
//	│◀═══════════ connection 1 ═════════════════▶│
//	│              │              │              │ TIME_WAIT
//	│              │ B → A        │              │
//	│◀═══ connection 2 ══════════▶│              │
//	│              │ A → B        │              │
//	│── data 2 ───▶│── [A] ──────────────────────▶│ not of connection 1
//	│              │              │◀── [] ───────│
//	│◀──────────────────── data ──│              │
//	│── late FIN 1▶│── [A] ──────────────────────▶│ of connection 1
//	│◀──────────────────────────────────── ACK ──│
func TestCornerTimeWaitAtTheNewOwner(t *testing.T) {
	t.Parallel()
	corner(t, func(c *client, a, b *ownHost) {
		c.connect(b)
		c.hangUp(b, b)
		late := *c
		late.seq--
		next := *c
		next.seq += 0x0800_0000
		next.connect(a, 2)
		next.talk(b, a, 1)
		late.expect("late FIN", b, wire.FIN|wire.ACK, taken("in_owned", 2), 1)
		b.answer("ACK", late.from(wire.ACK, wire.RST))
		next.talk(b, a, 1)
		a.silent(c.addr, nil)
	})
}

// A connection that A closed waits in TIME_WAIT there when its bucket moves: its
// client's last packets have to be answered by A, or B would reset them.
//
//	C              M              A              B
//	│◀═════ connection ══════════▶│              │
//	│◀──────────────────── FIN ───│              │
//	│── FIN ──────▶│─────────────▶│ TIME_WAIT    │
//	│        (lost) ◁───── ACK ───│              │
//	│              │ A → B        │              │
//	│── FIN again ▶│── [A] ──────────────────────▶│ no socket
//	│              │              │◀── [] ───────│
//	│◀──────────────────── ACK ───│              │
func TestCornerTimeWaitAtThePrevious(t *testing.T) {
	t.Parallel()
	corner(t, func(c *client, a, b *ownHost) {
		c.connect(a)
		c.hangUp(a, a)
		c.seq--
		c.expect("FIN again", b, wire.FIN|wire.ACK, taken("", 2, 1), 1)
		a.answer("ACK", c.from(wire.ACK, wire.RST|wire.FIN))
		c.seq++
		c.expect("late ACK", b, wire.ACK, taken("", 2, 1), 1)
		a.silent(c.addr, nil)
		b.silent(c.addr, nil)
	})
}

// B answers SYNs with cookies as its listener is flooded: nothing is known of
// the connection when its ACK comes, but by the cookie it is B's, and not the
// previous server's, which would reset it.
//
//	C              M              A              B
//	│              │ A → B        │              │ flooded
//	│── SYN ──────▶│── [A] ──────────────────────▶│ nothing kept
//	│◀───────────────────── SYN-ACK, a cookie ───│
//	│── ACK ──────▶│── [A] ──────────────────────▶│ right cookie
//	│              │              │              │ established
//
// and A, flooded before the move, gets the ACK of its own cookies:
//
//	│── SYN ──────▶│─────────────▶│ nothing kept │
//	│◀── cookie ──────────────────│              │
//	│              │ A → B        │              │
//	│── ACK ──────▶│── [A] ──────────────────────▶│ not flooded
//	│              │              │◀── [] ───────│
//	│              │              │ established  │
func TestCornerSynCookie(t *testing.T) {
	t.Parallel()
	for _, by := range []delivery{ipip4, ipip6, byMAC} {
		for _, flooded := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s-%c", by.name, 'A'+flooded), func(t *testing.T) {
				n := newOwnNet(t, 2)
				a, b := n.hosts[0], n.hosts[1]
				c := newClient(n, by, 10000, false)
				overflow(c, n.hosts[flooded])
				other := n.hosts[1-flooded]
				n.must(other.ns.Sysctl("net.ipv4.tcp_syncookies", "1"))
				other.listen(c.vip)
				if flooded == 1 {
					c.ack = c.synAck(b, 1).Seq + 1
					c.seq++
					c.expect("ACK of a cookie", b, wire.ACK, taken("in_syncookie", 2), 1)
					c.expect("ACK again", b, wire.ACK, taken("in_owned", 2), 1)
				} else {
					c.ack = c.synAck(a).Seq + 1
					c.seq++
					c.expect("ACK of the previous server's cookie", b, wire.ACK, taken("", 2, 1), 1)
					c.expect("ACK again", a, wire.ACK, taken("in_owned", 1), 2)
				}
				a.silent(c.addr, nil)
				b.silent(c.addr, nil)
			})
		}
	}
}

// A mux that has missed the last change sends a connection's packets to the old
// owner, which never had it: nobody may reset it, and by the other mux it goes
// on.
//
//	C              M (new)        M' (old)       A              B
//	│              │ A → B        │              │              │
//	│── SYN, ACK ─▶│── [A], 8 ─────────────────────────────────▶│ established
//	│              │              │              │              │
//	│── SYN 2 ────▶│── other VIP's or bucket's ─▶│ has seen 8    │
//	│── data ─────────────────────▶│── [], 7 ───▶│ nobody's: 7 < 8, dropped
//	│              │              │              │              │
//	│── data ─────▶│── [A], 8 ─────────────────────────────────▶│
//	│◀──────────────────────────────────────────────── data ────│
func TestCornerStaleMux(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	a, b := n.hosts[0], n.hosts[1]
	for i, by := range deliveries {
		if by.outer == 0 {
			continue // a switch's frames say no generation
		}
		c := newClient(n, by, uint16(10000+100*i), false)
		c.gen++
		c.connect(b, 1)
		o := c.again()
		o.connect(a) // of another bucket; A knows of the change by its packets
		stale := *c
		stale.gen--
		n.want(by.name+": by the stale mux", a, stale.frame(a, stale.segment(wire.ACK|wire.PSH, "hello")), dropped("drop_stale", 1))
		n.want(by.name+": SYN by the stale mux", a, stale.frame(a, stale.again().again().segment(wire.SYN, "")), taken("in_opening", 1))
		stale = *o
		stale.gen--
		stale.talk(a, a) // what it owns it hears
		c.talk(b, b, 1)
		a.silent(c.addr, nil)
	}
}

// The bucket moves to B and back: connections of before, between and after.
//
//	C              M              A              B
//	│◀═══ connection 1 ══════════▶│              │
//	│              │ A → B        │              │
//	│◀═══ connection 2, [A] ════════════════════▶│
//	│── data 1 ───▶│── [A] ──────────────────────▶│
//	│              │              │◀── [] ───────│
//	│              │ B → A        │              │
//	│── data 1 ───▶│── [B] ──────▶│ owned        │
//	│── data 2 ───▶│── [B] ──────▶│              │
//	│              │              │── [] ───────▶│ owned
//	│◀═══ connection 3, [B] ═════▶│              │
func TestCornerThereAndBack(t *testing.T) {
	t.Parallel()
	corner(t, func(c *client, a, b *ownHost) {
		one := c
		one.connect(a)
		two := one.again()
		two.connect(b, 1)
		one.talk(b, a, 1)
		two.talk(b, b, 1)
		three := two.again()
		three.connect(a, 2)
		for range 2 {
			one.talk(a, a, 2)
			two.talk(a, b, 2)
			three.talk(a, a, 2)
		}
		// And once more away, by a third server.
		one.talk(one.net.hosts[2], a, 1, 2)
		two.talk(one.net.hosts[2], b, 1, 2)
		three.talk(one.net.hosts[2], a, 1, 2)
	})
}

// A client's port comes around while its earlier connection lives on at a
// server that lost the bucket: the SYN is the new owner's, as it is without any
// balancer, and nothing of the new connection reaches the old one.
func TestCornerPortComesAround(t *testing.T) {
	t.Parallel()
	corner(t, func(c *client, a, b *ownHost) {
		c.connect(a)
		next := *c
		next.addr = netip.AddrPortFrom(c.addr.Addr(), c.addr.Port())
		next.seq += 0x0800_0000
		next.connect(b, 1)
		next.talk(b, b, 1)
		a.silent(c.addr, func(p *wire.Parsed) bool { // but what it said before, where this test acknowledged that late
			return p.Ack == c.seq && p.Seq+uint32(len(p.Payload)) == c.ack
		})
	})
}
