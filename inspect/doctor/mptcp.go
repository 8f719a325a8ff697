package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// FindHost is the index of the fabric's host called name, or without a name of
// the one whose address this machine has; -1: there is none.
func FindHost(f *topology.Fabric, name string) int {
	if name == "" {
		return mptcp.ThisHost(f)
	}
	return slices.IndexFunc(f.Nodes, func(n topology.Node) bool { return n.Host && n.Name == name })
}

// MPTCP looks at what `fairlead mptcp` needs on a host of the fabric, and what
// its peers need of it.
func MPTCP(f *topology.Fabric, host int) []Check {
	r := &report{}
	if r.capable(netAdmin) {
		r.ok(privileges, "those that managing paths needs")
	}
	r.hostAddresses(f, host)
	n, err := paths.New(f)
	if err != nil {
		r.fail("fabric", err.Error(), "correct fabric.yaml")
		return r.checks
	}
	i, err := mptcp.Inspect(n)
	switch {
	case errors.Is(err, mptcp.ErrNoMPTCP):
		r.fail("mptcp", err.Error(), "boot a kernel of Linux 5.19 or later that has CONFIG_MPTCP and CONFIG_MPTCP_IPV6")
		return r.checks
	case err != nil:
		r.warn("mptcp", "cannot be looked at: "+err.Error(), "run as root (sudo)")
		return r.checks
	case !i.Enabled:
		r.fail("mptcp", "net.mptcp.enabled is 0: programs that ask for Multipath TCP get TCP", "sysctl -w net.mptcp.enabled=1")
	default:
		r.ok("mptcp", "the kernel has it, and it is enabled")
	}
	r.pathManager(i)
	r.subflows(i)
	return r.checks
}

// hostAddresses: subflows leave from the addresses that the file gives the
// host, and by fields that can be chosen.
func (r *report) hostAddresses(f *topology.Fabric, host int) {
	n, own := &f.Nodes[host], mptcp.OwnAddresses()
	check := "host " + n.Name
	var missing []string
	six := false
	for _, a := range n.Addresses {
		six = six || a.Is6()
		if !slices.Contains(own, a) {
			missing = append(missing, a.String())
		}
	}
	switch {
	case len(missing) > 0:
		r.fail(check, "does not have "+strings.Join(missing, ", ")+", which fabric.yaml gives it: no subflow can leave from there", "correct its addresses in fabric.yaml, or ip address add them")
	case six && f.Selector.IPv6 == pathsel.FlowLabel:
		r.warn(check, "the fabric's selector.ipv6 is flow-label: the kernel sets the labels of TCP itself, so connections of IPv6 stay as they are", "take ports or source-port for IPv6, in all routers' fabric.yaml, too")
	default:
		r.ok(check, "has all addresses that fabric.yaml gives it")
	}
}

// pathManager: who opens subflows, and how many of peers this host takes.
func (r *report) pathManager(i *mptcp.Inspection) {
	if i.Programs {
		r.ok("path manager", "programs' (userspace): fairlead mptcp, while it runs; peers may open as many subflows as they like")
		return
	}
	remedy := "run fairlead mptcp (packaging/fairlead-mptcp.service)"
	if i.Limit < mptcp.MaxSubflows {
		r.warn("path manager", fmt.Sprintf("the kernel's: connections that begin now get no chosen subflows, and of peers it takes %d beside the first", i.Limit),
			remedy+fmt.Sprintf("; on a host that only answers, ip mptcp limits set subflows %d", mptcp.MaxSubflows))
		return
	}
	r.warn("path manager", fmt.Sprintf("the kernel's: connections that begin now get no chosen subflows; of peers it takes %d, as many as there may be", i.Limit), remedy+" if this host opens connections")
}

// subflows: what can be seen of the peers' limits is what came of connections.
func (r *report) subflows(i *mptcp.Inspection) {
	if !i.Programs {
		return // it was said why
	}
	if len(i.Few) == 0 {
		r.ok("subflows", "no connection of this host has fewer than there are disjoint paths")
		return
	}
	few := i.Few[0]
	r.warn("subflows", fmt.Sprintf("the connection to %s has %d, of %d disjoint paths; so it is with %d connections of this host", few.Remote, few.Subflows, few.Paths, len(i.Few)),
		fmt.Sprintf("unless --subflows asks for no more: run fairlead mptcp here; at the peer, too, or there ip mptcp limits set subflows %d; and see what its log says", mptcp.MaxSubflows))
}
