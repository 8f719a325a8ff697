package config

import (
	"fmt"
	"time"
)

// What schemes beamer and faild share: buckets, and chains of previous
// servers.

const (
	DefaultBuckets      = 4096
	DefaultFaildBuckets = 1024
	MaxBuckets          = 1 << 23
	// MaxFaildBuckets is how many nexthops a group of Linux can have.
	MaxFaildBuckets = 1 << 16
	// DefaultChainTime is as long as a client may go on sending to a server
	// that has answered nothing (Beamer, "daisy chaining").
	DefaultChainTime = 4 * time.Minute
	MinChainTime     = time.Second
	MaxChainTime     = 24 * time.Hour

	// maxBucketServers: a bucket names its servers in 16 bits, one value of
	// which is nobody.
	maxBucketServers = 1<<16 - 1
	// maxFaildServers: a MAC address has 10 bits for each of four servers, and
	// zero is nobody.
	maxFaildServers = 1<<10 - 1
	// maxMPTCPServers: ports from 32,768 up stand for servers.
	maxMPTCPServers = 1 << 15

	DefaultAnnounceTable = 177
	DefaultLockPercent   = 50
	DefaultLockWindow    = 10 * time.Second
	DefaultFlaps         = 3
)

// Chains says whether v's packets may be passed on from server to server:
// schemes beamer and faild, which go by buckets.
func (v *VIP) Chains() bool { return v.Scheme == Beamer || v.Scheme == Faild }

// fillChain fills in what is about buckets.
func (v *VIP) fillChain(at positions, path string) {
	if !v.Chains() {
		return
	}
	buckets := DefaultBuckets
	if v.Scheme == Faild {
		buckets = DefaultFaildBuckets
	}
	if at[path+".buckets"] == nil {
		v.Buckets = or(v.Buckets, buckets)
	}
	if at[path+".chain_time"] == nil {
		v.ChainTime = or(v.ChainTime, DefaultChainTime)
	}
}

func (s *Switch) fill(c *Config, path string) {
	s.API = or(s.API, DefaultAPI(s.Name))
	if s.Metrics == nil {
		s.Metrics = new(c.Metrics)
	}
	s.Bridge = or(s.Bridge, DefaultBridge)
	number := func(key string, v *int, usual int) {
		if c.origin.at[path+"."+key] == nil {
			*v = or(*v, usual)
		}
	}
	number("announce_table", &s.AnnounceTable, DefaultAnnounceTable)
	number("lock_percent", &s.LockPercent, DefaultLockPercent)
	number("flaps", &s.Flaps, DefaultFlaps)
	if c.origin.at[path+".lock_window"] == nil {
		s.LockWindow = or(s.LockWindow, DefaultLockWindow)
	}
}

// checkChain looks at the choices of schemes beamer and faild.
func (c *Config) checkChain(path string, v *VIP) {
	limit := MaxBuckets
	if v.Scheme == Faild {
		limit = MaxFaildBuckets
	}
	working := 0
	for _, m := range v.Servers {
		if !m.Standby && !m.Drain {
			working++
		}
	}
	switch {
	case v.Buckets < 1 || v.Buckets > limit:
		c.problem(path+".buckets", fmt.Sprint(v.Buckets), "out of range", fmt.Sprintf("write 1 to %d, for good shares a hundred times the servers that there may be", limit))
	case v.Buckets < working:
		c.problem(path+".buckets", fmt.Sprint(v.Buckets), fmt.Sprintf("the VIP has %d servers that work: some would get no bucket", working),
			fmt.Sprintf("write %d or more: it is fixed for the VIP's life", min(limit, 100*working)))
	}
	if v.ChainTime < MinChainTime || v.ChainTime > MaxChainTime {
		c.problem(path+".chain_time", v.ChainTime.String(), "out of range", fmt.Sprintf("write %s to %s: longer than a client waits before it sends again", MinChainTime, MaxChainTime))
	}
	c.checkMPTCP(path, v)
	if v.Scheme == Beamer && v.Forwarding == L2 {
		c.problem(path+".forwarding", L2, "scheme beamer's packets name the servers to ask next, and forwarding l2 has no header that could carry them", "write forwarding: ipip or gue")
	}
	if v.Scheme == Faild && c.written(path, "forwarding") {
		c.problem(path+".forwarding", v.Forwarding, "scheme faild has no balancer that forwards: a switch does", "remove it")
	}
	if v.Scheme == Faild && v.Affinity == Address {
		c.problem(path+".affinity", Address, "a switch hashes the ports of every VIP, too", "remove it, or write scheme: beamer")
	}
	if v.Scheme == Faild && !*v.MSSClamp && c.written(path, "mss_clamp") {
		c.problem(path+".mss_clamp", "false", "scheme faild puts no header before a packet, so there is nothing to clamp", "remove it")
	}
	why := "scheme " + v.Scheme + " goes by its buckets"
	for _, f := range []struct {
		key, value string
		set        bool
	}{
		{"hash", v.Hash, v.Hash != ""},
		{"capacity", fmt.Sprint(v.Capacity), v.Capacity != 0},
		{"horizon", fmt.Sprint(*v.Horizon), *v.Horizon != 0},
		{"warm_up", v.WarmUp.String(), v.WarmUp != 0},
		{"share", fmt.Sprint(*v.Share), *v.Share},
	} {
		if f.set || c.written(path, f.key) {
			c.problem(path+"."+f.key, f.value, why+", tracks no connection and holds none", "remove it, or write scheme: jet")
		}
	}
}

// written says whether the file has key in the mapping at path.
func (c *Config) written(path, key string) bool { return c.origin.at[path+"."+key] != nil }

func (c *Config) checkMPTCP(path string, v *VIP) {
	switch {
	case !v.MPTCP:
	case v.Scheme != Beamer:
		c.problem(path+".mptcp", "true", "scheme "+v.Scheme+" takes no joins to the first subflow's server", "remove it, or write scheme: beamer")
	case v.Protocol != TCP:
		c.problem(path+".mptcp", "true", "the VIP's protocol is "+v.Protocol, "remove it, or write protocol: tcp")
	case v.Port == 0 || v.Port >= 1<<15:
		c.problem(path+".mptcp", "true", fmt.Sprintf("joins arrive at the address's ports 32768 to 65535, which port %s is one of", v.Port), "write a port below 32768")
	}
}

// checkNoChain refuses what only buckets have.
func (c *Config) checkNoChain(path string, v *VIP, schemeKnown bool) {
	if !schemeKnown {
		return
	}
	for _, f := range []struct {
		key, value string
		set        bool
	}{
		{"buckets", fmt.Sprint(v.Buckets), v.Buckets != 0},
		{"chain_time", v.ChainTime.String(), v.ChainTime != 0},
	} {
		if f.set || c.written(path, f.key) {
			c.problem(path+"."+f.key, f.value, "scheme "+v.Scheme+" has no buckets that move from server to server", "remove it, or write scheme: beamer")
		}
	}
	c.checkMPTCP(path, v)
}
