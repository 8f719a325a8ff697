package router

import "net/netip"

// Tables is all that the program goes by, as plain data: what following the
// kernel's tables gives (follow_*.go), and what the plane puts into its maps
// (Plane.Apply).
type Tables struct {
	// Devices are where packets may come in to be forwarded.
	Devices []Device
	// Hops, each ID once.
	Hops   []Hop
	Groups []Group
	// Routes, each prefix once. Where several contain an address, the longest
	// holds. What none contains is left to the kernel.
	Routes []Route
	// Ports are the port numbers of this router, in ascending order, whether
	// they work or not: a digit that names one which a group lacks is a hop
	// that is gone.
	Ports []int
}

// Device is a device, or a VLAN of one, that the kernel routes packets from.
type Device struct {
	Ifindex int    // of the device that frames come in by: never a VLAN device
	Name    string // of the device that the kernel has them from
	VLAN    uint16 // 1 to 4094; 0: untagged
	MAC     [6]byte
	// IPv4, IPv6: the kernel forwards packets of this family from here
	// (sysctls net.ipv4.conf.DEVICE.forwarding, net.ipv6.conf.all.forwarding).
	IPv4, IPv6 bool
}

// HopID says which hop it is, for as long as it is there.
type HopID struct {
	// Device is the index of the device that the kernel routes to: of a VLAN
	// device, where there is one.
	Device int
	// Gateway is whose MAC address frames get: a gateway, or the destination.
	Gateway netip.Addr
}

// Hop is a next hop: where a packet leaves, with which addresses.
type Hop struct {
	ID      HopID
	Ifindex int    // the device that frames leave by: never a VLAN device
	VLAN    uint16 // 0: untagged
	Source  [6]byte
	// MAC is the neighbour's. Zero: not known yet; packets are left to the
	// kernel, which asks for it.
	MAC  [6]byte
	MTU  int // largest packet, in bytes from the IP header on
	Port int // the port's number, what a digit names; -1: none
	// Usable: the device has a carrier, the kernel does not call the hop dead,
	// and the neighbour answers. Others stand in their groups and get nothing.
	Usable  bool
	Problem string // why it is not usable; empty: it is
	// Redirect: the device takes frames from XDP.
	Redirect bool
}

// Group is a set of equal next hops, in the order of their port numbers, those
// without one last: at least one, at most MaxMembers.
type Group []Member

// Member is a hop in a group.
type Member struct {
	Hop    HopID
	Weight int // 1 to 65,536, as the kernel has it
}

// MaxMembers is the largest group.
const MaxMembers = 64

// RouteKind is what is done with packets to a prefix.
type RouteKind uint8

// The kinds of routes. All but Forward leave packets to the kernel.
const (
	Forward     RouteKind = iota // to a hop of the group
	Local                        // the machine itself, broadcast, multicast, anycast
	Unreachable                  // blackhole, unreachable, prohibit, throw
	Connected                    // a network on a device, but for addresses that have routes of their own: the kernel has to ask for the neighbour
	Beyond                       // what the program does not do: a tunnel, a device without Ethernet, an encapsulation, more than MaxMembers hops
)

// Route is a destination.
type Route struct {
	Prefix netip.Prefix
	Kind   RouteKind
	Group  int // index into Tables.Groups, of kind Forward
}
