package daemon

import (
	"crypto/tls"
	"net"
	"net/http"
)

// callers are a door's connections whose certificates are known. One more than most,
// and the certificate that has the most of them loses the one that was idle first, or,
// where each is in use, its oldest: who opens connections without an end makes way for
// himself.
type callers struct {
	most int
	by   map[string][]*guest // by certificate; those that are in use by when they came, idle ones by when they became so
	n    int
}

// mostKnown is far above what a deployment has open at one daemon: each of hundreds of
// machines a few, and people theirs. A connection costs some 50 KiB.
const mostKnown = 2048

// remove takes g out, if it is there; door.mu is held.
func (c *callers) remove(g *guest) {
	of := c.by[g.holder]
	for i := range of {
		if of[i] == g {
			c.n--
			if of = append(of[:i:i], of[i+1:]...); len(of) == 0 {
				delete(c.by, g.holder)
			} else {
				c.by[g.holder] = of
			}
			return
		}
	}
}

// last puts g behind all others of its holder; door.mu is held.
func (c *callers) last(g *guest) {
	c.remove(g)
	c.by[g.holder] = append(c.by[g.holder], g)
	c.n++
}

// over is the one that has to go, if there are too many, and out of c; door.mu is held.
func (c *callers) over() (gone *guest) {
	if c.n <= c.most {
		return nil
	}
	var full []*guest
	for _, of := range c.by {
		if len(of) > len(full) || len(of) == len(full) && of[0].number < full[0].number {
			full = of
		}
	}
	gone = full[0]
	for _, g := range full {
		if g.idle {
			gone = g
			break
		}
	}
	c.remove(gone)
	return gone
}

// leave forgets g.
func (d *door) leave(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.closed = true
	d.remove(g)
	d.callers.remove(g)
}

// heard: g is holder's, and idle or not; a connection that goes for it is returned.
func (d *door) heard(g *guest, holder string, idle bool) (gone *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.closed {
		return nil
	}
	d.remove(g)
	news := g.holder == ""
	g.holder, g.idle = holder, idle
	if news || idle {
		d.callers.last(g)
	}
	if gone = d.callers.over(); gone != nil {
		gone.closed = true // its server hears of it later
		d.refuse("connections of callers whom we know were closed: too many are open, and these had the most",
			d.callers.most, gone.holder)
	}
	return gone
}

// greet is for http.Server.ConnState. A server speaks HTTP only after the
// handshake, so that who does has a certificate.
func greet(c net.Conn, state http.ConnState) {
	t, ok := c.(*tls.Conn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	g, ok := t.NetConn().(*guest)
	if !ok {
		return
	}
	peer := t.ConnectionState().PeerCertificates
	if len(peer) == 0 {
		return // it stays a stranger
	}
	holder := peer[0].Subject.CommonName + ", certificate " + peer[0].SerialNumber.Text(16)
	if gone := g.door.heard(g, holder, state == http.StateIdle); gone != nil {
		gone.shut()
	}
}
