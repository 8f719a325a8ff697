package host

import (
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/stateless"
	choices "github.com/fairlead/fairlead/vip"
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

// chainVIP is what is needed of a VIP of scheme beamer or faild between
// assignments.
type chainVIP struct {
	id         uint32
	name       string
	scheme     choices.SchemeRow
	service    netip.AddrPort // port 0: all
	proto      uint8
	slot       uint16
	buckets    int
	seed       uint32 // of the switches' hash; scheme faild
	ports      bool
	generation uint32
	hashKey    cheetah.Key
	disabled   bool
	health     *choices.Health
	// joins are the ports of MPTCP joins that end here, by slot.
	joins map[uint16]uint16
}

// chainVIPs are the assignment's VIPs of schemes beamer and faild that server
// is in.
func chainVIPs(as *controller.Assignment, server string) []*chainVIP {
	var all []*chainVIP
	for i := range as.VIPs {
		vip := &as.VIPs[i]
		slot, other := slots(vip, server)
		if slot == nil || !vip.Bucketed() {
			continue
		}
		v := &chainVIP{
			id: vip.ID, name: vip.Name, scheme: vip.Scheme.Row(), proto: protoTCP, slot: slot.Number,
			service:    netip.AddrPortFrom(vip.Address.Unmap(), vip.Port),
			ports:      vip.Affinity != choices.Address && vip.Fragments != choices.Addresses,
			generation: vip.Buckets.Generation, hashKey: as.HashKey, health: vip.Health,
			disabled: slot.State != controller.Active && slot.State != controller.Joining,
		}
		if vip.Protocol == choices.UDP {
			v.proto = protoUDP
		}
		v.buckets = len(vip.Buckets.Current)
		if v.scheme.Switched {
			v.seed = swtch.SeedOf(as.HashKey)
		}
		if vip.MPTCP {
			v.joins = map[uint16]uint16{}
			for _, s := range []*controller.Slot{slot, other} {
				if s != nil {
					v.joins[s.Number] = joinPort(as.HashKey, v.service, s.Number)
				}
			}
		}
		all = append(all, v)
	}
	return all
}

// fill sets what schemes beamer and faild have in the table of VIPs.
func (v *chainVIP) fill(e *bpf.HostVIP, vip *controller.VIP) {
	e.Scheme = v.scheme.Number
	e.Generation = v.generation
	e.ChainMs = uint32(min(vip.ChainTime.Milliseconds(), math.MaxInt32))
}

// bucket is the bucket of a client's connection to port: by fl_vip's hash_key
// and fl_scale, the same everywhere, or as a switch hashes it.
func (v *chainVIP) bucket(client netip.AddrPort, port uint16) int {
	if v.scheme.Switched {
		return wire.FaildBucket(v.seed, client, netip.AddrPortFrom(v.service.Addr(), port), v.proto, v.buckets)
	}
	return stateless.Row(stateless.Hash(v.hashKey, client, port, v.ports), v.buckets)
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
		n := c.last[v.id]
		if n.buckets != v.buckets {
			n = owned{} // of an earlier VIP's table
		}
		s := Serving{VIP: v.id, Name: v.name, Slot: v.slot, Connections: n.connections, At: n.at,
			Buckets: n.buckets, Generation: n.generation}
		s.State, s.Detail = a.state.of(v)
		if withOwned && !n.at.IsZero() {
			s.Owned = c.union(v.id)
		}
		all = append(all, s)
	}
	return all
}

// recount counts anew, as far as that can be done; a.counts.mu is held.
func (a *Agent) recount(vips []*chainVIP) {
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
func (c *counts) covers(vips []*chainVIP) bool {
	for _, v := range vips {
		if n, ok := c.last[v.id]; !ok || n.generation != v.generation || n.buckets != v.buckets {
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
func (a *Agent) count(vips []*chainVIP) error {
	c := &a.counts
	began := time.Now()
	t := newTally(vips, began)
	if t.protocols[protoTCP] {
		const states = tcpStates &^ (1<<tcpListen | 1<<tcpClose | 1<<tcpSynSent)
		if err := a.diag.each(protoTCP, states, t.tcp); err != nil {
			return err
		}
	}
	if t.protocols[protoUDP] {
		if err := a.diag.each(protoUDP, 1<<tcpEstablished, t.udp); err != nil {
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
	vip  *chainVIP
	join bool
	n    *owned
	udp  map[netip.AddrPort]bool // UDP's clients that count already
}

func newTally(vips []*chainVIP, at time.Time) *tally {
	t := &tally{at, map[uint8]bool{}, map[service]*tallied{}, map[uint32]*tallied{}, map[netip.Addr]bool{}}
	for _, v := range vips {
		n := &owned{at: at, generation: v.generation, buckets: v.buckets, bits: make([]byte, (v.buckets+7)/8)}
		e := &tallied{v, false, n, map[netip.AddrPort]bool{}}
		t.protocols[v.proto] = true
		t.addresses[v.service.Addr()] = true
		t.byID[v.id] = e
		t.services[service{v.service, v.proto}] = e
		for _, port := range v.joins {
			t.services[service{netip.AddrPortFrom(v.service.Addr(), port), v.proto}] = &tallied{v, true, n, nil}
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
	e := t.find(s, protoTCP)
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
	if e := t.find(s, protoUDP); e != nil {
		e.datagrams(s.remote, s.local.Port())
	}
}

// flow is an entry of the table of UDP's flows.
func (t *tally) flow(id uint32, client netip.AddrPort, port uint16) {
	if e := t.byID[id]; e != nil && e.vip.proto == protoUDP {
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
	b := e.vip.bucket(client, port)
	e.n.bits[b/8] |= 1 << (b % 8)
}
