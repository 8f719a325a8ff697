package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// Deaths of servers, and which of a load's connections they excuse: those that the dead
// server had, and no others. A server that dies for good had whom it had answered, and
// whom it was heard of for last. Where servers come back (LoadPlan.Returns) that would
// excuse too much, so it is known of each connection whose it is, before anybody has
// answered a request, too: by who sent its SYN-ACK or refused its SYN. For every server's
// packets begin with a time to live of its own.

// firstTTL is the time to live with which server1's packets begin; the next server's is
// one more.
const firstTTL = 65

// serverBy is the server whose packets come to the client with this time to live, which
// the router has taken one from.
func serverBy(ttl uint8) string { return fmt.Sprint("server", int(ttl)+1-firstTTL+1) }

// outage is a time in which a server is dead.
type outage struct {
	from, to time.Time // enclose the moment of its death; to is zero where it comes back
	// start is before it is started again, back when it answers; zero: it never is.
	start, back time.Time
}

// ends tells whether what the server had at a time ended with this outage, or an earlier
// one.
func (o outage) ends(at time.Time) bool { return o.start.IsZero() || at.Before(o.start) }

// covers tells whether the server was dead at a time.
func (o outage) covers(at time.Time) bool {
	return !at.Before(o.from) && (o.back.IsZero() || at.Before(o.back))
}

// owner is who sent the client the first packet of a connection.
type owner struct {
	server string
	at     time.Time
	opened bool // it was a SYN-ACK, not an RST
}

// own keeps who sent a packet, which came at a time. The caller holds mu.
func (c *resetCapture) own(p *wire.Parsed, at time.Time) {
	ends := endpoints{netip.AddrPortFrom(p.Dst, p.DstPort), netip.AddrPortFrom(p.Src, p.SrcPort)}
	if _, known := c.owners[ends]; !known && c.owners != nil {
		c.owners[ends] = owner{serverBy(p.TTL), at, p.Flags&wire.SYN != 0}
	}
}

// came is when a packet did by the kernel, which says so beside it: on a busy machine the
// capture reads it long after.
func came(beside []byte) time.Time {
	messages, _ := unix.ParseSocketControlMessage(beside)
	for _, m := range messages {
		var at unix.Timespec
		if m.Header.Type == unix.SCM_TIMESTAMPNS {
			if _, err := binary.Decode(m.Data, binary.NativeEndian, &at); err == nil {
				return time.Unix(at.Unix())
			}
		}
	}
	return time.Now()
}

// owner is a connection's, if anybody is.
func (c *resetCapture) owner(ends endpoints) (o owner, known bool) {
	if c == nil {
		return o, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o, known = c.owners[ends]
	return o, known
}

// by is the owner's name, empty if it is not known.
func (c *resetCapture) by(ends endpoints) string { o, _ := c.owner(ends); return o.server }

// forget makes room for a new connection of these endpoints.
func (c *resetCapture) forget(ends endpoints) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.owners, ends)
}

// The ports that connections take before they open.
const minPort, maxPort = 10_000, 65_000

// takePort gives a connection a port before it opens, so that it is known whose the
// answer to its SYN is; where no server comes back the kernel gives it one.
func (c *connection) takePort(d *net.Dialer, endpoint string) error {
	if !c.l.plan.Returns {
		return nil
	}
	to, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return err
	}
	from := clientAddress4
	if to.Addr().Is6() {
		from = clientAddress6
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.port = max(minPort, (c.l.port+1)%maxPort)
	at := netip.AddrPortFrom(netip.MustParseAddr(from), uint16(c.l.port))
	c.known(endpoints{at, to})
	c.l.capture.forget(c.ends)
	d.LocalAddr = net.TCPAddrFromAddrPort(at)
	return nil
}

// awaitNews waits until it is known whose death ended a connection: the load may be behind
// with what it is told, and the capture with what came.
func (l *load) awaitNews(ctx context.Context, err error) {
	if err != nil && l.plan.Returns {
		_ = sleep(ctx, resetSlack) // a load that is called off waits for nothing
	}
}

// crashed takes in that a server died, or is back.
func (l *load) crashed(n LoadNotice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.outages[n.Back]; len(all) > 0 {
		all[len(all)-1].start, all[len(all)-1].back = n.From, n.To
	}
	all := l.outages[n.Crashed]
	if n.Crashed == "" || len(all) > 0 && all[len(all)-1].back.IsZero() {
		return
	}
	l.outages[n.Crashed] = append(all, outage{from: n.From, to: n.To})
	for c := range l.open {
		if l.died(c) {
			_ = c.SetDeadline(time.Now().Add(crashGrace))
		}
	}
}

// died tells whether a connection's server died since it had it. The caller holds mu.
func (l *load) died(c *connection) bool {
	if !l.plan.Returns {
		return c.server != "" && len(l.outages[c.server]) > 0
	}
	who, known := l.capture.owner(c.ends)
	if !known || c.server != "" && c.server != who.server {
		return false
	}
	return slices.ContainsFunc(l.outages[who.server], func(o outage) bool {
		return who.opened && o.ends(who.at) || !who.opened && o.covers(who.at)
	})
}

// lost tells whether the connection's server had died. A connection that nobody has
// answered yet does not know its server. Where servers come back the capture does; else it
// counts as the dead one's if the kernel heard its server last (the SYN-ACK) at most a
// second before the death; a living server would have gone on talking. The caller holds mu.
func (l *load) lost(c *connection, err error) bool {
	if c.server != "" || l.plan.Returns {
		return l.died(c)
	}
	if c.Conn == nil || !isTimeout(err) {
		return false
	}
	heard, ok := c.lastHeard()
	if !ok {
		return false
	}
	for _, all := range l.outages {
		for _, o := range all {
			if heard.After(o.from.Add(-time.Second)) && heard.Before(o.to.Add(100*time.Millisecond)) {
				return true
			}
		}
	}
	return false
}
