package model

import (
	"math/bits"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/stateless"
	"github.com/fairlead/fairlead/wire"
)

// Process does with a frame what the balancer's program does, at shared time
// nowMS, and changes the state as the packet does. The frame is not changed;
// Result.Output is a new one.
func (t *Tables) Process(s *State, frame []byte, nowMS uint32) Result {
	r := Result{Line: -1, Slot: -1, Parsed: wire.Parse(frame)}
	k, ip := classify(r.Parsed)
	if !ip {
		r.Reason = PassNotIP
		return r
	}
	t.decide(s, &r, k, nowMS)
	t.act(s, &r, k, nowMS)
	return r
}

// decide finds VIP, server and reason (fl_balance up to fl_act).
func (t *Tables) decide(s *State, r *Result, k *packet, nowMS uint32) {
	if k.kind == other {
		if reason, done := t.special(k); done {
			r.Reason = reason
			return
		}
	}
	r.VIP = t.find(k)
	if r.VIP == nil {
		r.Reason = t.unserved(k)
		return
	}
	t.scheme(s, r, k, nowMS)
}

func (t *Tables) find(k *packet) *VIP {
	if k.kind == fragment {
		return t.Fragments[Key{k.vip.Addr(), 0, k.proto}]
	}
	if v := t.Services[Key{k.vip.Addr(), k.vip.Port(), k.proto}]; v != nil {
		return v
	}
	return t.Services[Key{k.vip.Addr(), 0, k.proto}]
}

// unserved: no service takes the packet. A fragment to a VIP's address is
// dropped, as nobody could put it together.
func (t *Tables) unserved(k *packet) Reason {
	switch {
	case t.Addresses[k.vip.Addr()] == nil:
		return PassNoVIP
	case k.kind == fragment:
		return DropFragment
	}
	return PassVIPOther
}

// scheme is fl_scheme: whose is the packet?
func (t *Tables) scheme(s *State, r *Result, k *packet, nowMS uint32) {
	v := r.VIP
	tcp := k.kind == segment && k.proto == wire.ProtoTCP
	if k.kind == segment {
		if reason, ok := k.layer4(); !ok {
			r.Reason = reason
			return
		}
	} else if k.kind == fragment && !v.FragmentsByAddress {
		r.Reason = DropFragment
		return
	}
	syn := tcp && k.flags&(wire.SYN|wire.ACK|wire.RST) == wire.SYN
	r.Closes = tcp && k.flags&(wire.FIN|wire.RST) != 0
	if v.Scheme == Stateless && k.kind != fragment {
		r.Opens = syn
		t.stateless(r, k)
		return
	}
	if k.stamp == stampPresent && !syn && t.known(r, k, nowMS) {
		r.Reason = Known
		if k.kind == quote {
			r.Reason = ForwardICMP
		}
		return
	}
	why, first := ForwardUDP, syn
	switch {
	case k.stamp == stampPresent && syn:
		t.choose(s, r, k)
		return
	case k.kind == fragment:
		why = ForwardFragment
	case k.kind == quote:
		why = ForwardICMP
	case k.stamp == stampPresent:
		why = ForwardBadCookie
	case tcp:
		why = ForwardNoTimestamp
	default:
		first = true // any datagram may be a flow's first
	}
	t.fallback(s, r, k, nowMS, first, why)
}

// to takes the slot's line into the result; false: it names no server.
func (t *Tables) to(r *Result, slot int) bool {
	line := int(r.VIP.FirstLine) + slot
	if slot >= int(r.VIP.Slots) || line >= len(t.Lines) || t.Lines[line].Forwarding == None {
		return false
	}
	r.Slot, r.Line = slot, line
	return true
}

// known is fl_cheetah_known: the echoed timestamp names the slot.
func (t *Tables) known(r *Result, k *packet, nowMS uint32) bool {
	v := r.VIP
	d := v.Layout.Decode(v.Keys, v.Epochs, k.client, k.vip.Port(), k.ecr, nowMS)
	r.Cookie = &d
	if !d.Live {
		return false
	}
	r.Hash = d.Hash
	return t.to(r, int(d.Slot))
}

// flowHash leaves the ports out where whole packets and fragments of a
// client, or all its connections, shall meet on one server.
func (v *VIP) flowHash(k *packet) uint64 {
	ports := !v.Affinity && !v.FragmentsByAddress && k.kind != fragment
	return stateless.Hash(v.HashKey, k.client, k.vip.Port(), ports)
}

// row is the server of the consistent-hash table.
func (t *Tables) row(r *Result) bool {
	if len(r.VIP.HashTable) == 0 {
		return false
	}
	return t.to(r, int(policy.EntrySlot(r.VIP.HashTable[stateless.Row(r.Hash, len(r.VIP.HashTable))])))
}

func (t *Tables) stateless(r *Result, k *packet) {
	r.Hash = r.VIP.flowHash(k)
	r.Reason = ForwardStateless
	if k.kind == quote {
		r.Reason = ForwardICMP
	}
	if !t.row(r) {
		r.Reason = DropNoServer
	}
}

