package vip

import (
	"net/netip"
	"regexp"
)

// MaxWeight of a server, the least being 1: it fits the upper half of a table's
// entry with room for shares.
const MaxWeight = 1000

// MaxVIPs is how many a deployment may have.
const MaxVIPs = 2048

var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ServerName says whether a machine may be called that: files, sockets and pins are
// named after it, and it is a metric's label.
func ServerName(name string) bool { return serverName.MatchString(name) }

// NameRule is ServerName for people.
const NameRule = "use letters, digits, dots, dashes and underscores, 63 at most"

// Unicast says what is wrong with an address that no machine out there can have,
// and the remedy; nothing is wrong with others.
func Unicast(a netip.Addr) (wrong, remedy string) {
	remedy = "write the address that others reach it by"
	switch {
	case a.Is4In6():
		return "IPv4 written as IPv6", "write " + a.Unmap().String()
	case a.Zone() != "":
		return "has a zone", "write a global or unique local address"
	case a.IsUnspecified():
		return "the unspecified address", remedy
	case a.IsLoopback():
		return "a loopback address: its packets never leave the machine", remedy
	case a.IsMulticast():
		return "a multicast address", remedy
	case a.Is6() && a.IsLinkLocalUnicast():
		return "a link-local address: it is not routed", remedy
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address", remedy
	}
	return "", ""
}
