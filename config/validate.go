package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/vip"
)

type positions = map[string]*yamlfile.Position

// problem records what is wrong with the field at path (yamlfile).
func (c *Config) problem(path string, value any, wrong, remedy string) {
	c.origin.Problem(path, fmt.Sprint(value), wrong, remedy)
}

// mostCompared bounds the search for the servers that slips may have meant, about
// half a second in all: a file of many servers and many slips gets suggestions for
// the first ones.
const mostCompared = 1 << 28

// near is the server that name may have meant, else "".
func (c *Config) near(name string, servers []string) string {
	if c.compared += len(servers) * len(name) * len(name); c.compared > mostCompared {
		return ""
	}
	return yamlfile.Nearest(name, servers)
}

// check looks at everything; each problem is recorded, none stops it.
func (c *Config) check() {
	c.pool = newPool(c.Servers)
	defer func() { c.pool = nil }()
	c.checkTLS()
	c.checkDaemons()
	c.checkSwitches()
	c.checkStore()
	c.checkVIPs()
	c.checkFaild()
	c.checkBGP()
	c.checkL2()
	c.checkTunnelSources()
	c.checkSources()
	c.checkSteerSources()
	c.checkTiers()
	c.checkSecret()
	c.checkRotation()
	for _, l := range c.Limits.all() {
		if what, remedy := l.problem(); what != "" {
			c.problem("limits."+l.key, *l.value, what, remedy)
		}
	}
	c.checkMetrics("metrics", c.Metrics)
}

func (c *Config) checkTLS() {
	t := c.TLS
	if t == (TLS{}) {
		return
	}
	for _, f := range []struct{ key, v string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
		if f.v == "" {
			c.problem("tls."+f.key, "", "missing", "daemons authenticate each other: name PEM files for ca, cert and key")
		}
	}
}

func (c *Config) checkSecret() {
	if c.looks || c.secret != nil || c.Secret != "" || c.SecretFile != "" {
		return
	}
	for i, v := range c.VIPs {
		what := ""
		switch {
		case len(c.Controllers)+len(c.Store.Etcd) > 0 && !c.implied: // was said
			return
		case v.Cookies():
			what = "scheme cheetah, whose cookies need it"
		case v.MPTCP && v.Scheme.Row().Hops:
			what = "mptcp: true, whose ports would name its servers to everybody"
		default:
			continue
		}
		c.problem("secret", "", fmt.Sprintf("missing, and vips[%d] (%s) has %s", i, v.Name, what),
			"run `fairlead secret secret` beside this file and write secret_file: secret")
		return
	}
}

// vipName may hold what default names do: [2001:db8::1]:443/tcp.
var vipName = regexp.MustCompile(`^[A-Za-z0-9\[][A-Za-z0-9._:/\[\]-]{0,79}$`)

func (c *Config) checkDaemons() {
	names, apis, addresses := map[string]string{}, map[string]string{}, map[netip.Addr]string{}
	common := func(path, name, api string, interfaces []string, metrics *string) {
		if api == NoAgent && !strings.HasPrefix(path, "servers") {
			c.problem(path+".api", NoAgent, "this is a daemon and must be reachable", "leave api out, or write unix:/path or https://address:port")
		}
		if name == "" {
			c.problem(path+".name", "", "missing", "give each machine a name of its own")
		} else {
			if !vip.ServerName(name) {
				c.problem(path+".name", name, "not a name", vip.NameRule)
			}
			if other, dup := names[name]; dup {
				c.problem(path+".name", name, "already the name of "+other, "give each machine a name of its own")
				return
			}
			names[name] = path
		}
		if api != NoAgent && name != "" {
			c.checkAPI(path+".api", api)
			if other, dup := apis[api]; dup {
				c.problem(path+".api", api, "already the api of "+other, "give each daemon its own")
			} else {
				apis[api] = path
			}
		}
		for i, name := range interfaces {
			p := fmt.Sprintf("%s.interfaces[%d]", path, i)
			c.checkInterface(p, name)
			if slices.Contains(interfaces[:i], name) {
				c.problem(p, name, "named twice", "remove one")
			}
		}
		if metrics != nil && *metrics != c.Metrics {
			c.checkMetrics(path+".metrics", *metrics)
		}
	}
	for i, b := range c.Balancers {
		path := fmt.Sprintf("balancers[%d]", i)
		common(path, b.Name, b.API, b.Interfaces, b.Metrics)
		if len(b.Interfaces) == 0 {
			c.problem(path+".interfaces", "", "missing", "name the interfaces that VIPs' packets arrive on, such as [eth0]")
		}
		c.checkSource(path+".source", b.Source, false)
		c.checkSource(path+".source6", b.Source6, true)
	}
	for i, s := range c.Switches {
		common(fmt.Sprintf("switches[%d]", i), s.Name, s.API, nil, s.Metrics)
	}
	for i, s := range c.Controllers {
		if c.implied {
			break // nobody wrote it
		}
		common(fmt.Sprintf("controllers[%d]", i), s.Name, s.API, nil, s.Metrics)
	}
	for i, s := range c.Servers {
		path := fmt.Sprintf("servers[%d]", i)
		common(path, s.Name, s.API, s.Interfaces, s.Metrics)
		if !s.Address.IsValid() {
			c.problem(path+".address", "", "missing", "write the server's own address, not the VIP's")
			continue
		}
		c.checkUnicast(path+".address", s.Address)
		if other, dup := addresses[s.Address]; dup {
			c.problem(path+".address", s.Address.String(), "already the address of "+other, "one server is one entry")
		} else {
			addresses[s.Address] = path + " (" + s.Name + ")"
		}
	}
}

