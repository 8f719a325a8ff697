package lab

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/vip"
)

// RunTally is one scheme, policy, forwarding and family under the scenario.
type RunTally struct {
	Scheme     string `json:"scheme"`
	Policy     string `json:"policy"`
	Hash       string `json:"hash,omitempty"` // where the policy is hash
	Forwarding string `json:"forwarding"`
	Family     string `json:"family"`
	// Handshake is who answers SYNs (scenario offload); empty: the stack.
	Handshake string `json:"handshake,omitempty"`
	// Migrates: its VIP does (scenario migrate-scheme), and keeps all connections
	// whatever scheme it begins with.
	Migrates bool `json:"migrates,omitempty"`
	// Anew: its VIP does not migrate, and is made anew (scenario migrate-scheme).
	Anew           bool `json:"anew,omitempty"`
	Connections    int  `json:"connections"`
	Completed      int  `json:"completed"`
	Broken         int  `json:"broken"`
	LostWithServer int  `json:"lost_with_server"`
	Changes        int  `json:"changes"`
	// Survived are those of Completed that lived through a change.
	Survived int `json:"survived"`
	// Resets are RSTs on the client's wire for connections whose server
	// lived, LateResets those that came after a connection had completed.
	Resets     int `json:"resets"`
	LateResets int `json:"late_resets"`
	// Drained is how many servers drained (synflood with --drained).
	Drained *int `json:"drained,omitempty"`
	// NoTimestamps: its clients carry no cookie.
	NoTimestamps bool `json:"no_timestamps"`
	// Synflood: entries that the balancers made, that gave way to others
	// unconfirmed (full-ct: alive), and that found no place.
	Tracked      uint64 `json:"tracked"`
	FlowReplaced uint64 `json:"flow_replaced"`
	FlowFull     uint64 `json:"flow_full"`
}

// Name is the run in one word.
func (r RunTally) Name() string {
	name := r.Scheme
	switch {
	case r.row().Hops:
		name += "-" + r.Forwarding
	case r.Policy != "": // not of a switch
		name += "-" + cmp.Or(r.Hash, r.Policy)
		if r.Forwarding != string(vip.DefaultForwarding) && r.Forwarding != "" {
			name += "-" + r.Forwarding
		}
	}
	name += "-" + r.Family
	if r.Handshake != "" {
		name += "-" + r.Handshake
	}
	if r.Anew {
		name += "-anew"
	}
	if r.NoTimestamps {
		name += "-no-timestamps"
	}
	if r.Drained != nil {
		name += fmt.Sprint("-drained-", *r.Drained)
	}
	return name
}

// mustHold tells whether the scheme promises to break nothing; cheetah also
// without timestamps, where JET is its fallback.
func (r RunTally) mustHold() bool {
	return (r.row().Foresees() || r.row().Chains() || r.Migrates) && !r.Anew
}

// row is a zero one where the kernel alone forwards.
func (r RunTally) row() vip.SchemeRow { return vip.Scheme(r.Scheme).Row() }

// runs lists the runs; they differ in the VIP and share everything else, so
// that each meets exactly the same changes.
func (o RunOptions) runs() []RunTally {
	var runs []RunTally
	for _, scheme := range o.Schemes {
		for _, way := range o.allWays(scheme) {
			for _, family := range []string{"ipv4", "ipv6"} {
				if family == "ipv4" && o.IPv6 || family == "ipv6" && o.IPv4 {
					continue
				}
				way.Family, way.NoTimestamps = family, o.NoTimestamps
				runs = append(runs, way)
			}
		}
	}
	return runs
}

// allWays are the ways of a scheme by each of its forwardings. Where none is
// asked for, beamer and scenario attack have all that make tunnels.
func (o RunOptions) allWays(scheme string) (ways []RunTally) {
	forwardings := []string{cmp.Or(o.Forwarding, string(vip.DefaultForwarding))}
	if row := vip.Scheme(scheme).Row(); o.Forwarding == "" && !row.Switched && (row.Hops || o.Scenario == "attack") {
		forwardings = vip.TunnelNames()
	}
	for _, f := range forwardings {
		ways = append(ways, o.ways(scheme, f)...)
	}
	return ways
}

// ways are the policies of scheme cheetah, and the hashes of the others.
func (o RunOptions) ways(scheme, forwarding string) (ways []RunTally) {
	way := RunTally{Scheme: scheme, Policy: defaultPolicy(scheme), Forwarding: forwarding}
	switch row := way.row(); {
	case row.Switched || row.Name == "": // the kernel's groups, too
		return []RunTally{{Scheme: scheme, Forwarding: "switch"}}
	case row.Chains():
		return []RunTally{way}
	case row.Finds == vip.ByCookie:
		for _, way.Policy = range o.Policies {
			ways = append(ways, way)
		}
		return ways
	}
	hashes := o.Hashes
	if len(hashes) == 0 {
		hashes = o.defaultHashes(way.row())
	}
	for _, way.Hash = range hashes {
		ways = append(ways, way)
	}
	return ways
}

func (o RunOptions) defaultHashes(scheme vip.SchemeRow) []string {
	switch {
	case scheme.Forgets() && o.Scenario == "scaling":
		return scalingHashes
	case o.Scenario == "scaling":
		return []string{"anchor"} // as the simulator has it
	case !scheme.Foresees() || o.Scenario == "attack" || o.Scenario == "migrate-scheme":
		return []string{"table-hrw"}
	}
	return []string{"table-hrw", "anchor"}
}

// vipsOf are the runs' VIPs, named after them.
func vipsOf(runs []RunTally) []VIP {
	var vips []VIP
	for i, r := range runs {
		v := VIP{Name: r.Name(), Address: vipAddress4(i + 1), Port: httpPort, Protocol: "tcp", Scheme: r.Scheme, Policy: cmp.Or(r.Policy, "hash"), Hash: r.Hash,
			Forwarding: r.Forwarding, Standby: r.row().Foresees(), Health: "http", Handshake: r.Handshake, Anew: r.Anew}
		if r.Family == "ipv6" {
			v.Address = vipAddress6(i + 1)
		}
		vips = append(vips, v)
	}
	return vips
}

// apart divides runs over labs: those behind switches need another one than
// those behind balancers.
func apart(runs []RunTally) (groups [][]RunTally) {
	var balancers, switches []RunTally
	for _, r := range runs {
		if r.Forwarding == "switch" {
			switches = append(switches, r)
		} else {
			balancers = append(balancers, r)
		}
	}
	return slices.DeleteFunc([][]RunTally{balancers, switches}, func(g []RunTally) bool { return len(g) == 0 })
}
