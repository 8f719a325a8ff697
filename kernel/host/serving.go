package host

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// ServingState is whether this server serves a VIP.
type ServingState string

const (
	ServingUp ServingState = "up"
	// ServingDown: nobody listens, or its check fails.
	ServingDown ServingState = "down"
	// ServingDisabled: its slot takes no new connections by the assignment (it
	// drains, rests, or is a standby), so nothing is checked.
	ServingDisabled ServingState = "disabled"
	// ServingUnknown: checks have not come to a result yet. Whoever knew the
	// server before this agent started goes on by what it knew.
	ServingUnknown ServingState = "unknown"
)

// Serving is what this server says of one VIP of scheme beamer or faild. By it
// balancers and switches end chains (Beamer, NSDI'18, "daisy chaining", there
// by time alone) and choose who takes a bucket (Faild, NSDI'18, §5).
type Serving struct {
	VIP    uint32
	Name   string
	Slot   uint16 // this server's number
	State  ServingState
	Detail string // why State is not up
	// Ended: it is down since nobody listens any more, which no check said.
	Ended bool
	// Connections are those that live here: TCP's without TIME_WAIT and
	// half-open ones, UDP's connected sockets and flows.
	Connections uint64
	// Buckets of the VIP's table. For scheme faild they are told apart as the
	// switch's kernel does (wire.FaildBucket).
	Buckets int
	// Owned has a bit for each bucket, bucket 0 the lowest of the first byte:
	// 1 if a connection of it is known here, half-open ones and TIME_WAIT
	// included. Nil if it was not asked for, or Buckets is 0.
	Owned []byte
	// At is when the count began. Zero: none succeeded yet, so that nothing is
	// known of Connections and Buckets.
	At time.Time
	// Generation of the table by which buckets were told apart.
	Generation uint32
}

// owned is one count of a VIP.
type owned struct {
	at          time.Time
	generation  uint32
	connections uint64
	buckets     int
	bits        []byte
}

// counts keeps the last counts: many balancers ask, and a dump of all sockets
// costs.
type counts struct {
	mu    sync.Mutex
	spent time.Duration // by the last count
	ended time.Time
	last  map[uint32]owned
	had   map[uint32]owned // the one before
	// failed is why the newest is missing, so that last is of an earlier one;
	// nil or "" where it is not.
	failed atomic.Pointer[string]
}

const (
	// countShare is how much of one CPU counting may take at most: one part in
	// so many.
	countShare = 20
	// countRest is how old a count may at least be.
	countRest = 200 * time.Millisecond
)

// Serving is what this server says of its VIPs of schemes beamer and faild, in
// the assignment's order. With withOwned set it also says which buckets it owns
// connections of. A count serves all who ask within 200 ms of it, or 20 times
// as long as it took. Where the kernel cannot be asked, states are told all the
// same, with the last count there was: who serves must not pass for dead.
func (a *Agent) Serving(withOwned bool) []Serving {
	a.mu.Lock()
	vips := a.chains
	a.mu.Unlock()
	if len(vips) == 0 {
		return nil
	}
	c := &a.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.ended) > max(countRest, countShare*c.spent) || !c.covers(vips) {
		a.recount(vips)
	}
	var all []Serving
	for _, v := range vips {
		n := c.last[v.ID]
		if n.buckets != v.Buckets {
			n = owned{} // of an earlier VIP's table
		}
		s := Serving{VIP: v.ID, Name: v.Name, Slot: v.Slot, Connections: n.connections, At: n.at,
			Buckets: n.buckets, Generation: n.generation}
		s.State, s.Detail = a.state.of(v)
		s.Ended = s.State == ServingDown && a.state.hasEnded(v)
		if withOwned && !n.at.IsZero() {
			s.Owned = c.union(v.ID)
		}
		all = append(all, s)
	}
	return all
}

// recount counts anew, as far as that can be done; a.counts.mu is held.
func (a *Agent) recount(vips []*tables.ChainVIP) {
	err := a.count(vips)
	why := ""
	if err != nil {
		why = fmt.Sprintf("connections that this server owns cannot be counted (%v): chains that name it last until they can, or until their time is over", err)
	}
	switch before := a.counts.failed.Swap(&why); {
	case err != nil && (before == nil || *before == ""):
		a.log.Error(why)
	case err == nil && before != nil && *before != "":
		a.log.Info("connections that this server owns are counted again")
	}
}

// covers says whether the last count was by the tables of vips.
func (c *counts) covers(vips []*tables.ChainVIP) bool {
	for _, v := range vips {
		if n, ok := c.last[v.ID]; !ok || n.generation != v.Generation || n.buckets != v.Buckets {
			return false
		}
	}
	return true
}

