package daemon

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// door is a TCP listener at which strangers cannot use up the process: of
// connections of which nobody knows yet whose they are, it keeps most. One more
// than that, and the source that has the most of them loses its oldest: a peer
// that comes while others flood is among the youngest for longer than a
// handshake takes, and no source that is flooding.
//
//	accept ──▶ stranger ──handshake with a certificate of ours──▶ known
//	              └──────closed, too slow, or the oldest────────▶ (gone)
//
// Of those that are known it keeps mostKnown, in the same way (door_known.go).
//
// At an endpoint without TLS nobody becomes known, and the bound is for all.
type door struct {
	net.Listener
	endpoint string // for metrics and log
	metric   *prometheus.CounterVec
	most     int
	log      *slog.Logger

	mu        sync.Mutex
	strangers map[netip.Prefix][]*guest // by source, oldest first
	n         int                       // of them all
	callers   callers                   // the others
	count     uint64                    // connections so far
	refused   int                       // since it was logged
	said      time.Time
}

// guest is a connection that came in by the door.
type guest struct {
	net.Conn
	door   *door
	source netip.Prefix
	number uint64
	holder string // whose it is, once that is known
	idle   bool   // nothing is asked on it, as far as is known
	closed bool
}

const (
	// mostStrangers is above what a whole deployment makes when all its daemons
	// start together: a handshake takes milliseconds.
	mostStrangers = 1024
	// refusedEvery is how often refused connections are logged at most.
	refusedEvery = time.Minute
)

// newRefused is the metric of connections that doors refuse.
func newRefused() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_connections_refused_total",
		Help: "Connections to an endpoint (api, metrics) closed because too many were open: unheard, of those of which nobody knew whose they are, or of the certificate that had the most."}, []string{"endpoint"})
}

// newDoor is a door before l. It leaves seven of eight descriptors to what is
// known, and three of eight to the rest of the process: Go has raised the soft limit to the hard one when the process started.
func newDoor(l net.Listener, endpoint string, metric *prometheus.CounterVec, log *slog.Logger) *door {
	most, known := uint64(mostStrangers), uint64(mostKnown)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		most, known = max(min(most, limit.Cur/8), 16), max(min(known, limit.Cur/2), 64)
	}
	return &door{Listener: l, endpoint: endpoint, metric: metric, most: int(most), log: log, strangers: map[netip.Prefix][]*guest{},
		callers: callers{most: int(known), by: map[string][]*guest{}}}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, door: d, source: sourceOf(c.RemoteAddr())}
	if gone := d.enter(g); gone != nil {
		gone.shut()
	}
	return g, nil
}

// sourceOf is whom a connection counts for: who has one IPv6 address has all of
// its network.
func sourceOf(a net.Addr) netip.Prefix {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{} // no TCP: all count together
	}
	bits := 32
	addr := ap.Addr().Unmap().WithZone("")
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // the address has these bits
	return p
}

// enter counts a new connection, and is the one that has to go for it, if any.
func (d *door) enter(g *guest) (gone *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	g.number = d.count
	d.strangers[g.source] = append(d.strangers[g.source], g)
	if d.n++; d.n <= d.most {
		return nil
	}
	most := 0
	for _, of := range d.strangers {
		if len(of) > most || len(of) == most && of[0].number < gone.number {
			gone, most = of[0], len(of)
		}
	}
	d.remove(gone)
	d.refuse("connections were closed unheard: too many are open of which nobody knows whose they are", d.most, gone.source.String())
	return gone
}

// refuse counts a connection that is closed, and says why at times; the caller holds mu.
func (d *door) refuse(why string, open int, most string) {
	d.metric.WithLabelValues(d.endpoint).Inc()
	d.refused++
	if time.Since(d.said) > refusedEvery {
		d.log.Warn(why, "endpoint", d.endpoint, "closed", d.refused, "open", open, "most_from", most)
		d.said, d.refused = time.Now(), 0
	}
}

// remove takes g out of the strangers, if it is one; the caller holds mu.
func (d *door) remove(g *guest) {
	of := d.strangers[g.source]
	for i := range of {
		if of[i] == g {
			d.n--
			if of = append(of[:i:i], of[i+1:]...); len(of) == 0 {
				delete(d.strangers, g.source)
			} else {
				d.strangers[g.source] = of
			}
			return
		}
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.door.leave(g)
	return g.Conn.Close()
}

// shut closes a connection at once: nothing of it stays in the kernel.
func (g *guest) shut() {
	if c, ok := g.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // else it closes a little later
	}
	_ = g.Conn.Close() // it was refused: there is nobody to tell
}
