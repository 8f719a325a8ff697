// Package config reads fairlead.yaml, the one file that describes a
// deployment, and says what is wrong with it: where, and what would be right.
// It decides nothing; controller turns a Config into an assignment.
package config

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/vip"
)

// Config is fairlead.yaml. The same file serves every daemon; each finds
// itself in it by name.
type Config struct {
	// Secret is 32 bytes in hex from which the first epoch's key is derived;
	// SecretFile names a file that holds it. One of them is needed where a
	// VIP's scheme is cheetah.
	Secret     string `yaml:"secret"`
	SecretFile string `yaml:"secret_file"`
	// RotateKeys is how old the epoch that stamps gets before the controller that
	// leads rotates keys; 0: nobody does but people.
	RotateKeys time.Duration `yaml:"rotate_keys"`
	// TLS authenticates daemons to each other where an api is https. What the file names
	// relative to its folder is relative to the working directory here.
	TLS       TLS        `yaml:"tls"`
	Balancers []Balancer `yaml:"balancers"`
	Servers   []Server   `yaml:"servers"`
	// Controllers are machines that make changes, and, one or three of them, keep
	// what the deployment agreed on, unless Store does that. Neither, and one
	// balancer or switch: a controller runs beside that (Implied).
	Controllers []Controller `yaml:"controllers"`
	Store       Store        `yaml:"store"`
	Switches    []Switch     `yaml:"switches"`
	VIPs        []VIP        `yaml:"vips"`
	// BGP is what those that announce the VIPs' addresses have in common.
	BGP BGP `yaml:"bgp"`
	// TunnelSources are prefixes that servers take tunnels from beside the
	// balancers' sources.
	TunnelSources []netip.Prefix `yaml:"tunnel_sources"`
	Limits        Limits         `yaml:"limits"`
	// Fabric names the fabric's file (fabric.yaml: fabric/topology), relative to
	// the folder of this one. Needed where a VIP is steered; agents then answer
	// the probes that tell good paths.
	Fabric string `yaml:"fabric"`
	// Metrics is the address of the Prometheus endpoint (default
	// 127.0.0.1:7470; "" in a daemon's own entry switches it off).
	Metrics string `yaml:"metrics"`

	// origin knows where in the file each field stood; nil for a Config made
	// by hand.
	origin *yamlfile.Document
	// secret is Secret or SecretFile's content, decoded.
	secret  []byte
	implied bool
	// secretive: the text that Desired read has a secret of its own.
	secretive bool
	// looks: it is for whoever looks, and needs no secret.
	looks bool
	// compared is how much near has cost so far.
	compared int
	// pool is what check looks servers up in; nil when it is over.
	pool *pool
}

// TLS is the same in both files.
type TLS = topology.TLS

// Balancer is a machine that runs `fairlead lb`.
type Balancer struct {
	Name string `yaml:"name"`
	// API is where the daemon listens: unix:/path (default
	// unix:/run/fairlead/NAME.sock) or https://address:port.
	API string `yaml:"api"`
	// Interfaces the XDP program is attached to.
	Interfaces []string `yaml:"interfaces"`
	// Source is the tunnels' outer source, a prefix whose host bits carry
	// the connection's hash, so that receivers' RSS spreads (ipip). A single
	// address is a /32. Default: the first interface's address.
	Source  netip.Prefix `yaml:"source"`
	Source6 netip.Prefix `yaml:"source6"`
	// GUEChecksum computes the UDP checksum of GUE over IPv6 (from the inner
	// checksum, without reading the payload) instead of sending zero, for
	// networks that drop what RFC 6935 allows.
	GUEChecksum bool     `yaml:"gue_checksum"`
	Metrics     *string  `yaml:"metrics"`
	BGP         *Speaker `yaml:"bgp"` // nil: it announces nothing by BGP
	L2          *L2      `yaml:"l2"`  // nil: it holds no address on its Ethernet
	// Tier 2: it stands between balancers and servers, for the VIPs with tiers, at
	// Address. Else 0 or 1.
	Tier    int        `yaml:"tier"`
	Address netip.Addr `yaml:"address"`
	// Drain: tier two's gets no new connections.
	Drain bool `yaml:"drain"`
}

// Server is a machine behind VIPs; with an agent it runs `fairlead host`.
type Server struct {
	Name    string     `yaml:"name"`
	Address netip.Addr `yaml:"address"`
	// API is where the agent listens, as for a balancer. "none": there is no
	// agent, so no TCP VIP of scheme cheetah may use the server.
	API string `yaml:"api"`
	// Interfaces that tunnels arrive on and answers leave by. Default: the
	// interface that holds Address.
	Interfaces []string `yaml:"interfaces"`
	Metrics    *string  `yaml:"metrics"`
}

