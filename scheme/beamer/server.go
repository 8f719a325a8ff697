// Package beamer is scheme beamer in plain Go (Beamer, NSDI'18): where a mux
// sends a packet, which `fairlead trace` and simulations ask, and what a server
// does with one that it may not own (Server, Flows), which tests alone ask.
// bpf/lb/scheme_beamer.h and bpf/host/own.h are held to it by differential
// tests. It does no I/O and reads no clock.
//
//	mux      hash ─▶ bucket ─▶ current server, and as hops: chain, time, generation
//	server   from whom? ─▶ settled? ─▶ SYN? ─▶ socket, SYN cookie, flow? ─▶
//	         previous server, while the chain lasts ─▶ stale table? ─▶ the stack
//
// Where the paper has one previous server, a chain here names up to three.
package beamer

import (
	"slices"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/wire"
)

// ClockAhead is by how many milliseconds clocks of balancers and servers may
// differ before it is said.
const ClockAhead = 2000

// TimeWaitWindow is how far before the next expected byte a segment is of a
// connection in TIME_WAIT, unless that had a larger receive window.
const TimeWaitWindow = 65536

// State is what the kernel's tables know of a connection.
type State int

const (
	// NoSocket: none, and no listener either.
	NoSocket State = iota
	// Listener: only the listening socket.
	Listener
	// Request: a SYN was answered.
	Request
	// Established is any state with a full socket.
	Established
	// TimeWait is over, but hears the rest; FinWait2 likewise, and its client
	// may still send.
	TimeWait
	FinWait2
)

// Socket is what the server's kernel knows of the connection.
type Socket struct {
	State State
	// ISN is the initial sequence number that a Request answered with.
	ISN uint32
	// Next is the next byte that TimeWait or FinWait2 expects, Window its
	// receive window in bytes.
	Next, Window uint32
	// Cookie: the segment ends the handshake of a SYN cookie, and the Listener
	// has had too many SYNs lately.
	Cookie bool
}

// From is who sent a packet to a server.
type From int

const (
	// Nobody that may send tunnels: forged.
	Nobody From = iota
	// Balancer, or faild's switch.
	Balancer
	// Passed on by a server that was asked before.
	Passed
	// Either: the balancers' prefixes hold this server's address, too.
	// Believed like a balancer, but not the first to be asked.
	Either
)

// Packet is what of a packet the decision hangs on.
type Packet struct {
	UDP bool
	// Quote: an ICMP error; the rest is of the packet that it quotes.
	Quote bool
	// Flags of TCP (wire.SYN and so on), Seq and Ack in host order.
	Flags    uint8
	Seq, Ack uint32
	// Opening: a QUIC Initial.
	Opening bool

	From From
	// Carried: the packet has Hops. Else it is a health check or a copy.
	Carried bool
	Hops    wire.Hops
	// Untimed: the hops have neither time nor generation, since a MAC carries
	// them (faild).
	Untimed bool
	// Copy: one of several that were sent to all servers (faild).
	Copy bool
	// Spent: the tunnel has no hop left to live.
	Spent bool
}

// Peer is what a server knows of another one's slot.
type Peer int

const (
	// Unknown: no such slot.
	Unknown Peer = iota
	// Unresolved: known, but not how to reach it.
	Unresolved
	// Reachable: packets can be sent to it.
	Reachable
	// Silent: packets can be sent to it, but it answers no more, so that
	// datagrams, which have to come back, would be lost.
	Silent
)

// Server is one server's part of a VIP.
type Server struct {
	Slot uint16
	// Generation is the agent's, Seen the newest that packets showed, where
	// that is later (by GenerationAhead at most); 0: none. Both are serial
	// numbers (RFC 1982).
	Generation, Seen uint32
	// StaleMS is the shared ms, with its lowest bit set, of the last packet
	// from a balancer whose table was older; 0: none.
	StaleMS uint32
	// Unsettled: while this server's health is in doubt nothing is settled.
	Unsettled bool
	// ChainTime is for how long after a bucket's move its chain is followed,
	// in milliseconds.
	ChainTime uint32
	// Peers says what is known of another slot.
	Peers func(slot uint16) Peer
}

// Verdict is what becomes of a packet at a server.
type Verdict int

const (
	// Take: the stack gets it.
	Take Verdict = iota
	// PassOn: the server at Answer.Next gets it, with Answer.Hops.
	PassOn
	// Drop it.
	Drop
	// Ask all other servers (an ICMP error under faild), within the bounds.
	Ask
)

func (v Verdict) String() string { return [...]string{"take", "pass on", "drop", "ask"}[v] }

// Answer is what a server does with a packet, and why.
type Answer struct {
	Verdict Verdict
	// Reasons are those counted, by the names of enum fl_host_reason in lower
	// case, in the order of their events.
	Reasons []string
	Next    uint16
	Hops    wire.Hops
	// Returns: a datagram whose chain now ends with this server.
	Returns bool
	// Learned: the packet showed a newer generation; Seen was set.
	Learned bool
}

func (a *Answer) count(reason string) { a.Reasons = append(a.Reasons, reason) }

