package tables

import (
	"fmt"

	"github.com/fairlead/fairlead/controller"
	choices "github.com/fairlead/fairlead/vip"
)

// Which tunnels are taken (bpf/host/tunnel.h): of the form that a VIP's
// balancers send, or sent a version ago, and from sources that the assignment
// knows.

// Refuses is the flag of an entry that takes no tunnels of a forwarding:
// FL_HOST_VIP_REFUSES.
func Refuses(f choices.Forwarding) uint16 {
	n := f.Row().Number
	if n >= 3 {
		n += 2
	}
	return 1 << n
}

// NoTunnel takes none.
var NoTunnel = func() (all uint16) {
	for _, r := range choices.Forwardings() {
		if r.Tunnel {
			all |= Refuses(r.Name)
		}
	}
	return all
}()

// refusals says which tunnels no balancer sends for a VIP.
func refusals(vip *controller.VIP) uint16 {
	if vip.Scheme.Row().Switched {
		return NoTunnel
	}
	return NoTunnel &^ Refuses(vip.Forwarding)
}

// refuse notes what is refused for a VIP's service, and for what its address
// has without ports: ICMP for all services there, fragments for those that want
// them.
func (t *HostTable) refuse(service Key, vip *controller.VIP) {
	no := refusals(vip)
	t.Refused[service] = no
	fragments := NoTunnel
	if vip.Fragments == choices.Addresses {
		fragments = no
	}
	icmp, fragment := sharedKeys(service)
	for k, no := range map[Key]uint16{icmp: no, fragment: fragments} {
		if before, ok := t.Refused[k]; ok {
			no &= before
		}
		t.Refused[k] = no
	}
}

// close sets the flags of what is refused now and was in the version before:
// while a version is handed out, balancers still go by the one before. Every
// daemon has it by the time that the next one comes.
func (t *HostTable) close(before map[Key]uint16) {
	for k, v := range t.Entries {
		no := t.Refused[k]
		if was, ok := before[k]; ok {
			no &= was
		}
		v.Flags |= no
		t.Entries[k] = v
	}
}

// knownSources says of which address families (by whether it is IPv6) an
// assignment knows where all tunnels come from. One that it does not name has a
// balancer without a source, or the assignment is of an older fairlead; a list
// that is too long cannot be held against packets.
func knownSources(as *controller.Assignment) map[bool]bool {
	known := map[bool]bool{}
	if _, err := HostSources(as.Sources); err != nil {
		return known
	}
	for _, p := range as.Sources {
		known[p.Addr().Is6()] = true
	}
	return known
}

// OpenSources are the warnings about tunnels that are taken from anybody: of a
// family that servers are reached by, as open says.
func OpenSources(open map[bool]bool, why error) (warnings []string) {
	for _, six := range []bool{false, true} {
		if !open[six] {
			continue
		}
		family, key := "IPv4", "source"
		if six {
			family, key = "IPv6", "source6"
		}
		reason := fmt.Sprintf("the assignment does not say where every balancer's come from; write %s in every balancer's entry, then fairlead apply", key)
		if why != nil {
			reason = why.Error()
		}
		warnings = append(warnings, fmt.Sprintf("tunnels over %s are taken from anybody: %s", family, reason))
	}
	return warnings
}
