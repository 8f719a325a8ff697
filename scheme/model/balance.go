package model

import (
	"math/bits"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Process does with a frame what the balancer's program does, at shared time
// nowMS, and changes the state as the packet does. The frame is not changed;
// Result.Output is a new one.
func (t *Tables) Process(s *State, frame []byte, nowMS uint32) (result Result) {
	frame, tunnelled, trusted := t.outOfTunnel(frame)
	r := &result
	*r = Result{Line: -1, Slot: -1, Bucket: -1, Parsed: wire.Parse(frame)}
	if !trusted {
		r.Verdict, r.Reason = Drop, bpf.DropTierSource
		return result
	}
	if tunnelled {
		defer func() {
			if r.Verdict == Pass {
				r.Verdict, r.Reason = Drop, bpf.DropTierStray
			}
		}()
	}
	k, ip := classify(r.Parsed)
	if !ip {
		r.Reason = bpf.PassNotIP
		return result
	}
	if !t.mine(r.Parsed) {
		r.Reason = bpf.PassNotMine
		return result
	}
	t.decide(s, r, k, nowMS)
	t.act(s, r, k, nowMS)
	return result
}

// decide finds VIP, server and reason (fl_balance up to fl_act).
func (t *Tables) decide(s *State, r *Result, k *packet, nowMS uint32) {
	if k.kind == other {
		if reason, done := t.special(k); done {
			r.Reason = reason
			return
		}
	}
	if r.VIP = t.find(k); k.quotedFragment && (r.VIP == nil || !r.VIP.Scheme.Row().Hops) {
		r.VIP, r.Reason = nil, bpf.DropFragment
		return
	}
	if r.VIP == nil {
		if r.Reason, r.VIP = t.unserved(k); r.VIP == nil {
			return
		}
		r.Join = true
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
// dropped, as nobody could put it together. What may be of an MPTCP join goes
// on, with the address's entry.
func (t *Tables) unserved(k *packet) (Reason, *VIP) {
	address := t.Addresses[k.vip.Addr()]
	switch {
	case address == nil:
		return bpf.PassNoVIP, nil
	case k.kind == fragment:
		return bpf.DropFragment, nil
	case address.Joins && k.proto == wire.ProtoTCP && k.vip.Port() >= bpf.JoinPort:
		return 0, address
	}
	return bpf.PassVIPOther, nil
}

// scheme is fl_scheme: whose is the packet?
func (t *Tables) scheme(s *State, r *Result, k *packet, nowMS uint32) {
	v := r.VIP
	tcp := k.kind == segment && k.proto == wire.ProtoTCP
	if k.kind == segment {
		if reason, ok := k.layer4(v.Carrier); !ok {
			r.Reason = reason
			return
		}
	} else if k.kind == fragment && !v.FragmentsByAddress {
		if r.Reason = bpf.DropFragment; k.quotedFragment {
			r.Reason = bpf.AskICMP
		}
		return
	}
	syn := tcp && k.flags&(wire.SYN|wire.ACK|wire.RST|wire.FIN) == wire.SYN
	opening := syn || k.kind == segment && k.initial()
	if reason := t.rated(s, v, k, nowMS, opening); reason != bpf.Known {
		r.Reason = reason
		return
	}
	if opening && (v.Layout.SeatBits > 0 || v.Layout.TierBits > 0) && !v.TierOne && k.carried == carriedWhole {
		t.open(s, r, k, nowMS)
	}
	r.Opens, r.Closes = opening, tcp && k.flags&(wire.FIN|wire.RST) != 0
	switch {
	case v.Scheme == vip.Cheetah, v.Scheme == vip.CheetahStateful:
		t.cheetah(s, r, k, nowMS, opening, syn)
	case v.Scheme == vip.Stateless:
		t.stateless(r, k)
	case v.Scheme == vip.Beamer:
		t.beamer(r, k)
	default:
		why := bpf.Known
		if opening {
			why = bpf.ForwardNew
		}
		t.track(s, r, k, nowMS, opening, k.unlessSpecial(why))
	}
}

// unlessSpecial: quotes and fragments are forwarded under reasons of their
// own.
func (k *packet) unlessSpecial(why Reason) Reason {
	switch k.kind {
	case quote:
		return bpf.ForwardICMP
	case fragment:
		return bpf.ForwardFragment
	}
	return why
}

// cheetah goes by the cookie; what carries none goes like JET.
func (t *Tables) cheetah(s *State, r *Result, k *packet, nowMS uint32, opening, syn bool) {
	v := r.VIP
	if k.carried != carriedWhole {
		why := bpf.ForwardUDP
		if k.proto == wire.ProtoTCP {
			why = bpf.ForwardNoTimestamp
		}
		t.track(s, r, k, nowMS, opening, k.unlessSpecial(why))
		if r.Reason != bpf.AskRST && r.Reason != bpf.AskICMP {
			s.Counters(v.ID).Fallback++
		}
		return
	}
	if (v.Migrates || v.Enters) && t.migrates(s, r, k, nowMS, syn) {
		return
	}
	if syn {
		t.choose(s, r, k)
		return
	}
	fresh, why := false, bpf.ForwardBadCookie
	if t.known(r, k, nowMS) {
		r.Reason = k.unlessSpecial(bpf.Known)
		switch {
		case !v.TierOne && v.Layout.TierBits > 0 && r.Cookie.Tier != v.Tier:
			r.Reason = k.unlessSpecial(bpf.ForwardOtherTier)
			return
		case v.TierOne && t.Lines[r.Line].Down:
			fresh, why = true, bpf.ForwardTierDown
		default:
			if k.kind == segment && v.Layout.SeatBits > 0 && !v.TierOne {
				if t.seatRated(s, r, k, nowMS) {
					r.Reason = bpf.DropRateConnection
					return
				}
				t.touch(s, r, k, nowMS)
				t.moved(r)
			}
			return
		}
	}
	// The flow table cannot know it: a connection with timestamps is opened
	// by the policy.
	if why == bpf.ForwardBadCookie {
		s.Counters(v.ID).BadCookies++
	}
	s.Counters(v.ID).Fallback++
	r.Hash = v.flowHash(k)
	if r.Reason = k.unlessSpecial(why); !t.to(r, r.place(fresh).to()) {
		r.Reason = bpf.DropNoServer
	}
}

// migrates is fl_cheetah_migrates: false, the flow table says nothing of the packet.
func (t *Tables) migrates(s *State, r *Result, k *packet, nowMS uint32, syn bool) bool {
	why := bpf.Known
	if syn {
		why = bpf.ForwardNew
	}
	if syn && r.VIP.Policy == policy.Hash {
		t.track(s, r, k, nowMS, true, why)
		return true
	}
	if !r.VIP.Migrates {
		return false
	}
	if t.followed(s, r, k, nowMS, syn, k.unlessSpecial(why)) {
		return true
	}
	if syn && r.Flow.Found { // and is not to be followed
		t.track(s, r, k, nowMS, true, why)
		return true
	}
	r.Flow = nil
	return false
}

// to takes the slot's line into the result; false: it names no server.
func (t *Tables) to(r *Result, slot int) bool {
	line := int(r.VIP.FirstLine) + slot
	if slot < 0 || slot >= int(r.VIP.Slots) || line >= len(t.Lines) || t.Lines[line].Forwarding == "" {
		return false
	}
	r.Slot, r.Line = slot, line
	return true
}

// known is fl_cheetah_known: the echoed timestamp names the slot.
func (t *Tables) known(r *Result, k *packet, nowMS uint32) bool {
	v := r.VIP
	d := v.Layout.Decode(v.Keys, v.Epochs, k.client, k.vip.Port(), k.word, nowMS)
	r.Cookie = &d
	if !d.Live {
		return false
	}
	r.Hash = d.Hash
	return t.to(r, int(d.Slot))
}

func (t *Tables) stateless(r *Result, k *packet) {
	r.Hash = r.VIP.flowHash(k)
	if r.Reason = k.unlessSpecial(bpf.ForwardStateless); r.Opens && r.VIP.NoNew || !t.to(r, r.place(true).to()) {
		r.Reason = bpf.DropNoServer
	}
}

// choose is the policy's choice for a SYN with a timestamp.
func (t *Tables) choose(s *State, r *Result, k *packet) {
	v := r.VIP
	r.Reason = bpf.ForwardNew
	if v.NoNew {
		r.Reason = bpf.DropNoServer
		return
	}
	if v.Policy == policy.Hash {
		if r.Hash = v.flowHash(k); !t.to(r, r.place(true).to()) {
			r.Reason = bpf.DropNoServer
		}
		return
	}
	open := func(slot uint16) int32 { return s.Conns[v.FirstLine+uint32(slot)] }
	entry, ok := policy.Choose(v.Policy, v.NewTable, s.cpu(v.ID), open)
	r.Hash = spread(k)
	if !ok || !t.to(r, int(policy.EntrySlot(entry))) {
		r.Reason = bpf.DropNoServer
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

// act carries the decision out (fl_act).
func (t *Tables) act(s *State, r *Result, k *packet, nowMS uint32) {
	switch r.Reason {
	case bpf.PassNoVIP, bpf.PassVIPOther:
		r.Verdict = Pass
	case bpf.AskRST, bpf.AskICMP:
		t.ask(s, r, k, nowMS)
	case bpf.ReplyEcho:
		r.Verdict, r.Output = Send, echo(k)
	case bpf.Known, bpf.ForwardNew, bpf.ForwardNoTimestamp, bpf.ForwardUDP, bpf.ForwardBadCookie, bpf.ForwardStateless, bpf.ForwardICMP, bpf.ForwardFragment, bpf.ForwardTierDown, bpf.ForwardOtherTier:
		line := &t.Lines[r.Line]
		switch {
		case line.Unresolved:
			r.Verdict, r.Reason = Drop, bpf.DropUnresolved
		case k.TotalLen > line.MTU:
			r.Verdict, r.Reason = Drop, bpf.DropTooBig
			if k.kind == segment {
				if out := tooBig(k, line.MTU); out != nil {
					r.Verdict, r.Reason, r.Output = Send, bpf.ReplyTooBig, out
				}
			}
		default:
			r.Verdict, r.Ifindex = Send, line.Ifindex
			r.Output = t.forward(k, line, r)
			s.count(r, k)
		}
	default:
		r.Verdict = Drop
	}
	if r.VIP != nil && r.Reason >= bpf.DropMalformedIP && r.Verdict == Drop {
		s.Counters(r.VIP.ID).Dropped++
	}
	if r.Verdict != Send || r.Ifindex == 0 {
		// Only what is forwarded opens or closes a connection.
		r.Opens, r.Closes = false, false
	}
}

// count counts a connection in or out (fl_count_connection).
func (s *State) count(r *Result, k *packet) {
	if r.Opens {
		s.Counters(r.VIP.ID).NewConns++
	}
	open := &s.Conns[r.Line]
	switch {
	case r.Opens && k.proto == wire.ProtoTCP:
		*open++
	case !r.Opens && r.Closes && *open > 0:
		*open--
	}
}
