package host

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// Every branch of the decision for TCP, with real sockets in each state.

// An established connection is heard wherever its bucket goes, up to three
// moves on.
func TestOwnEstablished(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 4)
	n.listenAll()
	first, second, third, fourth := n.hosts[0], n.hosts[1], n.hosts[2], n.hosts[3]
	eachDelivery(t, n, func(c *client) {
		c.connect(first)
		c.talk(first, first)     // settled: nothing is asked
		c.talk(first, first, 2)  // asked, owned
		c.talk(second, first, 1) // moved
		c.talk(third, first, 2, 1)
		c.talk(fourth, first, 3, 2, 1)
		c.expect("the owner is asked", first, wire.ACK, taken("in_owned", 1), 2)
		c.expect("three hops", fourth, wire.ACK, taken("", 4, 3, 2, 1), 3, 2, 1)
		c.hangUp(second, first, 1)
	})
}

// Half-closed connections are owned as whole ones are.
func TestOwnHalfClosed(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	first, second := n.hosts[0], n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		c.connect(first)
		c.sent(second, wire.ACK|wire.FIN, "", 1) // CLOSE_WAIT, then LAST_ACK
		c.expect("after the client's FIN", second, wire.ACK, taken("", 2, 1), 1)
		fin := first.answer("FIN", c.from(wire.FIN, 0))
		c.ack = fin.Seq + 1
		c.expect("the last ACK", second, wire.ACK, taken("", 2, 1), 1)
	})
}

func TestOwnRequest(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	second := n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		isn := c.synAck(second, 1).Seq
		c.expect("SYN again", second, wire.SYN, taken("in_opening", 2), 1)
		c.seq++
		for _, wrong := range []uint32{0, 1, isn, isn + 2, isn - 1, isn ^ 0x8000_0000} {
			c.ack = wrong
			c.expect(fmt.Sprintf("ACK of %+d", int32(wrong-isn)), second, wire.ACK, taken("", 2, 1), 1)
		}
		c.expect("RST without ACK", second, wire.RST, taken("", 2, 1), 1)
		c.ack = isn + 1
		c.expect("ACK", second, wire.ACK, taken("in_owned", 2), 1)
		c.talk(second, second, 1)
	})
}

// In TIME_WAIT a server hears what is late, and leaves a newer connection of
// the same client's port to whoever has it.
func TestOwnTimeWait(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	second := n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		c.connect(second, 1)
		c.hangUp(second, second, 1)
		next := c.seq
		for off, owned := range map[int32]bool{0: true, -1: true, -1000: true, -65536: true, 1: false, 65536: false,
			-20_000_000: false, 1 << 30: false, -(1 << 31): false} {
			c.seq = next + uint32(off)
			f := taken("", 2, 1)
			if owned {
				f = taken("in_owned", 2)
			}
			c.expect(fmt.Sprintf("TIME_WAIT, seq %+d", off), second, wire.ACK, f, 1)
		}
		c.seq = next - 1
		c.expect("FIN again", second, wire.ACK|wire.FIN, taken("in_owned", 2), 1)
		c.seq = next + 0x1000_0000
		c.expect("SYN", second, wire.SYN, taken("in_opening", 2), 1)
	})
}

// A server whose process has gone waits in FIN_WAIT2 without a socket of its
// own: the client may still send, so what lies ahead is of this connection.
func TestOwnFinWait2(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	second := n.hosts[1]
	// The kernel makes such a socket a small one of state TIME_WAIT at once
	// where it would not wait longer than TIME_WAIT.
	n.must(second.ns.Sysctl("net.ipv4.tcp_fin_timeout", "20"))
	eachDelivery(t, n, func(c *client) {
		c.connect(second, 1)
		c.sent(second, wire.ACK|wire.PSH, ".", 1)
		fin := second.answer("FIN", c.from(wire.FIN, 0))
		c.ack = fin.Seq + 1
		c.send(second, wire.ACK, "", 1) // of its FIN: FIN_WAIT2
		c.expect("expected next", second, wire.ACK, taken("in_owned", 2), 1)
		c.seq += 1000
		c.expect("a segment was lost before it", second, wire.ACK, taken("in_owned", 2), 1)
		c.seq += 1 << 24
		c.expect("far ahead", second, wire.ACK, taken("", 2, 1), 1)
	})
}

// Without a socket, or with a listener alone, a server asks the one before; at
// the end of the chain the stack answers.
func TestOwnNobody(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 4)
	n.hosts[0].listen(beamer4)
	n.hosts[0].listen(beamer6)
	n.hosts[0].listen(faild4)
	n.hosts[0].listen(faild6)
	eachDelivery(t, n, func(c *client) {
		c.ack = 77
		c.expect("listener, no chain", n.hosts[0], wire.ACK, taken("", 1))
		n.hosts[0].answer("RST", c.from(wire.RST, 0))
		c.expect("no listener, no chain", n.hosts[1], wire.ACK, taken("", 2))
		n.hosts[1].answer("RST", c.from(wire.RST, 0))
		c = c.again()
		c.expect("from a listener on", n.hosts[0], wire.ACK, taken("", 1, 2), 2)
		c.expect("to a listener", n.hosts[1], wire.ACK, taken("", 2, 1), 1)
		c.expect("a chain of three", n.hosts[3], wire.ACK, taken("", 4, 3, 2, 1), 3, 2, 1)
		n.hosts[0].answer("RST", c.from(wire.RST, 0))
		for _, flags := range []uint8{0, wire.FIN, wire.RST, wire.FIN | wire.ACK, wire.RST | wire.ACK, wire.SYN | wire.ACK, wire.PSH | wire.ACK, 0xff} {
			c = c.again()
			c.expect(fmt.Sprintf("flags %#x", flags), n.hosts[1], flags, taken("", 2, 1), 1)
		}
		c = c.again()
		c.expect("SYN", n.hosts[1], wire.SYN, taken("in_opening", 2), 1)
		c.expect("SYN and RST", n.hosts[1], wire.SYN|wire.RST, taken("in_opening", 2), 1)
	})
}

