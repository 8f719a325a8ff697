package config

import (
	"fmt"
	"slices"
	"strings"
)

// Where a deployment agrees: controllers' own store, or somebody else's.

func (c *Config) checkStore() {
	switch n := len(c.Controllers); {
	case n > 0 && len(c.Store.Etcd) > 0:
		c.problem("store.etcd", strings.Join(c.Store.Etcd, ", "), "there are controllers, which keep a store of their own", "keep one of them")
	case n != 0 && n != 1 && n != 3 && n != 5:
		c.problem("controllers", n, "a store of so many agrees no better than one of one fewer", "name one, or three; then one may fail")
	case n == 0 && len(c.Store.Etcd) == 0 && c.origin.At["store"] != nil:
		c.problem("store.etcd", "", "missing", "list the members of the etcd cluster, or remove store")
	}
	if c.Stored() && c.secret == nil && c.Secret == "" && c.SecretFile == "" {
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
		c.checkAPI(path, e)
	}
	for i := range c.Controllers {
		s, path := &c.Controllers[i], fmt.Sprintf("controllers[%d]", i)
		c.checkAPI(path+".store", s.Store)
		same := func(o Controller) bool { return o.Store == s.Store || o.Peer != "" && o.Peer == s.Peer }
		if slices.ContainsFunc(c.Controllers[:i], same) {
			c.problem(path, s.Name, "another controller has this store or peer address", "give each its own")
		}
		switch {
		case s.Peer != "":
			if !strings.HasPrefix(s.Peer, "https://") {
				c.problem(path+".peer", s.Peer, "not an address of other machines", "write https://address:port")
				break
			}
			c.checkAPI(path+".peer", s.Peer)
		case len(c.Controllers) > 1:
			c.problem(path+".peer", "", "missing, and the controllers must reach each other", "write https://address:port, with the controller's own address")
		}
	}
}
