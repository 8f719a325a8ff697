package config

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/vip"
)

// Who announces the VIPs' addresses to which routers: BGP in the balancers' and
// switches' daemons (docs/bgp.md).

// BGP is what all that announce have in common.
type BGP struct {
	LocalAS int `yaml:"local_as"`
	// HoldTime is after how long of silence a neighbour drops the routes, in
	// seconds, 3s (the least that BGP knows) to 18h; default 9s.
	HoldTime time.Duration `yaml:"hold_time"`
	// GracefulRestart is how long a neighbour keeps the routes of a daemon that
	// died, whose packets go on without it; in seconds to 4095s, default 30s, 0s: not.
	GracefulRestart time.Duration `yaml:"graceful_restart"`
	// DrainTime is how long a daemon that was told to stop waits between withdrawing
	// its routes and letting go, 0s to 10m, default 1s.
	DrainTime time.Duration `yaml:"drain_time"`
	// Communities and MED of all routes; a VIP's own are added, and go before it.
	Communities []string `yaml:"communities"`
	MED         int      `yaml:"med"`
	// PasswordFile holds the TCP MD5 password (RFC 2385) of neighbours that have
	// none of their own, relative to the folder of this file.
	PasswordFile string `yaml:"password_file"`
}

// Speaker is what one of them has for itself.
type Speaker struct {
	RouterID   netip.Addr  `yaml:"router_id"` // an IPv4 address of the machine's own
	Neighbours []Neighbour `yaml:"neighbours"`
}

// Neighbour is a router that a daemon announces to. It gets the addresses of its
// own family.
type Neighbour struct {
	Address      netip.Addr `yaml:"address"`
	AS           int        `yaml:"as"`
	PasswordFile string     `yaml:"password_file"`
	// Multihop is how many routers away one of another AS may be, as the TTL of what
	// is sent to it, 2 to 255; 0: it is on a link of this machine.
	Multihop int `yaml:"multihop"`
	// BFD is the interval of its packets, 50ms to 10s, of which three may be lost
	// (RFC 5881); 0s: none.
	BFD time.Duration `yaml:"bfd"`
}

// Defaults and bounds of BGP's times.
const (
	DefaultHoldTime        = 9 * time.Second
	DefaultGracefulRestart = 30 * time.Second
	DefaultDrainTime       = time.Second

	minHoldTime        = 3 * time.Second
	maxHoldTime        = math.MaxUint16 * time.Second
	maxGracefulRestart = (1<<12 - 1) * time.Second
	maxDrainTime       = 10 * time.Minute
	minBFD, maxBFD     = 50 * time.Millisecond, 10 * time.Second
)

// maxPassword is what the kernel takes as a key of TCP MD5, in bytes.
const maxPassword = 80

// Speaker is what a daemon announces with; nil: it does not.
func (s Self) Speaker() *Speaker {
	switch {
	case s.Balancer != nil:
		return s.Balancer.BGP
	case s.Switch != nil:
		return s.Switch.BGP
	}
	return nil
}

// fill puts the times where the file says none.
func (b *BGP) fill(at positions) {
	for _, f := range []struct {
		key   string
		value *time.Duration
		usual time.Duration
	}{{"hold_time", &b.HoldTime, DefaultHoldTime}, {"graceful_restart", &b.GracefulRestart, DefaultGracefulRestart}, {"drain_time", &b.DrainTime, DefaultDrainTime}} {
		if at["bgp."+f.key] == nil {
			*f.value = cmp.Or(*f.value, f.usual)
		}
	}
}

// speakers are all, by the path of their entry.
func (c *Config) speakers(each func(path string, s *Speaker)) {
	for i := range c.Balancers {
		if s := c.Balancers[i].BGP; s != nil {
			each(fmt.Sprintf("balancers[%d].bgp", i), s)
		}
	}
	for i := range c.Switches {
		if s := c.Switches[i].BGP; s != nil {
			each(fmt.Sprintf("switches[%d].bgp", i), s)
		}
	}
}

// placePasswords makes the passwords' files those of the folder dir.
func (c *Config) placePasswords(dir string) {
	place := func(file *string) {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(dir, *file)
		}
	}
	place(&c.BGP.PasswordFile)
	c.speakers(func(_ string, s *Speaker) {
		for i := range s.Neighbours {
			place(&s.Neighbours[i].PasswordFile)
		}
	})
}

