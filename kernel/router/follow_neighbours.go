package router

import (
	"golang.org/x/sys/unix"
)

// Packets that XDP forwards bypass the kernel's neighbour table, so nothing
// but the router confirms its entries: it asks for stale ones as a packet
// would, and the kernel probes them.

// sameNeighbours: the two lead packets the same way.
func (p *picture) sameNeighbours(q *picture) bool {
	covers := func(a, b *picture) bool {
		for id, n := range a.neighbours {
			if m := b.neighbours[id]; n.valid() != m.valid() || n.valid() && n.mac != m.mac {
				return false
			}
		}
		return true
	}
	return covers(p, q) && covers(q, p)
}

// listen notes who does not answer. Who was silent is so until he is heard:
// asked anew, an entry is for seconds neither valid nor failed.
func (f *Follower) listen() (changed bool) {
	for id, n := range f.picture.neighbours {
		switch {
		case n.valid() && f.silent[id]:
			delete(f.silent, id)
			changed = true
		case n.state&unix.NUD_FAILED != 0 && !f.silent[id]:
			f.silent[id] = true
			changed = true
		}
	}
	for id := range f.silent {
		if _, there := f.picture.links[id.Device]; !there {
			delete(f.silent, id)
		}
	}
	return changed
}

// confirm has the kernel ask for the neighbours of hops that are not known, or
// not surely. What fails is tried again with the next look.
func (f *Follower) confirm() {
	f.mu.Lock()
	var ask []HopID
	for _, h := range f.view.Tables.Hops {
		n, known := f.picture.neighbours[h.ID]
		const waiting = unix.NUD_STALE | unix.NUD_FAILED
		if l := f.picture.links[h.ID.Device]; l.carries() && (!known || n.state&^uint16(waiting) == 0) {
			ask = append(ask, h.ID)
		}
	}
	f.mu.Unlock()
	for _, id := range ask {
		if err := f.kernel.solicit(id); err != nil {
			f.log.Debug("ask for neighbour", "neighbour", id.Gateway, "error", err)
		}
	}
}
