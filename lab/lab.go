// Package lab builds a small network in network namespaces of one machine
// and runs Fairlead in it with real clients and servers:
//
//	                       ┌─ lb1 ─┐
//	client ──── router ────┤ lb2   ├── one Ethernet (the router's bridge)
//	            ECMP over  │ …     │
//	            balancers  ├─ server1 … serverN, answering who they are
//	                       └───────┘
//
// The router spreads a VIP's packets over the balancers (ECMP); a balancer
// forwards to a server; the server answers the client by the router directly.
// Scheme faild has switches in place of the balancers (switches.go).
// Everything a lab makes carries its name: namespaces fl-NAME-…, a folder
// under /run/fairlead/lab, daemons' names and so their pins. So taking it
// down needs no memory, and works after a kill -9 of whoever made it.
package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/vip"
)

// Root is the folder that holds a folder for each lab.
const Root = "/run/fairlead/lab"

// killWait bounds the wait for killed processes to be gone.
const killWait = 10 * time.Second

// validName has no dash: names of two labs can never be prefixes of each
// other's objects. Interfaces are named within namespaces, so the length is
// bounded only by unix socket paths (108 bytes).
var validName = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)

// NameRule is validName for people.
const NameRule = "1 to 20 lower-case letters and digits, starting with a letter"

// Limits of a lab's size: what one machine of two processors still runs.
const (
	MaxServers = 32
	MaxLBs     = 10
)

// Options say what `lab up` builds. The zero value of a field that has a
// default is replaced by it.
type Options struct {
	Name    string `json:"name"`    // default lab
	Servers int    `json:"servers"` // 1 to MaxServers, default 3
	LBs     int    `json:"lbs"`     // balancers (scheme faild: switches), 1 to MaxLBs, default 2
	Scheme  string `json:"scheme"`  // default cheetah
	Policy  string `json:"policy"`  // default rr, hash for scheme stateless
	// Hash is the consistent hash of all VIPs; empty: the configuration's
	// default.
	Hash string `json:"hash,omitempty"`
	// Standby is how many further servers, numbered after the others, wait in
	// every VIP's horizon: fairlead undrain puts them to work.
	Standby    int           `json:"standby,omitempty"`
	WarmUp     time.Duration `json:"warm_up,omitempty"` // of the standard VIPs; 0: the configuration's default
	Flows      int           `json:"flows"`             // entries of a balancer's flow table, default 65536
	Forwarding string        `json:"forwarding"`        // default ipip
	// IPv6 gives the servers IPv6 addresses in the configuration (tunnels
	// over IPv6) and makes the IPv6 VIP the one that is printed. Both
	// families are always addressed and served.
	IPv6 bool `json:"ipv6"`
	// Mixed makes the servers differ: every second one has an IPv6
	// address, so that each VIP's packets go through tunnels of both, and of every four two have tcp_timestamps=2 instead of 1.
	Mixed bool `json:"mixed"`
	// MTU of the balancers' and servers' Ethernet: 1500 (MSS clamping makes
	// room for the tunnel) or more. Default 1600: room for the tunnel, so
	// that full-size UDP works too.
	MTU int `json:"mtu"`
	// NoTimestamps switches TCP timestamps off at the client.
	NoTimestamps bool `json:"no_timestamps"`
	// ActiveServers and ActiveLBs are how many are in the pools and behind
	// the router's ECMP at the start (default all); the rest is built and
	// waits to be added.
	ActiveServers int `json:"active_servers"`
	ActiveLBs     int `json:"active_lbs"`
	// SecondTier are the numbers of the balancers that are of tier two. Those of them that
	// wait are drained.
	SecondTier []int `json:"second_tier,omitempty"`
	// VIPs replaces the standard set (vips.go).
	VIPs []VIP `json:"vips"`
	// Plain makes the router send the VIPs straight to server1, without
	// balancers and agents: the control run that shows that what breaks is
	// not the lab itself.
	Plain bool `json:"plain"`
	// Exposed puts the daemons' APIs on the network, where anybody can open
	// connections to them, and lets each daemon have few descriptors.
	Exposed bool `json:"exposed,omitempty"`
	// Controllers keep the store: 1 (the default), or 3 where the lab is exposed.
	Controllers int `json:"controllers,omitempty"`
	// Disks gives each daemon and controller a small disk of its own for its state.
	Disks bool `json:"disks,omitempty"`
	// Remote has the controllers' APIs at their machines' addresses, for users with
	// certificates (UserCertificate), instead of at sockets; where the lab is exposed.
	Remote bool `json:"remote,omitempty"`
	// Clocks gives each controller a wall clock of its own, for StepClock.
	Clocks bool `json:"clocks,omitempty"`
	// BGP has the balancers, or switches, announce the VIPs to the router, which has
	// no routes to them of its own, and has nobody who listens either.
	BGP bool `json:"bgp,omitempty"`
	// L2 puts the client on the balancers' Ethernet, where they hold the VIPs'
	// addresses.
	L2 bool `json:"l2,omitempty"`
	// Unguarded starts the daemons without what holds attackers off.
	Unguarded bool `json:"unguarded,omitempty"`
	// Before: the lab begins as one of the time before there was a store: its file names
	// no controllers until AddControllers.
	Before bool `json:"before,omitempty"`
	// Program is the fairlead binary that runs in the machines; From, if not empty, the
	// one that daemons and controllers begin with, until Renew.
	Program string `json:"program"`
	From    string `json:"from,omitempty"`
}

