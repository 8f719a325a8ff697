// Package mptcp gives connections of Multipath TCP subflows over chosen paths
// of a fabric: the first subflow's ports are the kernel's choice, so it is on
// some path; further ones get ports that lead over others, as disjoint as
// there are (Detal et al., "Revisiting flow-based load balancing", section
// 4.2.2). Programs open sockets of Multipath TCP and know of nothing else.
//
//	mptcp_pm (generic netlink): events ──┐
//	sock_diag: subflows, their timers ───┴─▶ Manager ──▶ subflow create, destroy
//	fabric.yaml ─▶ paths.Net: paths, ports ──┘
//
// It goes by what the kernel has at each moment, not by what it remembers:
// events only say that it is time to look. So it may be stopped and started,
// or lose events.
//
// A subflow whose packets are not acknowledged for several time-outs, while
// others of the fabric's are, has lost its path. It is replaced by one over
// other links, and those that only failing subflows use are avoided for
// a while.
package mptcp

import (
	"net/netip"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Subflow is a TCP connection that belongs to one of Multipath TCP.
type Subflow struct {
	// Token is the connection's, as the kernel of this side calls it.
	Token         uint32
	Local, Remote netip.AddrPort
	LocalID       uint8 // of the address and port; 0: the first subflow's
	RemoteID      uint8
	State         uint8 // of TCP's states
	// Established is whether data may pass: its handshakes are done.
	Established bool
	// Client is whether this side opened it.
	Client bool
	Info   Info
}

// Info is what of struct tcp_info is used.
type Info struct {
	Retransmits uint8  // of the SYN, or of the segment that waits
	Probes      uint8  // of a closed window, not answered
	Backoff     uint8  // how often the time-out was doubled since the last answer
	Unacked     uint32 // segments
	RTT         uint32 // µs, smoothed
	Acked       uint64 // bytes
	Received    uint64 // bytes
	Rate        uint64 // bytes/s, delivered lately
}

// flow is the subflow as routers see its packets.
func (s *Subflow) flow() pathsel.Flow {
	return pathsel.Flow{Src: s.Local.Addr(), Dst: s.Remote.Addr(), Proto: paths.TCP, SrcPort: s.Local.Port(), DstPort: s.Remote.Port()}
}

// TCP's states by number, as in the kernel's tcp_states.h.
const (
	stateEstablished = 1
	stateSynSent     = 2
)

// connecting tells whether no answer has come yet.
func (s *Subflow) connecting() bool { return s.State == stateSynSent }

// ends tells whether a subflow is on its way out (FIN_WAIT and later): nothing
// can be said of its path.
func (s *Subflow) ends() bool { return s.State != stateEstablished && s.State != stateSynSent }
