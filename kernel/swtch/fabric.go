// Package fabric makes any Linux box a switch of scheme faild (Faild,
// NSDI'18), through netlink alone.
//
// The way of a packet, and what of it is ours:
//
//	to a VIP ─▶ route ─▶ ECMP group ─▶ virtual nexthop ─▶ neighbour ─▶ bridge entry ─▶ port
//	            (main)   by a hash     one a bucket       MAC: server   MAC → port
//	                     that all      of the VIPs'       and those
//	                     switches      table              before it
//	                     share
//
// The group never changes, so no packet ever changes its bucket; to give a
// bucket to another server is to rewrite one permanent neighbour. Its MAC
// (wire.Faild) names the server and up to three that had the bucket before,
// which pass packets of each other's connections on.
//
// What is ours: the nexthops with ids from FirstID on, the routes, nexthops
// and neighbours of protocol Protocol, and the bridge's static, sticky entries
// for Faild MACs. Nothing else is ever changed, but for the sysctls that say
// how the kernel hashes, which all switches must share. Every second, and when
// the kernel tells of a change, all of it is read back, and what somebody else
// changed is put right and counted.
package swtch

import (
	"log/slog"
	"time"
)

// What is ours in the kernel.
const (
	// FirstID is the id of the first nexthop of ours; GroupIDs stand below
	// the virtual nexthops'.
	FirstID = 0xfa1d0000
	// Protocol is the number by which routes, nexthops and neighbours are
	// told to be ours (as rtnetlink's RTPROT_*, where 0xfa is nobody's).
	Protocol = 0xfa
	// AnnounceTable is where routes to announce stand unless Options say
	// otherwise.
	AnnounceTable = 177
)

