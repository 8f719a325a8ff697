// Package model is the balancer in plain Go: what bpf/lb does with a packet,
// given the tables that both read. It is the specification that the XDP
// program is held to by differential tests (kernel/lb), and what `fairlead
// trace` explains a packet with. It does no I/O and reads no clock: time comes
// with each packet, random numbers are part of the state, as in the data plane.
//
//	wire.Parse ─▶ classify ─▶ VIP? ─▶ scheme (cheetah | jet | full-ct | stateless | beamer)
//	                                   │ cookie, flow table   │ policy, hash     │ bucket
//	                                   ▼                      ▼                  ▼
//	                        slot ─▶ line ─▶ encapsulate ─▶ Result          slot, hops
package model

import (
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/beamer"
	"github.com/fairlead/fairlead/scheme/bound"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/rates"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Verdict is what becomes of the frame.
type Verdict int

const (
	Pass Verdict = iota // to the kernel, untouched
	Drop
	Send // out again: Result.Output, through Result.Ifindex (0: where it came in)
)

func (v Verdict) String() string { return [...]string{"pass", "drop", "send"}[v] }

// VIP is a service with its tables (fl_vip).
type VIP struct {
	ID    uint32
	Addr  netip.Addr
	Port  uint16 // 0: all
	Proto uint8
	// Slot s is line FirstLine + s, for s below Slots.
	FirstLine, Slots uint32
	Keys             [2]hash.Key // of the even and the odd epoch
	Epochs           uint8       // bit e: parity e is decoded
	HashKey          hash.Key
	Layout           cheetah.Layout
	// Tier is the balancer's number in tier two, where the layout has tiers; TierOne: it
	// is of tier one, whose servers are balancers of tier two.
	Tier      uint32
	TierOne   bool
	OpenEpoch int // parity under which a new connection's seat is found
	Scheme    vip.Scheme
	Carrier   vip.Carrier // of its cookies; "": TCPTimestamp
	Policy    string
	NewTable  []uint32 // policy.Table
	// NoNew: no server takes new connections, whatever the tables say.
	NoNew bool
	// TrackAll: whatever the hash says, each connection is tracked, where the
	// scheme tracks any.
	TrackAll bool
	Hash     Placer // nil: no server
	// Buckets of scheme beamer, and the generation of their table, a serial
	// number.
	Buckets    beamer.Buckets
	Generation uint32
	// JoinHash of an address's entry whose Joins is set: joins of MPTCP to
	// ports of bpf.JoinPort and above go to the server that the port names.
	JoinHash uint64
	Joins    bool
	// Rates are the limits that it has (bpf.RateConnection, …), Steps what they are.
	Rates uint8
	Steps bpf.Rates
	// Flags of fl_vip_flags.
	ICMPEcho, FragmentsByAddress, Affinity, Share, Migrates bool
	// Enters: without Migrates, what the hash opens gets an entry (FL_MIGRATES).
	Enters bool
}

// Line is a server's line (fl_line).
type Line struct {
	Forwarding     vip.Forwarding // "": no server
	Unresolved     bool
	Closed         bool // takes no new connections
	Down           bool // by its health checks
	MACDst, MACSrc wire.MAC
	VLAN           uint16
	Addr           netip.Addr
	Ifindex        uint32
	MTU            int // largest inner packet
	// Steer is the line's row of fl_steer, which counts if Tables.Steering does;
	// nil: it is not steered.
	Steer *Steer
}

// Steer spreads a line's connections over the paths that were chosen for them
// (fl_steer). An entry of zeros spreads by the hash.
type Steer [bpf.SteerEntries]Spread

// Spread is what of a tunnel's outer header spreads it over the fabric.
type Spread struct {
	Port  uint16 // outer source port of GUE
	Label uint32 // IPv6 flow label
}

// Steered says which part of the line's connections one with this hash is, and
// whether nothing is chosen for it. ok: the line is steered.
func (t *Tables) Steered(l *Line, hash uint64) (part int, byHash, ok bool) {
	if !t.Steering || l.Steer == nil || !l.Forwarding.Row().Steers() {
		return 0, true, false
	}
	part = int(hash >> 44 % uint64(len(Steer{})))
	return part, l.Steer[part] == Spread{}, true
}

// spread is that of a connection with this hash.
func (t *Tables) spread(l *Line, hash uint64) Spread {
	if part, byHash, _ := t.Steered(l, hash); !byHash {
		return l.Steer[part]
	}
	return Spread{wire.TunnelPorts + uint16(hash>>50), uint32(hash >> 44)}
}

// Key finds a VIP: address, port (0: all) and protocol.
type Key struct {
	Addr  netip.Addr
	Port  uint16
	Proto uint8
}

// Address holds the settings of a VIP's address (its ICMP entry).
type Address = VIP

// Tables are what the daemon compiles an assignment to: the same in every
// balancer, read only.
type Tables struct {
	// Services by address, port and protocol.
	Services map[Key]*VIP
	// Addresses by address alone: the entries with FL_VIP_ADDRESS_ENTRY.
	Addresses map[netip.Addr]*Address
	// Fragments by address and protocol: the VIP that takes them.
	Fragments map[Key]*VIP
	Lines     []Line
	// Source4 and Source6 are the tunnels' outer sources: host bits carry
	// the hash.
	Source4, Source6 netip.Prefix
	// GUEChecksum6 computes GUE's outer UDP checksum over IPv6.
	GUEChecksum6 bool
	// Steering has lines' rows of fl_steer read.
	Steering bool
	// TierAddr is the balancer's address in tier two, and TierSources who may send tunnels
	// there; invalid: it is not in tier two.
	TierAddr    netip.Addr
	TierSources []netip.Prefix
	// AskKey also names the buckets of sources.
	// AskRate is how many copies to all servers a second and CPU allows, of
	// each kind (RST, ICMP); AskKey spreads the senders of ICMP errors over
	// their bounds.
	AskRate uint32
	AskKey  hash.Key
	// Ingress is the interface that frames come in by; Inputs are the frames
	// that are this machine's, nil: all.
	Ingress uint32
	Inputs  map[Input]bool
}

// State is what packets leave behind on one CPU.
type State struct {
	Flows *jet.Flows
	Seats *seats.Table
	// Sources are the buckets of sources whose rates are limited.
	Sources rates.Sources
	// Conns is the number of open connections by line.
	Conns []int32
	// CPU is the policies' state by VIP id.
	CPU map[uint32]*policy.State
	// Asks bounds copies to all servers: [0] RSTs, [1] ICMP. AskSources
	// bounds the latter by sender.
	Asks       [2]bound.Bound
	AskSources [AskSources]bound.Bound

	counters map[uint32]*Counters
}

// NewState is the state of a balancer that has seen nothing.
func NewState(lines, flowSets int) *State {
	return &State{Flows: jet.NewFlows(flowSets), Seats: seats.New(seats.Size(0)), Sources: make(rates.Sources, 1), Conns: make([]int32, lines), CPU: map[uint32]*policy.State{},
		counters: map[uint32]*Counters{}}
}

// Counters of the VIP with this id.
func (s *State) Counters(id uint32) *Counters {
	c := s.counters[id]
	if c == nil {
		c = &Counters{}
		s.counters[id] = c
	}
	return c
}

// cpu is a VIP's per-CPU state, made on first use.
func (s *State) cpu(id uint32) *policy.State {
	c := s.CPU[id]
	if c == nil {
		c = &policy.State{}
		s.CPU[id] = c
	}
	return c
}

// Result is what the balancer does with one frame, and why.
type Result struct {
	Verdict Verdict
	Reason  Reason
	// VIP that the packet was for; nil: none.
	VIP *VIP
	// Line and Slot of the server, -1: none.
	Line, Slot int
	// Output is the frame that is sent, Ifindex where; Ask is the packet
	// (from layer 3 on) that goes to all servers by the daemon.
	Output  []byte
	Ifindex uint32
	Ask     []byte
	// Opens and Closes: the packet counts as a connection's start or end.
	Opens, Closes bool
	// Cookie is set where a timestamp was decoded.
	Cookie *cheetah.Decoded
	// Place is set where the consistent hash was asked, Flow where the flow
	// table was. FlowHit: it knew the way. Tracked: the packet made an entry.
	// Share is what other balancers are told; nil: nothing.
	Place            *Place
	Flow             *Flow
	FlowHit, Tracked bool
	Share            *Shared
	// Seat is what scheme cheetah-stateful's table had to do with the packet.
	Seat *Seat
	// Bucket is the packet's under scheme beamer, -1: none; Hops go along in
	// the tunnel. Join: its port named the server.
	Bucket int
	Hops   *wire.Hops
	Join   bool
	// Hash is what spreads the outer source.
	Hash uint64
	// Parsed is the packet as it came in.
	Parsed *wire.Parsed
}
