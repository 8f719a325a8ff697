package beamer

import (
	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/wire"
)

// Row is what a mux knows of a bucket.
type Row struct {
	// Current is the slot that has the bucket; wire.NoServer: nobody.
	Current uint16
	// Previous had it before, newest first, filled up with wire.NoServer.
	Previous [wire.HopsChain]uint16
	// Time of the last move, in shared ms; 0 in a settled row.
	Time uint32
}

// Buckets is a VIP's bucket table as a mux goes by it.
type Buckets interface {
	Len() int
	// Row of bucket b, 0 <= b < Len.
	Row(b int) Row
}

// Bucket is the bucket that a connection's hash names, of n.
func Bucket(h uint64, n int) int { return hash.Row(h, n) }

// Way is where a mux sends a packet whose hash is given (§4.2), by a table of
// that generation. False: nobody has the bucket.
func Way(t Buckets, hash uint64, generation uint32) (slot int, hops wire.Hops, ok bool) {
	if t == nil || t.Len() == 0 {
		return -1, hops, false
	}
	r := t.Row(Bucket(hash, t.Len()))
	return int(r.Current), wire.Hops{Previous: r.Previous, Time: r.Time, Generation: generation}, r.Current != wire.NoServer
}

// Settled is a row without a chain.
func Settled(slot uint16) Row {
	return Row{Current: slot, Previous: noChain}
}

// Joins of Multipath TCP reach the server of the first subflow by a port of
// the VIP that stands for the server alone (Beamer, NSDI'18, "MPTCP": there the
// port is the server's number; here it is permuted under the deployment's
// key, so that clients learn no number).
var joins = cheetah.Layout{Bits: 32 - bpf.JoinShift}

// JoinPort is the port of joins to slot, where the service's join_hash is hash.
func JoinPort(hash uint64, slot uint32) uint16 {
	return bpf.JoinPort + uint16(joins.Encode(hash, slot, 0))
}

// JoinSlot undoes JoinPort.
func JoinSlot(hash uint64, port uint16) int { return int(joins.Value(hash, uint32(port-bpf.JoinPort))) }
