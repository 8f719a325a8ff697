package model

import (
	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/wire"
)

// tells says of a packet to a join port of no server whether it is too big for
// the first server there is: its sender is told, as at a port that has one.
func (t *Tables) tells(r *Result, k *packet) bool {
	for slot := range bpf.JoinTries {
		if t.to(r, slot) {
			return k.TotalLen > t.Lines[r.Line].MTU
		}
	}
	return false
}

// beamer goes by the bucket table (fl_beamer): nothing is remembered, and
// opening packets go as all others.
func (t *Tables) beamer(r *Result, k *packet) {
	v := r.VIP
	r.Hash = v.flowHash(k)
	var slot int
	var hops wire.Hops
	if r.Join {
		// The port names the server of the first subflow, which has it
		// whatever becomes of buckets.
		slot, hops = beamer.JoinSlot(v.JoinHash, k.vip.Port()), wire.NewHops(0, v.Generation)
	} else {
		var ok bool
		if slot, hops, ok = beamer.Way(v.Buckets, r.Hash, v.Generation); !ok {
			r.Reason = bpf.DropNoServer
			return
		}
		r.Bucket = beamer.Bucket(r.Hash, v.Buckets.Len())
	}
	if !t.to(r, slot) && !(r.Join && t.tells(r, k)) {
		r.Reason = bpf.DropNoServer
		return
	}
	r.Hops = &hops
	if r.Reason = k.unlessSpecial(bpf.Known); r.Opens && k.kind == segment {
		r.Reason = bpf.ForwardNew
	}
}
