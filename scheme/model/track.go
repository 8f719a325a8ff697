package model

import (
	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Placer is a VIP's consistent hash: chash.Table, chash.AnchorTable.
type Placer interface {
	// Place says where a connection of hash h goes if it is new, which server
	// holds it if it is an earlier one that was never tracked (-1: none), and
	// whether it must be tracked, because a change that may come moves it.
	Place(h uint64) (slot, held int, track bool)
}

// Place is what the consistent hash said of a packet.
type Place struct {
	Slot, Held int // -1: no server
	Track      bool
	// New: the packet goes by Slot, else by Held. An opening packet whose
	// entry was refused goes by Held: there its connection's next one goes.
	New bool
}

// to is the slot that the packet goes to, -1: none.
func (p *Place) to() int {
	if p.New {
		return p.Slot
	}
	return p.Held
}

// Flow is what the flow table had to do with a packet.
type Flow struct {
	X     uint64 // the flow's key in the table
	TCP   bool
	Event jet.Event
	// Found: a live entry stood there. Entry is what it was, Outcome what
	// became of it; of one that is not followed (jet.Stale), Line says why.
	Found   bool
	Entry   jet.Entry
	Outcome jet.Outcome
	Line    jet.Line
	// Enters: the packet asked for an entry, Inserted is what it got.
	Enters   bool
	Inserted jet.Inserted
	// Now is the entry as the packet left it, if there is one.
	Now jet.Entry
}

// Shared is a flow as balancers tell it each other (fl_shared).
type Shared struct {
	X     uint64
	Slot  int
	State jet.State
	TCP   bool
	VIP   uint32
}

// Counters of a VIP on one CPU (fl_vip_cpu).
type Counters struct {
	NewConns, Fallback, FlowHits, BadCookies, Dropped uint64
	Tracked, FlowFull, FlowReplaced                   uint64
	Seated, SeatFull, SeatWrong, Rated, RateLost      uint64
}

// flowHash leaves the ports out where whole packets and fragments of a
// client, or all its connections, shall meet on one server.
func (v *VIP) flowHash(k *packet) uint64 {
	ports := !v.Affinity && !v.FragmentsByAddress && k.kind != fragment
	return hash.Flow(v.HashKey, k.client, k.vip.Port(), ports)
}

// flowKey tells flows of different VIPs apart in the one table, and TCP
// connections by their ports even where the hash leaves ports out.
func flowKey(vip *VIP, k *packet, hash uint64) uint64 {
	if k.proto == wire.ProtoTCP && k.kind != fragment {
		return jet.Key(vip.ID, hash, k.client.Port(), k.vip.Port())
	}
	return jet.Datagrams(vip.ID, hash)
}

// place asks the consistent hash about r.Hash, for a packet that goes where
// new connections go, or not.
func (r *Result) place(isNew bool) *Place {
	p := &Place{Slot: -1, Held: -1, New: isNew}
	if r.VIP.Hash != nil {
		p.Slot, p.Held, p.Track = r.VIP.Hash.Place(r.Hash)
	}
	r.Place = p
	return p
}

func (k *packet) event(opening bool) jet.Event {
	switch {
	case k.kind == quote:
		return jet.Peek
	case opening:
		return jet.Open
	case k.kind == segment && k.proto == wire.ProtoTCP && k.flags&(wire.FIN|wire.RST) != 0:
		return jet.Close
	}
	return jet.Data
}

// line is what a flow table's entry for the slot hinges on.
func (t *Tables) line(v *VIP, slot int) jet.Line {
	line := int(v.FirstLine) + slot
	if slot >= int(v.Slots) || line >= len(t.Lines) || t.Lines[line].Forwarding == "" {
		return jet.NoServer
	}
	var l jet.Line
	if t.Lines[line].Closed {
		l |= jet.Closed
	}
	if t.Lines[line].Down {
		l |= jet.Down
	}
	return l
}

// followed is fl_flow_touch: the packet goes where its flow's entry says, if there is one
// that is to be followed.
func (t *Tables) followed(s *State, r *Result, k *packet, nowMS uint32, opening bool, why Reason) bool {
	v, unit := r.VIP, uint16(nowMS>>10)
	r.Hash = v.flowHash(k)
	f := &Flow{X: flowKey(v, k, r.Hash), TCP: k.proto == wire.ProtoTCP, Event: k.event(opening)}
	r.Flow = f
	e := s.Flows.Find(f.X, unit, f.TCP)
	if e == nil {
		return false
	}
	var share bool
	f.Found, f.Entry, f.Line = true, *e, t.line(v, e.Slot())
	f.Outcome, share = jet.Touch(e, unit, f.TCP, f.Event, f.Line)
	f.Now = *e
	if share && v.Share {
		r.Share = &Shared{f.X, e.Slot(), e.State(), f.TCP, v.ID}
	}
	if f.Outcome != jet.Hit || !t.to(r, e.Slot()) {
		return false
	}
	s.Counters(v.ID).FlowHits++
	r.Reason, r.FlowHit = why, true
	return true
}

// track is fl_hash_goes where entries are made: the flow table, then the hash,
// which says whether the flow must be remembered. Schemes jet and full-ct, and
// cheetah for what carries no timestamp. why is the reason under which it is
// forwarded.
func (t *Tables) track(s *State, r *Result, k *packet, nowMS uint32, opening bool, why Reason) {
	v, counters, row := r.VIP, s.Counters(r.VIP.ID), r.VIP.Scheme.Row()
	all := row.Tracks == vip.All
	if t.followed(s, r, k, nowMS, opening, why) {
		return
	}
	f, unit := r.Flow, uint16(nowMS>>10)
	if row.Finds == vip.ByCookie && !v.TierOne { // tier two asks them
		switch {
		case k.kind == segment && f.TCP && k.carried == carriedNone && k.flags&wire.RST != 0:
			// Of a socket whose cookie only the servers know.
			r.Reason = bpf.AskRST
			return
		case k.carried == carriedCut:
			r.Reason = bpf.AskICMP
			return
		}
	}
	if opening && v.NoNew {
		r.Reason = bpf.DropNoServer
		return
	}
	p := r.place(opening || all)
	if r.Reason = why; !t.to(r, p.to()) {
		r.Reason = bpf.DropNoServer
		return
	}
	f.Enters = (p.Track || all || v.TrackAll || f.Found) && (f.Event == jet.Open || f.Event == jet.Data) &&
		!(f.TCP && k.kind == fragment)
	if !f.Enters {
		return
	}
	first := jet.First(f.TCP, all)
	if all {
		f.Inserted = s.Flows.InsertLRU(f.X, r.Slot, unit, first)
	} else {
		f.Inserted = s.Flows.Insert(f.X, r.Slot, unit, first)
	}
	switch f.Inserted {
	case jet.Full:
		counters.FlowFull++
		if opening && t.to(r, p.Held) {
			p.New = false
		}
		return
	case jet.Replaced:
		counters.FlowReplaced++
	}
	counters.Tracked++
	e := s.Flows.Find(f.X, unit, f.TCP)
	// A SYN may be forged: where a connection of before would be held by another
	// server, its entry lasts as long as a handshake may take.
	if !all && (!f.TCP || opening && r.Slot != p.Held) {
		e.Age()
	}
	r.Tracked, f.Now = true, *e
}