// choose is the policy's choice for a SYN with a timestamp.
func (t *Tables) choose(s *State, r *Result, k *packet) {
	v := r.VIP
	r.Opens = true
	table := v.NewTable
	if v.Policy == policy.Hash {
		r.Hash, table = v.flowHash(k), v.HashTable
	}
	open := func(slot uint16) int32 { return s.Conns[v.FirstLine+uint32(slot)] }
	entry, ok := policy.Choose(v.Policy, table, s.cpu(v.ID), open, r.Hash)
	if ok && v.Policy != policy.Hash {
		r.Hash = spread(k)
	}
	r.Reason = ForwardNew
	if !ok || !t.to(r, int(policy.EntrySlot(entry))) {
		r.Reason = DropNoServer
	}
}

// spread is the hash that only spreads the outer source of new connections:
// no secret. Words as the program loads them.
func spread(k *packet) uint64 {
	a := k.client.Addr().As16()
	var words [2]uint64
	for i, b := range a {
		words[i/8] |= uint64(b) << (i % 8 * 8)
	}
	ports := uint64(bits.ReverseBytes16(k.client.Port()))<<16 | uint64(bits.ReverseBytes16(k.vip.Port()))
	return (words[1] ^ words[0] ^ ports) * 0x9e3779b97f4a7c15
}

// fallback is for what has no (valid) cookie: the flow table, then the hash.
// A packet that opens no flow never enters the table.
func (t *Tables) fallback(s *State, r *Result, k *packet, nowMS uint32, first bool, why Reason) {
	v := r.VIP
	r.Hash = v.flowHash(k)
	if k.stamp == stampPresent {
		// A connection with timestamps was opened by the policy, not from
		// here: the flow table cannot know it.
		if r.Reason = why; !t.row(r) {
			r.Reason = DropNoServer
		}
		return
	}
	x, seconds := flowKey(v, k, r.Hash), uint16(nowMS>>10)
	idle := uint16(flowIdleUDP)
	if k.proto == wire.ProtoTCP {
		idle = flowIdleTCP
	}
	// A SYN opens anew, also where its ports were used before.
	if opening := k.kind == segment && k.proto == wire.ProtoTCP && first; !opening {
		if slot := s.Flows.Find(x, seconds, idle); slot >= 0 && t.to(r, slot) {
			r.Reason, r.FlowHit = why, true
			return
		}
	}
	switch {
	case k.kind == segment && k.proto == wire.ProtoTCP && k.stamp == stampNone && k.flags&wire.RST != 0:
		r.Reason = AskRST
		return
	case k.stamp == stampCut:
		r.Reason = AskICMP
		return
	case !t.row(r):
		r.Reason = DropNoServer
		return
	}
	if first {
		s.Flows.Insert(x, r.Slot, seconds)
		r.Opens = true
	}
	r.Reason = why
}

// act carries the decision out (fl_act).
func (t *Tables) act(s *State, r *Result, k *packet, nowMS uint32) {
	switch r.Reason {
	case PassNotIP, PassNoVIP, PassVIPOther:
		r.Verdict = Pass
	case AskRST, AskICMP:
		t.ask(s, r, k, nowMS)
	case ReplyEcho:
		r.Verdict, r.Output = Send, echo(k)
	case Known, ForwardNew, ForwardNoTimestamp, ForwardUDP, ForwardBadCookie, ForwardStateless, ForwardICMP, ForwardFragment:
		line := &t.Lines[r.Line]
		switch {
		case line.Unresolved:
			r.Verdict, r.Reason = Drop, DropUnresolved
		case k.TotalLen > line.MTU:
			r.Verdict, r.Reason = Drop, DropTooBig
			if k.kind == segment {
				if out := tooBig(k, line.MTU); out != nil {
					r.Verdict, r.Reason, r.Output = Send, ReplyTooBig, out
				}
			}
		case line.Forwarding == L2 && line.Ifindex == t.Ingress && wire.MAC(k.Frame) != line.MACSrc:
			// Flooded here, not sent here: see fl_forward.
			r.Verdict, r.Reason = Pass, PassVIPOther
		default:
			r.Verdict, r.Ifindex = Send, line.Ifindex
			r.Output = t.forward(k, line, r.Hash)
			s.count(r, k)
		}
	default:
		r.Verdict = Drop
	}
	if r.Verdict != Send || r.Ifindex == 0 {
		// Only what is forwarded opens or closes a connection.
		r.Opens, r.Closes = false, false
	}
}

// count counts a connection in or out (fl_count_connection).
func (s *State) count(r *Result, k *packet) {
	open := &s.Conns[r.Line]
	switch {
	case r.Opens && k.proto == wire.ProtoTCP:
		*open++
	case !r.Opens && r.Closes && *open > 0:
		*open--
	}
}