func (c *Config) checkBGP() {
	first, ids := "", map[netip.Addr]string{}
	c.speakers(func(path string, s *Speaker) {
		first = cmp.Or(first, path)
		switch other, dup := ids[s.RouterID]; {
		case !s.RouterID.IsValid():
			c.problem(path+".router_id", "", "missing", "write an IPv4 address of this machine's own")
		case !s.RouterID.Is4() || s.RouterID.IsUnspecified() || s.RouterID.IsMulticast() || s.RouterID.IsLoopback():
			c.problem(path+".router_id", s.RouterID.String(), "not an IPv4 address of a machine", "write one of this machine's own, also where its neighbours are IPv6")
		case dup:
			c.problem(path+".router_id", s.RouterID.String(), "already that of "+other, "give each an address of its own")
		default:
			ids[s.RouterID] = path
		}
		if len(s.Neighbours) == 0 {
			c.problem(path+".neighbours", "", "missing", "list the routers to announce to, such as {address: 10.0.0.254, as: 65000}")
		}
		for i := range s.Neighbours {
			c.checkNeighbour(fmt.Sprintf("%s.neighbours[%d]", path, i), s, i)
		}
	})
	c.checkRoutes(first)
	b := &c.BGP
	if first == "" {
		if c.origin.At["bgp"] != nil {
			c.problem("bgp", "", "no balancer and no switch has bgp, so nobody announces", "write bgp: {router_id: …, neighbours: […]} in their entries, or remove it")
		}
		return
	}
	if b.LocalAS == 0 && c.origin.At["bgp.local_as"] == nil {
		c.problem("bgp.local_as", "", "missing, and "+first+" announces", "write the number of this deployment's AS; 64512 to 65534 are for private use")
	} else {
		c.checkAS("bgp.local_as", b.LocalAS)
	}
	seconds := func(key string, d, least, most time.Duration, why string) {
		if d < least || d > most || d%time.Second != 0 {
			c.problem("bgp."+key, d, "out of range, or no whole seconds", fmt.Sprintf("write %s to %s%s", least, most, why))
		}
	}
	seconds("hold_time", b.HoldTime, minHoldTime, maxHoldTime, ": after so long of silence routers drop the routes")
	seconds("graceful_restart", b.GracefulRestart, 0, maxGracefulRestart, "; 0s: routers drop the routes of a daemon that died at once")
	if b.DrainTime < 0 || b.DrainTime > maxDrainTime {
		c.problem("bgp.drain_time", b.DrainTime, "out of range", fmt.Sprintf("write 0s to %s", maxDrainTime))
	}
	for _, p := range vip.CheckRoute(b.Communities, b.MED) {
		c.wrong("bgp", p)
	}
}

// checkAS refuses numbers that no neighbour may have (RFC 7607, RFC 6793, RFC 7300).
func (c *Config) checkAS(path string, as int) {
	switch {
	case as < 1 || as >= math.MaxUint32:
		c.problem(path, as, "not the number of an AS", fmt.Sprintf("write 1 to %d", math.MaxUint32-1))
	case as == 23456 || as == math.MaxUint16:
		c.problem(path, as, "is reserved", "write the number of the AS itself")
	}
}

