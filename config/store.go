package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Where a deployment agrees: controllers' own store, or somebody else's.

// imply puts a controller beside the only balancer or switch of a file that names none
// and no store. Its store and API are where that daemon's API is.
func (c *Config) imply() {
	front := c.fronts()
	if c.implied = c.named() && len(c.Controllers) == 0 && len(c.Store.Etcd) == 0 && c.origin.At["store"] == nil && len(front) == 1; !c.implied {
		return
	}
	beside := Controller{Name: front[0].Name + "-controller"}
	if path, local := strings.CutPrefix(front[0].API, "unix:"); local {
		socket := func(what string) string {
			return "unix:" + filepath.Join(filepath.Dir(path), front[0].Name+"-"+what+".sock")
		}
		beside.Store, beside.API = socket("store"), socket("api")
	} else if host, _, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(front[0].API, "https://"), "/")); err == nil {
		beside.Store = "https://" + net.JoinHostPort(host, strconv.Itoa(storePort))
		beside.API = "https://" + net.JoinHostPort(host, strconv.Itoa(controlPort))
	}
	c.Controllers = []Controller{beside}
}

// storePort is etcd's own, and controlPort that of a controller's API, where the file
// names neither.
const (
	storePort   = 2379
	controlPort = 7444
)

// fronts are those that clients' packets come to.
func (c *Config) fronts() []Self { return slices.Concat(c.Selves(RoleBalancer), c.Selves(RoleSwitch)) }

// named: the Config is a file's, whose daemons are to run.
func (c *Config) named() bool { return c.origin.File != "" }

// checkImplied: what a file must say where its controller cannot be beside its
// balancer.
func (c *Config) checkImplied() {
	const remedy = "write controllers: [{name: c1, store: \"https://192.0.2.1:2379\"}], the address of the machine that is to run `fairlead controller` (docs/store.md)"
	front := c.fronts()
	switch far := c.faraway(); {
	case !c.implied && len(front) > 1:
		c.problem("controllers", "", fmt.Sprintf("missing, and %d balancers or switches agree on changes in a store", len(front)), remedy)
	case !c.implied || len(c.origin.Problems) > 0:
	case far != "" && strings.HasPrefix(c.Controllers[0].Store, "unix:"):
		c.problem("controllers", "", fmt.Sprintf("missing, and %s is on another machine, by its api, and could not reach a store beside %s, whose api is a socket", far, front[0].Name),
			"give "+front[0].Name+" an api of the form https://address:port, or "+remedy)
	default:
		host, _, _ := net.SplitHostPort(strings.TrimPrefix(c.Controllers[0].Store, "https://"))
		if _, err := netip.ParseAddr(host); err != nil && !strings.HasPrefix(c.Controllers[0].Store, "unix:") {
			c.problem("controllers", "", fmt.Sprintf("missing, and the api of %s is no IP address that a store beside it could listen at", front[0].Name), remedy)
		}
	}
}

func (c *Config) checkStore() {
	if c.named() && (c.implied || len(c.Controllers) == 0 && len(c.Store.Etcd) == 0 && c.origin.At["store"] == nil) {
		c.checkImplied()
		return
	}
	theirs := len(c.Store.Etcd) > 0
	switch n := len(c.Controllers); {
	case !theirs && n != 0 && n != 1 && n != 3:
		c.problem("controllers", n, "a store has one member, or three of which one may fail", "name one, or three")
	case n == 0 && len(c.Store.Etcd) == 0 && c.origin.At["store"] != nil:
		c.problem("store.etcd", "", "missing", "list the members of the etcd cluster, or remove store")
	}
	if len(c.Controllers)+len(c.Store.Etcd) > 0 && !c.looks && c.secret == nil && c.Secret == "" && c.SecretFile == "" {
		c.problem("secret", "", "missing, and what is in the store is encrypted under it",
			"run `fairlead secret secret` beside this file and write secret_file: secret")
	}
	if p := c.Store.Prefix; !strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || len(p) > 100 {
		c.problem("store.prefix", p, "not a prefix of keys", "write one that begins and ends with a slash, such as "+DefaultPrefix)
	}
	for i, e := range c.Store.Etcd {
		path := fmt.Sprintf("store.etcd[%d]", i)
		if slices.Contains(c.Store.Etcd[:i], e) {
			c.problem(path, e, "named twice", "remove one")
		}
		c.checkStoreAt(path, e)
	}
	taken := map[string]string{}
	for _, d := range c.Daemons() {
		taken[d.API] = "the api of " + d.Name
	}
	for _, s := range c.Controllers {
		taken[s.API] = "the api of " + s.Name
	}
	for i := range c.Controllers {
		s, path := &c.Controllers[i], fmt.Sprintf("controllers[%d]", i)
		for _, at := range []struct{ key, value string }{{"store", s.Store}, {"peer", s.Peer}} {
			if other := taken[at.value]; at.value != "" && other != "" {
				c.problem(path+"."+at.key, at.value, "already "+other, "give each its own")
			}
			taken[at.value] = "the " + at.key + " of " + s.Name
			if theirs && at.value != "" {
				c.problem(path+"."+at.key, at.value, "store.etcd keeps the store, and this controller none", "remove it, or store.etcd")
			}
		}
		if theirs {
			continue
		}
		c.checkStoreAt(path+".store", s.Store)
		if far := c.faraway(); far != "" && strings.HasPrefix(s.Store, "unix:") {
			c.problem(path+".store", s.Store, far+" is on another machine, by its api, and cannot reach a socket of this one", "write store: https://address:port, with the controller's own address")
		}
		switch {
		case s.Peer != "":
			if !strings.HasPrefix(s.Peer, "https://") {
				c.problem(path+".peer", s.Peer, "not an address of other machines", "write https://address:port")
				break
			}
			c.checkStoreAt(path+".peer", s.Peer)
		case len(c.Controllers) > 1:
			c.problem(path+".peer", "", "missing, and the controllers must reach each other", "write https://address:port, with the controller's own address")
		}
	}
}

// faraway is a daemon that others reach by the network, "" if none is.
func (c *Config) faraway() string {
	for _, d := range c.Daemons() {
		if strings.HasPrefix(d.API, "https://") {
			return d.Name
		}
	}
	return ""
}

// checkStoreAt: where an etcd answers. It listens at what it is known by, so that is
// an address and no name.
func (c *Config) checkStoreAt(path, at string) {
	before := len(c.origin.Problems)
	c.checkAPI(path, at)
	address, remote := strings.CutPrefix(at, "https://")
	if !remote || len(c.origin.Problems) > before || strings.HasPrefix(path, "store.etcd") {
		return
	}
	host, _, _ := net.SplitHostPort(strings.TrimSuffix(address, "/"))
	if _, err := netip.ParseAddr(host); err != nil {
		c.problem(path, at, "not an IP address and a port", "write https://192.0.2.1:2379, with the controller's own address")
	}
}