// Switch is a machine that runs `fairlead switch`, for VIPs of scheme faild.
type Switch struct {
	Name    string  `yaml:"name"`
	API     string  `yaml:"api"` // as for a balancer
	Metrics *string `yaml:"metrics"`
	// Bridge is the device that the servers' segment is on (default br0).
	Bridge string `yaml:"bridge"`
	// Ports is the bridge's port for each server. Default: where the bridge
	// has learned the server's own MAC address.
	Ports map[string]string `yaml:"ports"`
	// AnnounceTable is the routing table that holds the VIPs' routes a second
	// time, for a routing daemon to announce; a drain takes them out there and
	// nowhere else. Default 177.
	AnnounceTable int `yaml:"announce_table"`
	// LockPercent and LockWindow: when more than this many of the servers in a
	// hundred go down within the window, the switch locks itself (default 50
	// and 10s; 100: never).
	LockPercent int           `yaml:"lock_percent"`
	LockWindow  time.Duration `yaml:"lock_window"`
	// Flaps is how often within a minute a server may stop being up before it is
	// held down, longer each time, 1 to 60 (default 3).
	Flaps int      `yaml:"flaps"`
	BGP   *Speaker `yaml:"bgp"` // as of a balancer
}

// VIP is a served address, port and protocol with its four choices. What its
// entry may leave out though zero or false says something stands here, and in
// Settings once defaults are filled in.
type VIP struct {
	vip.Settings
	Port     Port  `yaml:"port"` // 1-65535 or "all"
	ICMPEcho *bool `yaml:"icmp_echo"`
	MSSClamp *bool `yaml:"mss_clamp"`
	Horizon  *int  `yaml:"horizon"`
	Share    *bool `yaml:"share"`
	// Buckets of schemes beamer and faild, fixed for the VIP's life: 1 to
	// 8,388,608 (default 4096), faild to 8,191 (default 256). Else 0.
	Buckets int      `yaml:"buckets"`
	Servers []Member `yaml:"servers"`
}

// Controller is a machine that runs `fairlead controller`: it makes changes, and is a
// member of the store, unless that is somebody else's.
type Controller struct {
	Name string `yaml:"name"`
	// API is where it answers operators: unix:/path (default
	// unix:/run/fairlead/NAME-api.sock) or https://address:port.
	API string `yaml:"api"`
	// Store is where daemons reach its store: https://address:port, or, where
	// all are on one machine, unix:/path (default unix:/run/fairlead/NAME-store.sock).
	Store string `yaml:"store"`
	// Peer is where the other controllers reach it: https://address:port. Needed
	// where there are several.
	Peer    string  `yaml:"peer"`
	Metrics *string `yaml:"metrics"`
}

// Store is an etcd cluster that somebody else runs; controllers keep none then.
type Store struct {
	// Etcd lists its members: https://address:port.
	Etcd []string `yaml:"etcd"`
	// Prefix begins the keys of this deployment (default /fairlead/).
	Prefix string `yaml:"prefix"`
}

// Implied says whether the only controller is one that the file does not name: it
// runs beside the deployment's only balancer or switch, as NAME-controller.
func (c *Config) Implied() bool { return c.implied }

// StoreEndpoints are where the store answers.
func (c *Config) StoreEndpoints() []string {
	if len(c.Store.Etcd) > 0 {
		return slices.Clone(c.Store.Etcd)
	}
	var endpoints []string
	for i := range c.Controllers {
		endpoints = append(endpoints, c.Controllers[i].Store)
	}
	return endpoints
}

// Port is a port number; 0 stands for all ports.
type Port uint16

func (p *Port) UnmarshalText(text []byte) error {
	if string(text) == "all" {
		*p = 0
		return nil
	}
	u, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil || u == 0 {
		return errors.New("not a port")
	}
	*p = Port(u)
	return nil
}

// Member is a server in a VIP's pool. In YAML a plain name is a member with
// weight 1.
type Member struct {
	Name   string `yaml:"name"`
	Weight int    `yaml:"weight"` // 1 (default) to 1000
	Drain  bool   `yaml:"drain"`  // no new connections
	// Standby: no connections yet; those that it would get are tracked, so
	// that none moves when it is put to work.
	Standby bool `yaml:"standby"`
}

func (m *Member) UnmarshalText(text []byte) error {
	*m = Member{Name: string(text)}
	return nil
}

// Problems are what is wrong with a file.
type Problems = yamlfile.Problems
