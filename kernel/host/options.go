// Package host is the server's agent: it loads, attaches and fills the
// programs of bpf/host, which take the tunnels off what the balancers send,
// undo the cookie in TSecr before the stack sees it and stamp it into TSval
// on the way out. What is loaded is pinned: the agent can be killed, and one
// that starts later adopts it.
//
// An agent's life:
//
//	Open ──▶ SetClock (once a boot) ──▶ Apply … Apply ──▶ Close
//	  │                                                     │
//	  └──────────────── adopts what is pinned ◀─────────────┘   Unload ends it
package host

import (
	"cmp"
	"fmt"

	"github.com/fairlead/fairlead/kernel"
)

// Options are fixed while an agent is open.
type Options struct {
	// Name is the daemon's own name; Server the server's name in the
	// assignment (default Name).
	Name, Server string
	// PinDir is where maps, programs and links are pinned (default
	// /sys/fs/bpf/fairlead/NAME).
	PinDir string
	// Interfaces on which packets for the VIPs arrive and leave.
	Interfaces []string
	// Unguarded leaves out what holds attackers off: for the laboratory, which
	// shows with it that an attack is one (docs/security.md).
	Unguarded bool
	// classic attaches the egress program as a classifier of the clsact
	// queueing discipline, as on kernels before 6.6, even where tcx is there.
	// Such an attachment is not pinned: it stays by itself.
	classic bool
}

func (o *Options) validate() error {
	if o.Name == "" {
		return fmt.Errorf("the agent has no name; it is the name of its folder in bpffs")
	}
	o.Server = cmp.Or(o.Server, o.Name)
	o.PinDir = cmp.Or(o.PinDir, kernel.Dir(o.Name))
	if len(o.Interfaces) == 0 {
		return fmt.Errorf("server %s: no interfaces; name those on which packets for its VIPs arrive", o.Server)
	}
	return nil
}