func (c *Config) checkNeighbour(path string, s *Speaker, i int) {
	n := &s.Neighbours[i]
	switch a := n.Address; {
	case !a.IsValid():
		c.problem(path+".address", "", "missing", "write the router's address, as this machine reaches it")
	case a.Zone() != "" || a.IsLinkLocalUnicast():
		c.problem(path+".address", a.String(), "link-local", "write the router's global address")
	default:
		c.checkUnicast(path+".address", a)
		if slices.ContainsFunc(s.Neighbours[:i], func(o Neighbour) bool { return o.Address == a }) {
			c.problem(path+".address", a.String(), "named twice", "remove one")
		}
		if j := slices.IndexFunc(c.VIPs, func(v VIP) bool { return v.Address == a }); j >= 0 {
			c.problem(path+".address", a.String(), fmt.Sprintf("is that of vips[%d] (%s)", j, c.VIPs[j].Name), "write the router's address")
		}
	}
	if n.AS == 0 && c.origin.At[path+".as"] == nil {
		c.problem(path+".as", "", "missing", "write the number of the router's AS; bgp.local_as where it is ours (iBGP)")
	} else {
		c.checkAS(path+".as", n.AS)
	}
	switch {
	case n.Multihop != 0 && (n.Multihop < 2 || n.Multihop > 255):
		c.problem(path+".multihop", n.Multihop, "out of range", "write 2 to 255, or remove it where the router is on a link of this machine")
	case n.Multihop != 0 && n.AS == c.BGP.LocalAS:
		c.problem(path+".multihop", n.Multihop, "the router is of our AS, which may be anywhere", "remove it")
	case n.Multihop != 0 && n.BFD != 0:
		c.problem(path+".bfd", n.BFD, "the router has multihop, and BFD is spoken over one link alone (RFC 5881)", "remove one of the two")
	}
	if n.BFD != 0 && (n.BFD < minBFD || n.BFD > maxBFD) {
		c.problem(path+".bfd", n.BFD, "out of range", fmt.Sprintf("write %s to %s between two packets; three lost ones end the session", minBFD, maxBFD))
	}
}

// checkRoutes: a route names no port, so VIPs on one address must agree about it.
// first is who announces; "": nobody does.
func (c *Config) checkRoutes(first string) {
	seen := map[netip.Addr]int{}
	for i := range c.VIPs {
		v, path := &c.VIPs[i], fmt.Sprintf("vips[%d]", i)
		j, second := seen[v.Address]
		o := &c.VIPs[j]
		for _, f := range []struct {
			key       string
			value     any
			has, same bool
		}{
			{"announce", v.Announces(), v.Announce != "", v.Announces() == o.Announces()},
			{"communities", v.Communities, len(v.Communities) > 0, slices.Equal(v.Communities, o.Communities)},
			{"med", v.MED, v.MED != 0, v.MED == o.MED},
		} {
			switch {
			case first == "" && f.key == "announce" && f.has:
				if c.layer2() == "" {
					c.problem(path+"."+f.key, f.value, "no balancer and no switch has bgp or l2, so nobody announces", "write bgp (docs/bgp.md) or l2 (docs/l2.md) in their entries, or remove it")
				}
			case first == "" && f.has:
				c.problem(path+"."+f.key, f.value, "no balancer and no switch has bgp, so nobody announces", "write bgp in their entries (docs/bgp.md), or remove it")
			case second && v.Address.IsValid() && !f.same:
				c.problem(path+"."+f.key, f.value, fmt.Sprintf("vips[%d] (%s) on the same address says otherwise, and a route names no port", j, o.Name), "write the same for both")
			}
		}
		if !second {
			seen[v.Address] = i
		}
	}
}

// Password is what TCP segments to n are signed with; empty: they are not.
func (c *Config) Password(n Neighbour) (string, error) {
	file := cmp.Or(n.PasswordFile, c.BGP.PasswordFile)
	if file == "" {
		return "", nil
	}
	text, wrong, remedy := readPassword(file)
	if wrong != "" {
		return "", fmt.Errorf("password_file %s: %s; %s", file, wrong, remedy)
	}
	return text, nil
}

func readPassword(file string) (text, wrong, remedy string) {
	data, info, err := yamlfile.ReadBounded(file, maxSecret)
	if err != nil {
		wrong, remedy = yamlfile.Unread(err, "write the password that the router has for this machine into it")
		return "", wrong, remedy
	}
	if wrong, remedy = yamlfile.Exposed(file, info); wrong != "" {
		return "", wrong, remedy
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 || len(data) > maxPassword {
		return "", fmt.Sprintf("holds %d bytes", len(data)), fmt.Sprintf("write a password of 1 to %d", maxPassword)
	}
	return string(data), "", ""
}

// checkPasswords reads the passwords' files.
func (c *Config) checkPasswords() {
	check := func(path, file string) {
		if file == "" {
			return
		}
		if _, wrong, remedy := readPassword(file); wrong != "" {
			c.problem(path+".password_file", file, wrong, remedy)
		}
	}
	check("bgp", c.BGP.PasswordFile)
	c.speakers(func(path string, s *Speaker) {
		for i, n := range s.Neighbours {
			check(fmt.Sprintf("%s.neighbours[%d]", path, i), n.PasswordFile)
		}
	})
}
