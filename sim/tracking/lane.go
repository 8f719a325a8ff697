package tracking

import (
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
)

// lane is one scheme with its table at a site: the connections that are whole
// under it. They lie side by side, so that "every live connection sends a
// packet" is one pass over an array.
type lane struct {
	site *site
	jet  bool // tracks what the horizon would take; else every connection
	// evict says what gives way, speak what connections do after a change.
	evict, speak string

	ct *tracking
	// flows is the program's flow table, in place of ct, for EvictState.
	flows *jet.Flows

	live []connection
	at   []int32 // by handle: index in live; none: over
	sum  laneSum
}

type connection struct {
	handle int32
	entry  int32 // in the tracking table; none
}

// laneSum is what happened to a lane's connections.
type laneSum struct {
	broken, killed int
	refused        int // insertions that found no entry that may give way
	// live connections and entries of the table, summed over the checks.
	live, used int
}

// newLane has a table of so many entries; 0: remembers nothing.
func newLane(s *site, p point, entries int) *lane {
	l := &lane{site: s, jet: p.row().Foresees(), evict: p.evict, speak: p.speak, ct: newTracking(entries)}
	if p.evict == EvictState && entries > 0 {
		l.flows = jet.NewFlows((entries + jet.Ways - 1) / jet.Ways)
	}
	return l
}

func (l *lane) arrive(handle int32) {
	for int(handle) >= len(l.at) {
		l.at = append(l.at, none)
	}
	l.at[handle] = int32(len(l.live))
	l.live = append(l.live, connection{handle, none})
	l.track(&l.live[len(l.live)-1])
	if entry := l.find(handle); entry != nil {
		jet.Touch(entry, l.unit(), true, jet.Data, 0) // the handshake's last
	}
}

// finish is a connection's last packet and its FIN.
func (l *lane) finish(handle int32) {
	i := l.at[handle]
	if i == none {
		return // broken
	}
	if !l.packet(&l.live[i]) {
		l.sum.broken++
	}
	l.drop(i)
}

// drop takes a connection out of the live ones, and its entry with it, by its
// FIN: clients of a server that is gone give up, too. In the program's table
// the entry fades.
func (l *lane) drop(i int32) {
	c := l.live[i]
	if c.entry != none {
		l.ct.remove(c.entry)
	}
	if entry := l.find(c.handle); entry != nil {
		jet.Touch(entry, l.unit(), true, jet.Close, 0)
	}
	last := int32(len(l.live) - 1)
	l.live[i] = l.live[last]
	l.at[l.live[i].handle] = i
	l.live = l.live[:last]
	l.at[c.handle] = none
}

// kill drops the connections of a server that failed.
func (l *lane) kill(server int32) {
	for i := int32(len(l.live)) - 1; i >= 0; i-- {
		if l.site.server[l.live[i].handle] == server {
			l.sum.killed++
			l.drop(i)
		}
	}
}

// unit is the time as the program's flow table counts it.
func (l *lane) unit() uint16 { return uint16(l.site.now / (jet.Unit * sim.Millisecond)) }

// find is the connection's entry in the program's flow table.
func (l *lane) find(handle int32) *jet.Entry {
	if l.flows == nil {
		return nil
	}
	return l.flows.Find(l.site.keys[handle], l.unit(), true)
}

// packet looks a connection up as the scheme does; false: it breaks.
func (l *lane) packet(c *connection) bool {
	if c.entry != none {
		l.ct.touch(c.entry)
		return true
	}
	if entry := l.find(c.handle); entry != nil {
		jet.Touch(entry, l.unit(), true, jet.Data, 0)
		return entry.Slot() == int(l.site.server[c.handle])
	}
	if l.site.ranks[c.handle] == rankMoved {
		return false
	}
	l.track(c)
	return true
}

// track makes an entry for a connection without one, where the scheme wants
// one and the table has room or something that may go.
func (l *lane) track(c *connection) {
	r := l.site.ranks[c.handle]
	if l.ct.capacity == 0 || l.jet && r == rankPlaced {
		return
	}
	if l.flows != nil {
		l.insert(c.handle)
		return
	}
	lru := l.evict == EvictLRU
	if lru {
		r = rankPlaced
	}
	if l.ct.full() {
		v := l.ct.victim(r, !lru)
		if v == none {
			l.sum.refused++
			return
		}
		l.live[l.at[l.ct.entries[v].connection]].entry = none
		l.ct.remove(v)
	}
	c.entry = l.ct.insert(c.handle, r)
}

// insert makes an entry in the program's flow table.
func (l *lane) insert(handle int32) {
	insert := l.flows.InsertLRU
	if l.jet {
		insert = l.flows.Insert
	}
	if insert(l.site.keys[handle], int(l.site.server[handle]), l.unit(), jet.New) == jet.Full {
		l.sum.refused++
	}
}

// check has every live connection send a packet, unless they never speak, and
// ends those that are broken.
func (l *lane) check() {
	if l.evict == EvictRank {
		l.rerank()
	}
	l.everyone()
	l.sum.live += len(l.live)
	used := l.ct.used
	if l.flows != nil {
		used, _, _ = l.flows.Sweep(0, len(l.flows.Sets), l.unit())
	}
	l.sum.used += used
}

// everyone speaks.
func (l *lane) everyone() {
	if l.speak == SpeakRandom {
		for _, handle := range l.site.order {
			if i := l.at[handle]; i != none {
				l.say(i)
			}
		}
		return
	}
	for i := int32(len(l.live)) - 1; i >= 0; i-- {
		l.say(i)
	}
}

// say is a packet of a live connection, or a look at one that never speaks. It
// ends if it is broken.
func (l *lane) say(i int32) {
	c := &l.live[i]
	if l.speak == SpeakNever && !l.moved(c) || l.speak != SpeakNever && l.packet(c) {
		return
	}
	l.sum.broken++
	l.drop(i)
}

// moved tells whether a connection's next packet would go elsewhere.
func (l *lane) moved(c *connection) bool {
	return l.site.ranks[c.handle] == rankMoved && c.entry == none && l.find(c.handle) == nil
}

// rerank gives the entries the ranks that the hash now says, in the order of
// their use.
func (l *lane) rerank() {
	l.ct.order = l.ct.order[:0]
	for _, list := range l.ct.lists {
		for i := list.first; i != none; i = l.ct.entries[i].next {
			l.ct.order = append(l.ct.order, i)
		}
	}
	for _, i := range l.ct.order {
		l.ct.setRank(i, l.site.ranks[l.ct.entries[i].connection])
	}
}
