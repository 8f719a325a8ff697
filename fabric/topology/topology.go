// Package topology is the picture of a fabric: routers, hosts, the links
// between them, and the selector that they share; read from a file that
// routers, hosts and the path service have in common (fabric.yaml), or learned.
//
// No kernel: what a router really does is asked by kernel/router and compared
// by doctor.
package topology

import (
	"net/netip"
	"path/filepath"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Fabric is a whole fabric.yaml, checked.
type Fabric struct {
	Selector pathsel.Config
	// KeyFile is the name of the file that the selector's key is from, as
	// written: relative to the fabric's file; empty: the key is in the file.
	KeyFile string
	Nodes   []Node
	Links   []Link
	// TLS is for daemons whose API is at an https address; its files are found from
	// the working directory (In).
	TLS TLS
	// writtenTLS is TLS as the file has it, for Write.
	writtenTLS TLS
	// Service is where the path service answers.
	Service Endpoint
}

// TLS names PEM files, with which daemons and their clients know each other: both
// sides present certificates signed by CA.
type TLS struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// In is t as a file in folder dir names it: what is relative there, from the working
// directory.
func (t TLS) In(dir string) TLS {
	for _, file := range []*string{&t.CA, &t.Cert, &t.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(dir, *file)
		}
	}
	return t
}

// Endpoint is where a daemon answers.
type Endpoint struct {
	// API: unix:/path, https://address:port, or, for the path service alone,
	// http://address:port with an address of this machine's loopback.
	API string
	// Metrics: address:port of the metrics page; empty: none.
	Metrics string
}

// Node is a router or a host.
type Node struct {
	Name string
	Host bool
	// Plain routers do not read selectors: they choose by a hash nobody knows.
	Plain bool
	// Addresses are those that packets are sent to (hosts), or that a router
	// answers traceroute with. One that stands on a link's end, too, is reached
	// by that link alone, any other by all of the node's links.
	Addresses []netip.Addr
	// TTL that packets of the node begin with; 64 where the file is silent.
	TTL uint8
	// Of a router's daemon: where it answers, and the devices whose packets it
	// forwards; empty: all Ethernet devices that the kernel forwards from.
	Endpoint
	Interfaces []string
}

// Link joins two nodes. Ends[0] and Ends[1] are its ends, in the file's order.
type Link struct {
	Ends [2]End
	// Capacity in bit/s; 0: not stated.
	Capacity int64
	// Cost for equal-cost routing, each direction; 1 where the file is silent.
	Cost int
	// Down links carry nothing, but their ports keep their numbers.
	Down bool
}

// End is where a link is plugged in.
type End struct {
	Node int // index into Fabric.Nodes
	// Port is the end's number at its router, what a selector's digit names;
	// -1: none, it cannot be selected. Hosts' ends have none.
	Port int
	// Device and Address are how the node knows this end: the interface's name
	// and the address on it. The neighbour's address is the other end's. Either
	// may be empty.
	Device  string
	Address netip.Addr
}
