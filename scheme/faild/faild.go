// Package faild is scheme faild in plain Go (Faild, NSDI'18): what MAC address
// a switch sends a bucket's frames to, what a server reads out of it, and what
// MAC it passes a frame on with. Whether it does is package beamer's: a MAC is
// hops without time and generation. A server's side (Read, Next, Asks) is asked
// by tests alone, which hold bpf/host/scheme_faild.h to it. No I/O, no clock.
package faild

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/wire"
)

// MAC is what a switch sends a bucket's frames to (§4.1). The error says which
// slot ten bits cannot name, or that the row would send frames round.
func MAC(r beamer.Row) (wire.MAC, error) {
	return wire.EncodeFaild(wire.Faild{Kind: wire.FaildPass, Current: r.Current, Previous: r.Previous})
}

// Read fills in what of a packet the frame's destination says to the server at
// slot. faild is false where that is no Faild MAC: the frame was sent to a
// card of the server's, who knows why. mine is false where it is another
// server's. A row that no switch writes (a hole in the chain, a server twice)
// is read all the same: the chain's own rules end it.
func Read(dst wire.MAC, slot uint16, p *beamer.Packet) (faild, mine bool) {
	f, faild, _ := wire.DecodeFaild(dst)
	if !faild {
		p.From = beamer.Balancer
		return false, true
	}
	if f.Current != slot {
		return true, false
	}
	p.Carried, p.Untimed, p.Copy = true, true, f.Kind == wire.FaildCopy
	p.Hops = wire.Hops{Previous: f.Previous}
	p.From = beamer.Passed
	if f.Kind == wire.FaildPass {
		p.From = beamer.Balancer
	}
	return true, true
}

// Next is what a server passes a frame on to, that came to dst, as the answer
// says: the next server with the rest of the chain behind it.
func Next(dst wire.MAC, a beamer.Answer) wire.MAC {
	f := wire.Faild{Kind: wire.FaildKind(dst[0]), Current: a.Next, Previous: a.Hops.Previous}
	if a.Returns {
		f.Kind = wire.FaildBack
	}
	mac, _ := wire.EncodeFaild(f) // of a chain that no switch writes, as it is
	return mac
}

// Seed is the kernel's hash seed for a deployment's hash key: the first
// four octets, big-endian, of the SHA-256 of a name and the key, so that the
// seed, which everybody on the switch can read, tells nothing of the key.
// Never 0, with which each switch would draw its own.
func Seed(k hash.Key) uint32 {
	h := sha256.New()
	h.Write([]byte("fairlead fib_multipath_hash_seed"))
	binary.Write(h, binary.BigEndian, k)
	seed := binary.BigEndian.Uint32(h.Sum(nil))
	return max(seed, 1)
}