// Options are a switch's settings, for its life.
type Options struct {
	// Bridge is the device whose ports lead to the servers.
	Bridge string
	// Ports names servers' bridge ports. A server that is not here is found
	// by the neighbour entry of its address on Bridge and the bridge's entry
	// of that MAC.
	Ports map[string]string
	// AnnounceTable is the routing table from which a BGP speaker announces;
	// 0: AnnounceTable.
	AnnounceTable int
	// Drained: announce nothing, from the beginning on.
	Drained bool
	// Locked: the switch locked itself in an earlier run, and stays so; nil:
	// it did not.
	Locked *Lock
	// KeepLock is told whenever the switch locks itself, and with nil when it
	// was unlocked, so that the next run can be told by Locked. If it fails
	// the switch is not unlocked. It is called with the switch's own lock
	// held; nil: nobody is told.
	KeepLock func(*Lock) error
	// Health says how reports are taken; zero fields: defaults.
	Health HealthOptions
	// Log may be nil: nothing is logged.
	Log *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// HealthOptions say how a switch takes what agents report.
type HealthOptions struct {
	// Fall is how many polls in a row must be unanswered before a server is
	// down (default 2). What an agent says itself counts at once.
	Fall int
	// A server that stopped being up more than Flaps times within FlapWindow
	// (3, a minute) is held down for HoldDown (30 s), doubled up to MaxHoldDown
	// (10 min) each time that it stops again meanwhile or soon after.
	Flaps                             int
	FlapWindow, HoldDown, MaxHoldDown time.Duration
	// LockShare: if more than this share (0.5) of the servers go down within
	// LockWindow (10 s), the switch locks itself.
	LockShare  float64
	LockWindow time.Duration
	// LockKeep: a locked switch keeps the buckets as they were when it locked;
	// without, it goes back to what they were before the servers went down.
	LockKeep bool
}

// State is a server's, as its agent reports it.
type State string

// States. The zero State is unknown: nothing was heard yet, or the agent does
// not know.
const (
	Unknown State = ""
	Up      State = "up"
	// Down: the service fails, or its agent does not answer.
	Down State = "down"
	// Disabled: taken out on purpose.
	Disabled State = "disabled"
)

// Report is what one poll of an agent gave.
type Report struct {
	// Answered: false, the agent could not be asked; State is not looked at.
	Answered bool
	State    State
	// Detail says why State is not Up, or what went wrong with the poll.
	Detail string
	// Ended: State is Down as nobody listens any more, which is no doubtful thing.
	Ended bool
	// Connections of the switch's VIPs that live on the server, counted at
	// time At (zero: not counted).
	Connections uint64
	At          time.Time
	// Owned has a bit for each bucket, bucket 0 the lowest of the first octet:
	// 1, a connection of it lives on the server (see wire.FaildBucket). nil or
	// of another length: not known, so that any of Connections may be of any
	// bucket.
	Owned []byte

	// cut says that the switch itself has no way to the server, and why.
	cut string
}

// Status is what a switch has and does.
type Status struct {
	Bridge  string `json:"bridge"`
	Version uint64 `json:"version"`
	// Generation is that of the table in force.
	Generation  uint32    `json:"generation"`
	Drained     bool      `json:"drained"`
	Locked      bool      `json:"locked"`
	LockReason  string    `json:"lock_reason,omitempty"`
	LockedSince time.Time `json:"locked_since,omitzero"`
	// Plain: locked, and buckets stand as if all servers were up.
	Plain  bool    `json:"plain"`
	Groups []Group `json:"groups"`
	Hosts  []Host  `json:"hosts"`
	// Corrections counts what somebody else changed and was put right, by
	// kind (see Kinds).
	Corrections map[string]uint64 `json:"corrections"`
	// Repointed counts rewrites of virtual nexthops' MACs.
	Repointed  uint64        `json:"repointed"`
	LastChange time.Duration `json:"last_change_ns"`
	// Retries and Rollbacks count changes that the kernel refused midway.
	Retries   uint64 `json:"retries"`
	Rollbacks uint64 `json:"rollbacks"`
	// Error says why the kernel is not as it should be.
	Error string `json:"error,omitempty"`
	// Chained is how many nexthops name a previous server; ChainsEnd when
	// time alone ends the next of them. Renewed are those of them that are kept
	// past their time since a previous server owns something.
	Chained int `json:"chained"`
	Renewed int `json:"renewed"`
	// Deputies is how many nexthops another server has than the table says.
	Deputies int `json:"deputies"`
	// Forgotten counts previous servers that found no place in a chain though
	// connections may be there.
	Forgotten uint64    `json:"forgotten"`
	ChainsEnd time.Time `json:"chains_end,omitzero"`
	// ByBucket: this kernel hashes as agents think it does, so that what they
	// say of single buckets is used.
	ByBucket bool `json:"by_bucket"`
	// NotReady: why a router should send nothing here yet.
	NotReady []string `json:"not_ready"`
}

// Group is one family's ECMP group.
type Group struct {
	Family   string `json:"family"` // ipv4, ipv6
	ID       uint32 `json:"id"`
	Nexthops int    `json:"nexthops"`
}

// Host is a server as the switch sees it.
type Host struct {
	Server string `json:"server"`
	Number uint16 `json:"number"`
	// State is damped: HeldDownUntil says so.
	State         State     `json:"state"`
	Detail        string    `json:"detail,omitempty"`
	Since         time.Time `json:"since,omitzero"`
	HeldDownUntil time.Time `json:"held_down_until,omitzero"`
	// Nexthops that it has now.
	Nexthops int `json:"nexthops"`
	// PreviousOf counts nexthops whose current server, by name, passes
	// packets on along a chain that names this one.
	PreviousOf  map[string]int `json:"previous_of,omitempty"`
	Port        string         `json:"port,omitempty"`
	Connections uint64         `json:"connections"`
}

// Kinds of what Corrections counts.
var Kinds = []string{"nexthop", "group", "bridge", "neighbour", "route", "announced", "sysctl"}