// Lab is a lab that exists, at least in part.
type Lab struct {
	Options
	Kernel string `json:"kernel"`
	// Owner is the process that takes the lab down when it ends (lab run);
	// 0 where the lab is left running. OwnerStart tells it from another
	// process with its number.
	Owner      int    `json:"owner"`
	OwnerStart string `json:"owner_start"`

	secret  string          // the deployment's
	renewed map[string]bool // processes that run Program by now
	clocks  *sync.Map       // of processes that it started, by their names; nil without Clocks
}

func (o *Options) fill() error {
	o.Name = cmp.Or(o.Name, "lab")
	o.Scheme = cmp.Or(o.Scheme, "cheetah")
	o.Policy = cmp.Or(o.Policy, defaultPolicy(o.Scheme))
	o.Forwarding = cmp.Or(o.Forwarding, "ipip")
	o.Servers = cmp.Or(o.Servers, 3)
	o.LBs = cmp.Or(o.LBs, 2)
	o.MTU = cmp.Or(o.MTU, 1600)
	o.Flows = cmp.Or(o.Flows, 65536)
	o.Controllers = cmp.Or(o.Controllers, 1)
	if o.Standby < 0 || o.Standby > MaxServers-o.Servers {
		return fmt.Errorf("%d standby servers: must be 0 to %d (%d servers in all)", o.Standby, MaxServers-o.Servers, MaxServers)
	}
	if o.Standby > 0 {
		o.ActiveServers, o.Servers = o.Servers, o.Servers+o.Standby
	}
	o.ActiveServers = cmp.Or(o.ActiveServers, o.Servers)
	o.ActiveLBs = cmp.Or(o.ActiveLBs, o.LBs)
	if o.VIPs == nil {
		o.VIPs = standardVIPs(*o)
	}
	for _, check := range []choice{
		{"scheme", []string{o.Scheme}, vip.SchemeNames()}, {"policy", []string{o.Policy}, vip.PolicyNames()},
		{"forwarding", []string{o.Forwarding}, vip.ForwardingNames()},
	} {
		if err := check.check(); err != nil {
			return err
		}
	}
	if err := uniform(o.VIPs); err != nil {
		return err
	}
	if o.Hash != "" {
		if err := (choice{"hash", []string{o.Hash}, kinds()}).check(); err != nil {
			return err
		}
		if err := suits(o.Scheme, o.Hash); err != nil {
			return err
		}
	}
	if err := carriesHops(o.Scheme, o.Forwarding); err != nil {
		return err
	}
	switch scheme := vip.Scheme(o.Scheme); {
	case scheme.Row().Chains() && o.WarmUp != 0:
		return fmt.Errorf("--warm-up %v: scheme %s holds no connection where it was; leave --warm-up out", o.WarmUp, o.Scheme)
	case !slices.Contains(scheme.Policies(vip.TCP), vip.Policy(o.Policy)):
		return fmt.Errorf("--policy %s: scheme %s places by its hash; leave --policy out, or take --scheme cheetah", o.Policy, o.Scheme)
	case !validName.MatchString(o.Name):
		return fmt.Errorf("lab name %q: must be %s", o.Name, NameRule)
	case o.Servers < 1 || o.Servers > MaxServers:
		return fmt.Errorf("%d servers: must be 1 to %d", o.Servers, MaxServers)
	case o.LBs < 1 || o.LBs > MaxLBs:
		return fmt.Errorf("%d balancers: must be 1 to %d", o.LBs, MaxLBs)
	case o.ActiveServers < 1 || o.ActiveServers > o.Servers || o.ActiveLBs < 1 || o.ActiveLBs > o.LBs:
		return errors.New("active servers and balancers must be 1 to the number there are")
	case o.MTU < 1500 || o.MTU > 3000:
		return fmt.Errorf("MTU %d: must be 1500 to 3000", o.MTU)
	}
	return o.checkControllers()
}

