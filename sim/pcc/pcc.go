// Package pcc plays one load of connections and one stream of changes against
// any number of schemes at once, and counts the connections that break:
// per-connection consistency (PCC).
//
//	pcc      what a scheme is; the connections as one scheme sees them
//	pool     the servers: working, draining, standby; the changes of the pool
//	front    the balancers: what ECMP does, who knows of which change
//	run      what is played, what is counted, the loop; population: who lives;
//	         events: what happens to whom, and who looks itself up then
//	schemes  their names; stateless, placer, bucketed, faild, greedy, tracking,
//	         cookies (whose numbers are slots'): each by the product's own code;
//	         held: who else wants to see their tables
//	options  what the scenarios share
//
// and the scenarios that are played on it here (threshold and datacentre have
// packages of their own):
//
//	dip-updates     dipupdates, dipchecks
//	balancer-churn  churn, churnchecks
//	scaling         schedule (what the lab plays, too), scaling, scalingplay,
//	                scalingcheck
//	small-cookies   smallcookies, smallresult; tags: cookies of constant size,
//	                levels: the balance of ways to choose
//
// The semantics:
//
//   - A connection's first packet chooses its server. From then on packets flow
//     all the time: whenever something changed that its packets go by (a
//     table, the balancer that they come to), it looks itself up. It is
//     broken, once and for all, when that ends at another server.
//   - A server that is removed drains: it gets no new connections, but keeps
//     its own, and other servers may pass packets on to it. (JET's own
//     simulation kills it instead and does not count its connections: see
//     package tracking.)
//   - All schemes of a run see the same connections and the same changes. What
//     one scheme draws at random comes from streams of its own.
package pcc

import "github.com/fairlead/fairlead/sim"

const (
	// Broken in Conns.First: the connection is broken and sends no more.
	Broken = 0xffff
	// Dropped in Conns.At: the packet was dropped in silence, so that the
	// client sends it again; that breaks nothing.
	Dropped = 0xffff
	// MaxServers bounds the servers of a pool, standby ones included: what a
	// cookie of 15 bits (and chash.MaxSlots) can name.
	MaxServers = 16384
)

// Scheme is one way to keep connections on their servers, with all that its
// balancers, servers and controller hold. Versions count the changes of the
// pool: what balancers hold of it is of some version, which may be an older one
// than the newest. A scheme keeps what it needs of each version that a
// balancer may still hold.
type Scheme interface {
	// Update: the pool is new (its Version is 0) or has changed (p.Last).
	Update(p *Pool, now sim.Time) error
	// Forget: no balancer holds a version before this one any more.
	Forget(oldest int)
	// Open is the first packets of connections, in the order of their start:
	// sets each one's First, and its Note if the scheme has one.
	Open(c *Conns)
	// Serve is a later packet of each: sets each one's At, which is First where
	// nothing is wrong. At of a connection that is Broken does not matter.
	Serve(c *Conns)
}

// Closer is a scheme that notices when connections end.
type Closer interface {
	// Close is the last packets of connections.
	Close(c *Conns)
}

// Stateful is a scheme that keeps state at balancers, which are known by
// numbers that are never used again. The first ones join before time 0.
type Stateful interface {
	// Join: a balancer begins, with no state. There will be about so many
	// connections at it at a time.
	Join(balancer int, connections float64)
	// Leave: a balancer is gone, its state with it.
	Leave(balancer int)
}

// Ticker is a scheme that looks at its live connections every Run.Tick.
type Ticker interface {
	// Tick shows all of them. True: the scheme changed something that packets
	// go by, so that all of them look themselves up.
	Tick(c *Conns) (changed bool, err error)
}

// Conns is connections side by side, as one scheme sees them: all slices have
// one element a connection.
type Conns struct {
	// Now is the time of the packets. Connections of one call of Open start at
	// Start, at most Run.Step before it.
	Now   sim.Time
	Start []sim.Time
	// Key is the balancer's hash of the connection's addresses and ports.
	Key []uint64
	// Via is the number of the balancer that each one's packet comes to.
	Via []uint16
	// First is the server that has the connection; Broken: none any more.
	First []uint16
	// Note is what travels in each one's packets, or what else the scheme
	// notes of it. Open finds 0.
	Note []uint32
	// At is where each one's packet ends: First, Dropped, or any other server.
	At []uint16
	// Version is the version of the pool that all balancers hold; Mixed: they
	// differ, View has each balancer's, by its number.
	Version int
	View    []int
	// Newest is the newest version that any balancer holds.
	Newest int
}

// Mixed: see Conns.Version.
const Mixed = -1

// Len is how many connections they are.
func (c *Conns) Len() int { return len(c.Key) }

// Held is the version that the balancer of connection i holds.
func (c *Conns) Held(i int) int {
	if c.Version != Mixed {
		return c.Version
	}
	return c.View[c.Via[i]]
}