// union is what either of the last two counts found. The kernel lists its
// sockets in pieces, and one that stands at a seam can be passed over when
// others go meanwhile; in two counts in a row it is not.
func (c *counts) union(id uint32) []byte {
	n := c.last[id]
	bits := append([]byte(nil), n.bits...)
	if before := c.had[id]; before.buckets == n.buckets {
		for i := range bits {
			bits[i] |= before.bits[i]
		}
	}
	return bits
}

// count asks the kernel for its sockets, and the map for UDP's flows.
func (a *Agent) count(vips []*tables.ChainVIP) error {
	c := &a.counts
	began := time.Now()
	t := newTally(vips, began)
	if t.protocols[wire.ProtoTCP] {
		const states = tcpStates &^ (1<<tcpListen | 1<<tcpClose | 1<<tcpSynSent)
		if err := a.diag.each(wire.ProtoTCP, states, t.tcp); err != nil {
			return err
		}
	}
	if t.protocols[wire.ProtoUDP] {
		if err := a.diag.each(wire.ProtoUDP, 1<<tcpEstablished, t.udp); err != nil {
			return err
		}
		if err := a.eachFlow(t.flow); err != nil {
			return fmt.Errorf("map host_flows: %w", err)
		}
	}
	c.had, c.last = c.last, t.counts()
	c.ended = time.Now()
	c.spent = c.ended.Sub(began)
	return nil
}

// tally is a count under way.
type tally struct {
	at        time.Time
	protocols map[uint8]bool
	services  map[service]*tallied
	byID      map[uint32]*tallied
	addresses map[netip.Addr]bool
}

type service struct {
	netip.AddrPort
	proto uint8
}

type tallied struct {
	vip  *tables.ChainVIP
	join bool
	n    *owned
	udp  map[netip.AddrPort]bool // UDP's clients that count already
}

func newTally(vips []*tables.ChainVIP, at time.Time) *tally {
	t := &tally{at, map[uint8]bool{}, map[service]*tallied{}, map[uint32]*tallied{}, map[netip.Addr]bool{}}
	for _, v := range vips {
		n := &owned{at: at, generation: v.Generation, buckets: v.Buckets, bits: make([]byte, (v.Buckets+7)/8)}
		e := &tallied{v, false, n, map[netip.AddrPort]bool{}}
		t.protocols[v.Proto] = true
		t.addresses[v.Service.Addr()] = true
		t.byID[v.ID] = e
		t.services[service{v.Service, v.Proto}] = e
		for _, port := range v.Joins {
			t.services[service{netip.AddrPortFrom(v.Service.Addr(), port), v.Proto}] = &tallied{v, true, n, nil}
		}
	}
	return t
}

func (t *tally) counts() map[uint32]owned {
	all := map[uint32]owned{}
	for id, e := range t.byID {
		all[id] = *e.n
	}
	return all
}

// find is the VIP that serves local, nil for none. What this machine says to
// itself, such as a health check, comes through no balancer.
func (t *tally) find(s socket, proto uint8) *tallied {
	if t.addresses[s.remote.Addr()] || s.remote.Port() == 0 {
		return nil
	}
	if e := t.services[service{s.local, proto}]; e != nil {
		return e
	}
	return t.services[service{netip.AddrPortFrom(s.local.Addr(), 0), proto}]
}

func (t *tally) tcp(s socket) {
	e := t.find(s, wire.ProtoTCP)
	if e == nil {
		return
	}
	if s.state != tcpTimeWait && s.state != tcpNewSynRecv && s.state != tcpSynRecv {
		e.n.connections++
	}
	// Joins of MPTCP go by their port, not by a bucket.
	if !e.join {
		e.mark(s.remote, s.local.Port())
	}
}

func (t *tally) udp(s socket) {
	if e := t.find(s, wire.ProtoUDP); e != nil {
		e.datagrams(s.remote, s.local.Port())
	}
}

// flow is an entry of the table of UDP's flows.
func (t *tally) flow(id uint32, client netip.AddrPort, port uint16) {
	if e := t.byID[id]; e != nil && e.vip.Proto == wire.ProtoUDP {
		e.datagrams(client, port)
	}
}

func (e *tallied) datagrams(client netip.AddrPort, port uint16) {
	if !e.udp[client] {
		e.udp[client] = true
		e.n.connections++
	}
	e.mark(client, port)
}

func (e *tallied) mark(client netip.AddrPort, port uint16) {
	b := e.vip.Bucket(client, port)
	e.n.bits[b/8] |= 1 << (b % 8)
}