// older says whether a generation is older than the newest that the server
// knows of. A balancer's is believed if it is ahead of the agent's, but by no
// more tables than an agent can have missed.
func (s *Server) older(a *Answer, p *Packet, now uint32) bool {
	seen, ahead := uint32(0), p.Hops.Generation-s.Generation
	if n := s.Seen - s.Generation; s.Seen != 0 && n <= bpf.GenerationAhead {
		seen = n
	}
	balancer := p.From == Balancer || p.From == Either
	switch {
	case int32(ahead-seen) < 0:
		if balancer {
			s.StaleMS = now | 1
		}
		return true
	case ahead == seen || !balancer:
	case ahead <= bpf.GenerationAhead:
		s.Seen, a.Learned = p.Hops.Generation, true
	default:
		a.count("generation_jump")
	}
	return false
}

// Decide says what s does with a packet of its VIP at shared time now (ms).
// socket and flow are asked only where the answer needs them: what the kernel
// knows of a TCP connection, and whether a flow of UDP is known (connected, or
// in the flow table).
func (s *Server) Decide(p *Packet, now uint32, socket func() Socket, flow func() bool) (a Answer) {
	if p.From == Nobody {
		a.Verdict = Drop
		a.count("drop_foreign_source")
		return a
	}
	a.Hops = p.Hops
	if !p.Carried {
		return a
	}
	stale := s.Unsettled
	if !p.Untimed && s.older(&a, p, now) {
		stale = true
	}
	settled := !stale && p.Hops.Previous == noChain
	anybody := p.Untimed && (p.Quote || p.Copy)
	if settled && !anybody && !(p.UDP && p.From == Passed) {
		return a
	}
	if reason := p.owned(socket, flow); reason != "" {
		a.count(reason)
		return a
	}
	if anybody {
		// The switch hashed the router's address: anybody may be the owner.
		// Of a copy, all others have theirs.
		if a.Verdict = Ask; p.Copy {
			a.Verdict = Drop
			a.count("drop_not_mine")
		}
		return a
	}
	if s.previous(&a, p, now) {
		return a
	}
	switch {
	case p.Quote: // the stack looks for the connection, and finds none
	case p.UDP && p.From == Passed:
		a.count("in_returned")
	case stale && !p.UDP: // the stack would reset what may live elsewhere
		a.Verdict = Drop
		a.count("drop_stale")
	default:
		a.count("in_unowned")
	}
	return a
}

// owned is why the packet is this server's, "" if it is not known to be.
func (p *Packet) owned(socket func() Socket, flow func() bool) string {
	switch {
	case p.UDP && p.Opening, !p.UDP && !p.Quote && p.Flags&(wire.SYN|wire.ACK) == wire.SYN:
		return "in_opening"
	case p.UDP:
		if flow() {
			return "in_owned"
		}
		return ""
	}
	switch k := socket(); k.State {
	case Established:
		return "in_owned"
	case Request:
		// Another server may have answered a SYN of the same client before:
		// whose answer was taken is in the acknowledgement.
		if p.Quote && p.Seq-k.ISN <= 1 || !p.Quote && p.Flags&wire.ACK != 0 && p.Ack == k.ISN+1 {
			return "in_owned"
		}
	case TimeWait, FinWait2:
		window := max(k.Window, TimeWaitWindow)
		if !p.Quote && (k.Next-p.Seq <= window || k.State == FinWait2 && p.Seq-k.Next <= window) {
			return "in_owned"
		}
	case Listener:
		if k.Cookie && !p.Quote && p.Flags&(wire.SYN|wire.ACK|wire.RST) == wire.ACK {
			return "in_syncookie"
		}
	}
	return ""
}

// previous passes the packet on if there is somebody left to ask; true also
// where it must be dropped.
func (s *Server) previous(a *Answer, p *Packet, now uint32) bool {
	if p.Hops.Previous == noChain {
		return false
	}
	if !p.Untimed {
		age := int32(now - p.Hops.Time)
		if age < -ClockAhead {
			a.count("clock_ahead")
		}
		if age > 0 && uint32(age) > s.ChainTime {
			return false
		}
	}
	if slices.Contains(p.Hops.Previous[:], s.Slot) {
		a.Verdict = Drop
		a.count("drop_loop")
		return true
	}
	for i, slot := range p.Hops.Previous {
		if slot == wire.NoServer {
			continue
		}
		switch peer := s.Peers(slot); {
		case peer == Unknown:
			a.count("unknown_previous")
			continue
		case peer == Unresolved && !p.Untimed, peer == Silent && p.UDP && !p.Quote:
			a.count("unresolved_previous")
			continue
		}
		if p.Spent { // it has gone round without end
			a.Verdict = Drop
			a.count("drop_loop")
			return true
		}
		rest := append(slices.Clone(p.Hops.Previous[i+1:]), wire.NoServer, wire.NoServer, wire.NoServer)
		if p.UDP && !p.Quote && p.From == Balancer {
			// If no previous server owns the flow it is new, and this
			// server's: back to it.
			rest[slices.Index(rest, wire.NoServer)] = s.Slot
			a.Returns = true
		}
		a.Verdict, a.Next = PassOn, slot
		copy(a.Hops.Previous[:], rest)
		a.count("forward_previous")
		return true
	}
	return false
}

var noChain = [wire.HopsChain]uint16{wire.NoServer, wire.NoServer, wire.NoServer}