// "Not mine" is remembered for a moment, but never of a connection that came
// since, nor where the VIP, the port or the address is another.
func TestOwnStrangerBecomesMine(t *testing.T) {
	t.Parallel()
	n := newOwnNet(t, 2)
	n.listenAll()
	second := n.hosts[1]
	eachDelivery(t, n, func(c *client) {
		c.ack = 5
		for range 3 {
			c.expect("a stranger", second, wire.ACK, taken("", 2, 1), 1)
		}
		c.connect(second, 1)
		c.expect("its own", second, wire.ACK, taken("in_owned", 2), 1)
		// Without the SYN being seen here, as if it came by another way.
		d := c.again()
		d.ack = 5
		d.expect("another stranger", second, wire.ACK, taken("", 2, 1), 1)
		second.inject(d.segment(wire.SYN, ""))
		d.ack = second.answer("SYN-ACK", d.from(wire.SYN|wire.ACK, 0)).Seq + 1
		d.seq++
		d.expect("its own", second, wire.ACK, taken("in_owned", 2), 1)
		// In time it is asked again.
		e := d.again()
		e.ack = 5
		e.expect("a third one", second, wire.ACK, taken("", 2, 1), 1)
		before := second.reasons()["forward_previous"]
		second.clock(ownNow + 5000)
		e.expect("later", second, wire.ACK, taken("", 2, 1), 1)
		second.clock(ownNow)
		if after := second.reasons()["forward_previous"]; after != before+1 {
			t.Errorf("passed on %d times, want 1", after-before)
		}
	})
}

// overflow puts a listener at the client's VIP that answers SYNs with cookies:
// more half-open connections than its backlog holds have come.
func overflow(c *client, h *ownHost) {
	c.t.Helper()
	c.net.must(h.ns.Sysctl("net.ipv4.tcp_syncookies", "1"))
	var fd int
	c.net.must(h.ns.Do(func() (err error) {
		family := unix.AF_INET
		var at unix.Sockaddr = &unix.SockaddrInet4{Port: int(c.vip.Port())}
		if c.vip.Addr().Is6() {
			family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: int(c.vip.Port()), Addr: c.vip.Addr().As16()}
		} else {
			at.(*unix.SockaddrInet4).Addr = c.vip.Addr().As4()
		}
		if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.Bind(fd, at); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	}))
	c.t.Cleanup(func() { unix.Close(fd) })
	flood := *c
	for i := range 40 {
		flood.addr = netip.AddrPortFrom(c.addr.Addr(), uint16(50000+i))
		h.inject(flood.segment(wire.SYN, ""))
		h.answerWithin(200*time.Millisecond, flood.from(wire.SYN|wire.ACK, 0))
		counters, err := h.ns.Counters()
		c.net.must(err)
		if counters["TcpExt.SyncookiesSent"] > 0 {
			return
		}
	}
	c.t.Fatal("no SYN cookie was sent")
}

// An ACK that ends the handshake of a SYN cookie finds no socket. It is this
// server's where the listener has overflowed lately and the cookie is right.
func TestOwnSynCookie(t *testing.T) {
	t.Parallel()
	for _, by := range []delivery{ipip4, gue4, ipip6, gue6, byMAC} {
		t.Run(by.name, func(t *testing.T) {
			n := newOwnNet(t, 2)
			first, second := n.hosts[0], n.hosts[1]
			c := newClient(n, by, 10000, false)
			first.listen(c.vip)
			n.must(first.ns.Sysctl("net.ipv4.tcp_syncookies", "1"))
			overflow(c, second)
			cookie := c.synAck(second, 1).Seq
			c.seq++
			c.ack = cookie + 1 + 0x0123_0000 // its lowest bits are an index that may be another
			c.expect("a wrong cookie", second, wire.ACK, taken("", 2, 1), 1)
			c.ack = cookie + 1
			c.expect("RST with the cookie", second, wire.ACK|wire.RST, taken("", 2, 1), 1)
			// The kernels of the namespaces share the cookies' secret, but
			// the first server's listener has not overflowed.
			c.expect("elsewhere", first, wire.ACK, taken("", 1, 2), 2)
			c.expect("asked here", second, wire.ACK, taken("in_owned", 2), 1)
		})
	}
}

// The first question after a program was loaded is answered like any other,
// whatever its numbers: the memory of strangers is empty.
func TestOwnFirstQuestion(t *testing.T) {
	t.Parallel()
	for _, by := range deliveries {
		n := newOwnNet(t, 2)
		n.listenAll()
		c := newClient(n, by, 12000, false)
		c.connect(n.hosts[1])
		c.ack = 0 // as an empty entry has it, at ownNow
		c.expect("its own connection", n.hosts[1], wire.ACK, taken("in_owned", 2), 1)
	}
}