// defaultPolicy is the policy where none is asked for.
func defaultPolicy(scheme string) string { return string(vip.Scheme(scheme).Policies(vip.TCP)[0]) }

// Names of what a lab makes.

func namespacePrefix(lab string) string        { return "fl-" + lab + "-" }
func (l *Lab) namespace(machine string) string { return namespacePrefix(l.Name) + machine }

// Dir is the lab's folder: configuration, logs, sockets, state.
func (l *Lab) Dir() string { return filepath.Join(Root, l.Name) }

func (l *Lab) path(name string) string { return filepath.Join(l.Dir(), name) }

// ConfigPath is the fairlead.yaml of the lab.
func (l *Lab) ConfigPath() string { return l.path("fairlead.yaml") }

// daemonName is a balancer's or server's name in the configuration. It is
// the machine's name with the lab's before it, because pins and sockets
// carry it and labs must not meet there.
func (l *Lab) daemonName(machine string) string { return l.Name + "-" + machine }

// machineName undoes daemonName.
func (l *Lab) machineName(daemon string) string { return strings.TrimPrefix(daemon, l.Name+"-") }

// Machines lists the lab's namespaces by their short names.
func (l *Lab) Machines() []string {
	machines := []string{"client", "router"}
	return append(append(machines, l.fronts()...), l.servers()...)
}

func (l *Lab) servers() []string { return numbered("server", l.Servers) }

// fronts are the machines between router and servers, all of one kind:
// balancers or switches.
func (l *Lab) fronts() []string { return numbered(l.frontKind(), l.LBs) }

// frontKind is the kind of the lab's fronts: also the verb that runs them.
func (l *Lab) frontKind() string {
	if l.faild() {
		return "switch"
	}
	return "lb"
}

func (l *Lab) front(n int) string { return fmt.Sprint(l.frontKind(), n) }

func (l *Lab) isFront(machine string) bool { return slices.Contains(l.fronts(), machine) }

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i+1)
	}
	return names
}

// Load reads a lab that was made before.
func Load(name string) (*Lab, error) {
	data, err := os.ReadFile(filepath.Join(Root, name, "lab.json"))
	if errors.Is(err, os.ErrNotExist) {
		if !validName.MatchString(name) {
			return nil, fmt.Errorf("lab name %q: must be %s", name, NameRule)
		}
		text := fmt.Sprintf("there is no lab %s; start one with: fairlead lab up", name)
		if name != "lab" {
			text += " --lab " + name
		}
		if running := List(); len(running) > 0 {
			text += "; there are: " + strings.Join(running, ", ")
		}
		return nil, errors.New(text)
	}
	if err != nil {
		return nil, err
	}
	l := new(Lab)
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("%s: %w; take it down with: fairlead lab down %s", filepath.Join(Root, name, "lab.json"), err, name)
	}
	return l, nil
}

// List names the labs that exist on this machine, whole or in part.
func List() []string {
	entries, _ := os.ReadDir(Root)
	var names []string
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// save writes lab.json in one step.
func (l *Lab) save() error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	temporary := l.path(".lab.json")
	if err := os.WriteFile(temporary, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, l.path("lab.json"))
}