func (c *Config) checkInterface(path, name string) {
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ \t:") {
		c.problem(path, name, "not an interface's name", "`ip link` lists them")
	}
}

func (c *Config) checkAPI(path, api string) {
	const remedy = "write unix:/path or https://address:port"
	switch {
	case strings.HasPrefix(api, "unix:"):
		// 107: sun_path less its zero.
		if p := api[len("unix:"):]; !strings.HasPrefix(p, "/") || len(p) > 107 {
			c.problem(path, api, "not an absolute path of at most 107 bytes", remedy)
		}
	case strings.HasPrefix(api, "https://"):
		host, port, err := net.SplitHostPort(strings.TrimSuffix(api[len("https://"):], "/"))
		if err != nil || host == "" || !isPort(port) {
			c.problem(path, api, "no address and port", "write https://192.0.2.1:7443")
		} else if a, err := netip.ParseAddr(host); err == nil && (a.IsUnspecified() || a.IsMulticast()) {
			c.problem(path, api, "peers cannot reach this address", "write the machine's own address")
		}
		if c.TLS == (TLS{}) {
			c.problem(path, api, "https needs tls: who may change assignments is who has a certificate",
				"name tls.ca, tls.cert and tls.key, or use a unix socket")
		}
	case strings.HasPrefix(api, "http://"):
		c.problem(path, api, "the API carries keys and is never in the clear", remedy)
	default:
		c.problem(path, api, "not an API address", remedy)
	}
}

func isPort(s string) bool {
	n, err := net.LookupPort("tcp", s)
	return err == nil && n > 0
}

func (c *Config) checkMetrics(path, address string) {
	if address == "" {
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if err != nil || !isPort(port) {
		c.problem(path, address, "no address and port", `write 127.0.0.1:7470, :7470 for every address, or "" for none`)
	}
}

func (c *Config) checkSource(path string, p netip.Prefix, six bool) {
	if !p.IsValid() {
		return
	}
	family, example, other := "IPv4", "10.200.0.0/16", "source6"
	if six {
		family, example, other = "IPv6", "2001:db8:f::/64", "source"
	}
	switch {
	case p.Addr().Is6() != six:
		c.problem(path, p.String(), "not "+family, "write it as "+other+", or a prefix such as "+example)
	case p != p.Masked():
		c.problem(path, p.String(), "host bits are set: they carry the connection's hash", "write "+p.Masked().String())
	case !sendsTunnels(p):
		c.problem(path, p.String(), "tunnels cannot come from there", "write a prefix of the balancer's own, such as "+example)
	}
}

func sendsTunnels(p netip.Prefix) bool {
	return p.Bits() > 0 && !p.Addr().IsUnspecified() && !p.Addr().IsMulticast() && !p.Addr().IsLoopback()
}

// checkTunnelSources: in a family whose balancers do not all have a source
// tunnels are taken from anywhere, so that more prefixes would say nothing.
func (c *Config) checkTunnelSources() {
	for i, p := range c.TunnelSources {
		path := fmt.Sprintf("tunnel_sources[%d]", i)
		switch {
		case !p.IsValid(): // was said
		case p.Addr().Is4In6():
			c.problem(path, p.String(), "IPv4 written as IPv6", "write it as IPv4")
		case p != p.Masked():
			c.problem(path, p.String(), "host bits are set", "write "+p.Masked().String())
		case !sendsTunnels(p):
			c.problem(path, p.String(), "tunnels cannot come from there", "write the prefix that they come from")
		case !c.SourcesKnown(p.Addr().Is6()):
			key := "source"
			if p.Addr().Is6() {
				key = "source6"
			}
			c.problem(path, p.String(), "says nothing: not every balancer has a "+key+", so servers take tunnels over "+family(p.Addr())+" from anywhere",
				"write "+key+" in every balancer's entry, or remove it here")
		}
	}
}

// checkUnicast refuses what no machine out there can have as its address.
func (c *Config) checkUnicast(path string, a netip.Addr) {
	if wrong, remedy := vip.Unicast(a); wrong != "" {
		c.problem(path, a.String(), wrong, remedy)
	}
}

func (c *Config) checkHealth(path string, v *VIP) {
	h := v.Health
	if h == nil {
		return
	}
	if h.Port == 0 {
		// Else what is wrong with the VIP's port has been said.
		if c.portKnown(strings.TrimSuffix(path, ".health")) {
			c.problem(path+".port", "", "missing, and the VIP has all ports, so none to check", "write the port that answers")
		}
	} else if v.Protocol == vip.UDP && c.origin.At[path+".port"] == nil && c.origin.File != "" {
		c.problem(path+".port", "", "missing: checks speak TCP, and the VIP is UDP", "write a TCP port of the servers that answers when the service is well")
	}
	for _, p := range h.Check() {
		c.wrong(path, p)
	}
}

// wrong records a problem of package vip's at path.
func (c *Config) wrong(path string, p vip.Problem) {
	if near := yamlfile.Nearest(p.Value, p.Words); near != "" {
		p.Remedy = "write " + near + " (known: " + strings.Join(p.Words, ", ") + ")"
	}
	c.problem(path+"."+p.Field, p.Value, p.Wrong, p.Remedy)
}
